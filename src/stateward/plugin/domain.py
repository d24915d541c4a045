"""The declaration of a domain's plug-in: everything that a domain brings, as data.

    domain = DomainPlugin("acme", [lamp])

Nothing but the name and the kinds is needed. Parts that only some processes need are texts that say where they are, as
`module:attribute` or `package:file`, so that a process does not import what it does not use: a client of the tables
alone must not wait for the engine and the web framework.

A plug-in is found by its entry point in the group `stateward.domains`, or is named: `--domain module:attribute`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from stateward.errors import BadInput, StatewardError, UnknownName

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from litestar.types import ControllerRouterHandler

    from stateward.engine import Kind
    from stateward.lifecycle import Lifecycle
    from stateward.plugin.runtime import BackgroundTask, DomainRuntime, ProcessContext

KIND = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+")
NAME = re.compile(r"[a-z][a-z0-9]{1,30}")
VIEWS = frozenset({"overview", "objects", "object", "queues", "lanes", "workers", "timers", "journal", "access"})
RESERVED = VIEWS | {"stateward", "core", "ui", "views", "fleet"}
"""Names that are taken: by views and folders of the console, and by kinds of the deployment itself."""

PART_GROUPS = ("stateward.drivers", "stateward.lease_resources", "stateward.lease_filters")
"""The groups of entry points beside that of domains; a domain can bring such parts without entry points, too."""

CreateRuntime: TypeAlias = "Callable[[ProcessContext], DomainRuntime]"


class MissingPart(StatewardError):
    """A plug-in names a part that is not there."""

    part: str
    place: str
    why: str
    text = "{part}: {place!r} cannot be loaded: {why}"


class DomainPlugin(Struct, frozen=True):
    """A domain: its kinds, and whatever else it brings.

    `create` is for a domain whose handlers need settings or other parts of the process: it returns the domain's
    runtime, whose kinds are those of `lifecycles`. Without it, the runtime is made of `kinds`, `routes`, `tasks` and
    `demo`.
    """

    name: str  # the prefix of its kinds, its settings and its pages
    kinds: "Sequence[Kind]" = ()
    lifecycles: "Sequence[Lifecycle] | str" = ()  # of the kinds that `create` makes
    about: str = ""
    version: str = ""
    requires: str = ""  # the versions of Stateward that it works with, such as >=0.2,<0.3
    order: int = 100  # its place among all domains, in lists and in the navigation
    create: "str | CreateRuntime" = ""
    routes: "Sequence[ControllerRouterHandler] | str" = ()
    tasks: "Sequence[BackgroundTask]" = ()  # in each process with a worker, as long as it runs
    demo: "BackgroundTask | None" = None
    parts: Mapping[str, Mapping[str, str]] = {}  # drivers and the like: module:attribute by group and name
    settings: type[Struct] | None = None  # each field is a setting NAME_FIELD
    cli: str = ""  # module:attribute of a Typer application
    command: str = ""  # by which it is called; the name of the domain if empty
    programs: Mapping[str, tuple[str, str]] = {}  # other commands by name: the line in `--help`, and module:attribute
    console: str = ""  # package:file of its JavaScript module in the console
    style: str = ""  # package:file of the style sheet of that module
    docs: str = ""  # package:file of its documentation, in Markdown
    pictures: str = ""  # package:folder of its drawn lifecycles, each KIND.svg, shown where Graphviz is not installed
    examples: Mapping[str, Any] | str = {}  # of bodies and specs, by the name of the component in the OpenAPI document
    published_names: Mapping[str, str] | str = {}  # of records whose name in that document differs from the code

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name) or self.name in RESERVED:
            allowed = "2 to 31 lower-case letters and digits, that begin with a letter"
            raise BadInput("name", self.name, f"{allowed}, and none of {', '.join(sorted(RESERVED))}")
        self.supports("0")  # its range of versions can be read
        if not isinstance(self.lifecycles, str):
            if not self.all_lifecycles:
                raise BadInput("kinds", None, f"given: the domain {self.name} has none")
            _require_own_names(self.name, [lifecycle.kind for lifecycle in self.all_lifecycles])
        for group in self.parts:
            if group not in PART_GROUPS:
                raise UnknownName("group of parts", group, PART_GROUPS)

    @property
    def all_lifecycles(self) -> "tuple[Lifecycle, ...]":
        """The lifecycles of its kinds."""
        return (*(kind.lifecycle for kind in self.kinds), *load_part("lifecycles", self.lifecycles))

    def supports(self, version: str) -> bool:
        """Return whether it works with a version of Stateward."""
        if not self.requires:
            return True
        from packaging.specifiers import InvalidSpecifier, SpecifierSet  # most plug-ins name no range

        try:
            return SpecifierSet(self.requires).contains(version, prereleases=True)
        except InvalidSpecifier:
            raise BadInput("requires", self.requires, "a range of versions, such as >=0.2,<0.3") from None

    def create_runtime(self, context: "ProcessContext") -> "DomainRuntime":
        """Create what lives in a process."""
        from stateward.plugin.runtime import DomainRuntime  # a client of the tables does not need the engine

        if not self.create:
            return DomainRuntime(self.kinds, load_part("routes", self.routes), tasks=self.tasks, demo=self.demo)
        create: CreateRuntime = load_part("create", self.create)
        runtime = create(context)
        if not isinstance(runtime, DomainRuntime):
            raise BadInput("create", type(runtime).__name__, "a function that returns a DomainRuntime")
        _require_own_names(self.name, [kind.name for kind in runtime.kinds])
        return runtime


def load_part(part: str, value: Any) -> Any:  # noqa: ANN401 - any part of a plug-in
    """Return a part of a plug-in: the value itself, or the attribute at `module:attribute`."""
    if not isinstance(value, str):
        return value
    module, _, attribute = value.partition(":")
    if not module or not attribute:
        raise BadInput(part, value, "module:attribute")
    try:
        loaded = import_module(module)
        for name in attribute.split("."):
            loaded = getattr(loaded, name)
    except (ImportError, AttributeError) as error:
        raise MissingPart(part, value, str(error)) from error
    return loaded


def part_file(part: str, place: str) -> "Traversable":
    """Return the file of a plug-in at `package:file`."""
    from importlib.resources import files  # only servers read files of plug-ins

    package, _, path = place.partition(":")
    if not package or not path:
        raise BadInput(part, place, "package:file")
    try:
        if not hasattr(import_module(package), "__path__"):
            raise MissingPart(part, place, f"{package} is a module in one file: a file beside it needs a package")
        file = files(package).joinpath(path)
    except ImportError as error:
        raise MissingPart(part, place, str(error)) from error
    if not file.is_file():
        raise MissingPart(part, place, "there is no such file")
    return file


def _require_own_names(domain: str, kinds: Iterable[str]) -> None:
    """Refuse kinds whose names do not begin with the domain's, and a name that stands twice."""
    seen = set[str]()
    for kind in kinds:
        if not kind.startswith(f"{domain}.") or not KIND.fullmatch(kind) or kind in seen:
            raise BadInput("kinds", kind, f"a name of its own that begins with {domain}., of letters, digits, _ and -")
        seen.add(kind)
