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
        return (one.plugin for one in self.domains)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the domains."""
        return tuple(one.name for one in self.domains)

    @property
    def lifecycles(self) -> "tuple[Lifecycle, ...]":
        """Every declared lifecycle, domain by domain."""
        return tuple(lifecycle for plugin in self for lifecycle in plugin.all_lifecycles)

    def lifecycle_of(self, kind: str) -> "Lifecycle":
        """Return the lifecycle of a kind, or raise with the kinds that exist."""
        known = {one.kind: one for one in self.lifecycles}
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
        for one in self.domains:
            try:
                loaded.append(LoadedDomain(one.plugin, one.plugin.create_runtime(context)))
            except (Exception, SystemExit) as error:
                fault = one.part.fault(error)  # its author may have printed the settings
                fault.why = hide_secrets(fault.why, context.settings.get(one.name))
                _refuse(one, fault, faults)
        return loaded, faults

    def _parts(self, group: str) -> Iterator[FoundPart]:
        """Yield the parts of a group that the domains bring."""
        for one in self.domains:
            for name, value in one.plugin.parts.get(group, {}).items():
                yield FoundPart(name, value, one.part.package)


def command_of(plugin: DomainPlugin) -> str:
    """Return the name of a domain's command."""
    return plugin.command or plugin.name


def _merged(several: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for entries in several for name, value in entries.items()}


def _refuse(one: InstalledDomain, error: BaseException, faults: list[PluginFault]) -> None:
    fault = error if isinstance(error, PluginFault) else one.part.fault(error)
    if one.is_named:
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
    parts = {one.name: one for one in reversed(declared)}
    clashes = [one for one in declared if parts[one.name] != one]
    named = [_load(named_part(value, "domain"), is_named=True) for value in _split(domain)]
    chosen = set(_split(only))
    known = {*parts, *(one.name for one in named)}
    for name in sorted(chosen - known):
        raise UnknownName("domain", name, known)
    wanted = [one for one in parts.values() if not chosen or one.name in chosen]
    found, faults = list(named), [_same_name(one, parts[one.name]) for one in clashes]
    for part in wanted:
        if part.name in {one.name for one in named}:
            continue  # a developer tries another version of an installed plug-in
        try:
            found.append(_load(part, is_named=part.name in chosen))
        except PluginFault as fault:
            if part.name in chosen:
                raise
            faults.append(fault)
    usable = _without_clashes(found, faults)
    return Plugins(usable, tuple(faults), frozenset(known - {one.name for one in usable}))


def _split(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]


def _same_name(one: FoundPart, other: FoundPart) -> PluginFault:
    return PluginFault(one.name, one.place, f"another package has a plug-in of this name: {other.place}")


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
        for one in fields(plugin.settings):
            if one.required:
                raise BadInput("settings", one.name, "a setting with a default")
        plugin.settings()  # its defaults can be made
        taken = [one for one in plugin.settings.__struct_fields__ if f"{plugin.name}_{one}" in NAMES]
        if taken:
            raise BadInput("settings", taken[0], f"another name: Stateward has a setting {plugin.name}_{taken[0]}")


def _without_clashes(found: list[InstalledDomain], faults: list[PluginFault]) -> tuple[InstalledDomain, ...]:
    """Return the plug-ins in their order, without those whose name or command an earlier one has."""
    usable, names, commands = list[InstalledDomain](), dict[str, str](), dict[str, str]()
    for one in sorted(found, key=lambda one: (not one.is_named, one.plugin.order, one.name)):
        clash = names.get(one.name) or (commands.get(command_of(one.plugin)) if one.plugin.cli else None)
        if clash is not None:
            _refuse(one, BadInput("name", one.name, f"a name and a command that {clash} does not have"), faults)
            continue
        names[one.name] = one.part.place
        if one.plugin.cli:
            commands[command_of(one.plugin)] = one.part.place
        usable.append(one)
    return tuple(sorted(usable, key=lambda one: (one.plugin.order, one.name)))
