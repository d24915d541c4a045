"""The registry of domains: finds the plug-ins of a process, and answers what they declare.

Packages above the domains (server, command line) learn of a domain here and nowhere else. Plug-ins are found by the
entry points of installed packages, the built-in ones like all others, or are named as `module:attribute`. A plug-in
that cannot be used is a fault, and the others go on; one that was named explicitly stops the process.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import fields, replace

from stateward import __version__
from stateward.config import NAMES, hide_secrets
from stateward.data_folder import PREFIX
from stateward.errors import BadInput, NotOffered, UnknownName
from stateward.plugin.domain import PART_GROUPS, DomainPlugin, load_part, part_file
from stateward.plugin.entry_points import FoundPart, PluginFault, find_parts, named_part

if TYPE_CHECKING:
    from stateward.lifecycle import Lifecycle
    from stateward.plugin.runtime import DomainRuntime, ProcessContext

GROUP = "stateward.domains"


class InstalledDomain(Struct, frozen=True):
    """A plug-in that can be used, with the place where it was found; `is_named` says that it was asked for."""

    plugin: DomainPlugin
    part: FoundPart
    is_named: bool = False

    @property
    def name(self) -> str:
        """The domain's name."""
        return self.plugin.name

    @property
    def version(self) -> str:
        """Its own version, or that of the package that brings it."""
        return self.plugin.version or self.part.package.rpartition(" ")[2]


class LoadedDomain(Struct, frozen=True):
    """A plug-in with its runtime in this process."""

    plugin: DomainPlugin
    runtime: "DomainRuntime"

    @property
    def name(self) -> str:
        """The domain's name."""
        return self.plugin.name


class Plugins(Struct, frozen=True, eq=False):
    """The plug-ins of a process, those that cannot be used, and the names of those that were not chosen."""

    domains: tuple[InstalledDomain, ...]
    faults: tuple[PluginFault, ...] = ()
    unchosen: frozenset[str] = frozenset()

    def __iter__(self) -> Iterator[DomainPlugin]:
        return (domain.plugin for domain in self.domains)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the domains."""
        return tuple(domain.name for domain in self.domains)

    @property
    def lifecycles(self) -> "tuple[Lifecycle, ...]":
        """Every declared lifecycle, domain by domain."""
        return tuple(lifecycle for plugin in self for lifecycle in plugin.all_lifecycles)

    def lifecycle_of(self, kind: str) -> "Lifecycle":
        """Return the lifecycle of a kind, or raise with the kinds that exist."""
        known = {lifecycle.kind: lifecycle for lifecycle in self.lifecycles}
        if kind not in known:
            raise UnknownName("kind", kind, known)
        return known[kind]

    def picture_of(self, lifecycle: "Lifecycle") -> str:
        """Return the picture of a lifecycle; where Graphviz is not installed, the one that its plug-in brings."""
        from stateward.lifecycle.render import svg  # most clients show no pictures

        try:
            return svg(lifecycle)
        except NotOffered:
            for plugin in self:
                if plugin.pictures and lifecycle.kind.startswith(f"{plugin.name}."):
                    return part_file("pictures", f"{plugin.pictures}/{lifecycle.kind}.svg").read_text("utf-8")
            raise

    @property
    def sections(self) -> dict[str, type[Struct]]:
        """The settings of the domains that have some, by the prefix of their names."""
        return {plugin.name: plugin.settings for plugin in self if plugin.settings is not None}

    @property
    def with_commands(self) -> tuple[DomainPlugin, ...]:
        """The domains that have commands."""
        return tuple(plugin for plugin in self if plugin.cli)

    @property
    def examples(self) -> dict[str, Any]:
        """Examples of request bodies, by the published name of the record."""
        return _merged(load_part("examples", plugin.examples) for plugin in self)

    @property
    def published_names(self) -> dict[str, str]:
        """The names of records in the OpenAPI document that differ from those in the code."""
        return _merged(load_part("published_names", plugin.published_names) for plugin in self)

    def create_runtimes(self, context: "ProcessContext") -> tuple[list[LoadedDomain], list[PluginFault]]:
        """Create the runtimes of all domains; returns those that could be created, and the faults of the others."""
        loaded, faults = list[LoadedDomain](), list[PluginFault]()
        context = replace(context, parts={group: tuple(self._parts(group)) for group in PART_GROUPS})
        for domain in self.domains:
            try:
                loaded.append(LoadedDomain(domain.plugin, domain.plugin.create_runtime(context)))
            except (Exception, SystemExit) as error:
                fault = domain.part.fault(error)  # its author may have printed the settings
                fault.why = hide_secrets(fault.why, context.settings.get(domain.name))
                _refuse(domain, fault, faults)
        return loaded, faults

    def _parts(self, group: str) -> Iterator[FoundPart]:
        """Yield the parts of a group that the domains bring."""
        for domain in self.domains:
            for name, value in domain.plugin.parts.get(group, {}).items():
                yield FoundPart(name, value, domain.part.package)


def command_of(plugin: DomainPlugin) -> str:
    """Return the name of a domain's command."""
    return plugin.command or plugin.name


def _merged(several: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for entries in several for name, value in entries.items()}


def _refuse(domain: InstalledDomain, error: BaseException, faults: list[PluginFault]) -> None:
    fault = error if isinstance(error, PluginFault) else domain.part.fault(error)
    if domain.is_named:
        raise fault from None
    faults.append(fault)


# --- finding them ----------------------------------------------------------------------------------------------------


def installed() -> Plugins:
    """Return the plug-ins that the environment chooses: all installed ones, unless it says otherwise."""
    return find_plugins(*(os.environ.get(f"{PREFIX}{name}", "") for name in ("DOMAIN", "ONLY")))


@cache  # bounded by: the domains
def find_plugins(domain: str = "", only: str = "") -> Plugins:
    """Find the plug-ins of a process.

    `domain` names further ones as `module:attribute`, with commas between them. `only` chooses by names: of those that
    are installed, no others are loaded.
    """
    declared = find_parts(GROUP)
    parts = {part.name: part for part in reversed(declared)}
    clashes = [part for part in declared if parts[part.name] != part]
    named = [_load(named_part(value, "domain"), is_named=True) for value in _split(domain)]
    chosen = set(_split(only))
    known = {*parts, *(installed.name for installed in named)}
    for name in sorted(chosen - known):
        raise UnknownName("domain", name, known)
    wanted = [part for part in parts.values() if not chosen or part.name in chosen]
    domains, faults = list(named), [_same_name(part, parts[part.name]) for part in clashes]
    for part in wanted:
        if part.name in {installed.name for installed in named}:
            continue  # a developer tries another version of an installed plug-in
        try:
            domains.append(_load(part, is_named=part.name in chosen))
        except PluginFault as fault:
            if part.name in chosen:
                raise
            faults.append(fault)
    usable = _without_clashes(domains, faults)
    return Plugins(usable, tuple(faults), frozenset(known - {installed.name for installed in usable}))


def _split(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _same_name(part: FoundPart, other: FoundPart) -> PluginFault:
    return PluginFault(part.name, part.place, f"another package has a plug-in of this name: {other.place}")


def _load(part: FoundPart, *, is_named: bool) -> InstalledDomain:
    plugin = part.load()
    try:
        _check(plugin, part)
    except Exception as error:
        raise part.fault(error) from error
    return InstalledDomain(plugin, part, is_named)


def _check(plugin: object, part: FoundPart) -> None:
    """Refuse what is no plug-in, is not made for this version, or has parts that are not there or are taken."""
    if not isinstance(plugin, DomainPlugin):
        raise BadInput(part.value, type(plugin).__name__, "a DomainPlugin")
    if part.name and plugin.name != part.name:
        raise BadInput("name", plugin.name, f"the name of its entry point, {part.name}")
    if not plugin.supports(__version__):
        raise BadInput("requires", plugin.requires, f"a range that holds this version of Stateward, {__version__}")
    for name in ("console", "style", "docs"):
        if place := getattr(plugin, name):
            part_file(name, place)
    if plugin.settings is not None:
        for field in fields(plugin.settings):
            if field.required:
                raise BadInput("settings", field.name, "a setting with a default")
        plugin.settings()  # its defaults can be made
        taken = [name for name in plugin.settings.__struct_fields__ if f"{plugin.name}_{name}" in NAMES]
        if taken:
            raise BadInput("settings", taken[0], f"another name: Stateward has a setting {plugin.name}_{taken[0]}")


def _without_clashes(domains: list[InstalledDomain], faults: list[PluginFault]) -> tuple[InstalledDomain, ...]:
    """Return the plug-ins in their order, without those whose name or command an earlier one has."""
    usable, names, commands = list[InstalledDomain](), dict[str, str](), dict[str, str]()
    for domain in sorted(
        domains, key=lambda installed: (not installed.is_named, installed.plugin.order, installed.name)
    ):
        clash = names.get(domain.name) or (commands.get(command_of(domain.plugin)) if domain.plugin.cli else None)
        if clash is not None:
            _refuse(domain, BadInput("name", domain.name, f"a name and a command that {clash} does not have"), faults)
            continue
        names[domain.name] = domain.part.place
        if domain.plugin.cli:
            commands[command_of(domain.plugin)] = domain.part.place
        usable.append(domain)
    return tuple(sorted(usable, key=lambda installed: (installed.plugin.order, installed.name)))
