"""The registry of domains: their lifecycles, settings, commands, plug-ins and examples.

Packages above the domains (server, command line) find a domain here and nowhere else. A new domain adds its name to
`DOMAINS` and to the import above it.

A client of the tables alone (the command line, the documentation) must not wait for the engine and the web framework,
so plug-ins are imported only when `load_plugins` is called, and a domain's commands when one of them is called.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from stateward.domains import edge, leases, mci, ovc, systems
from stateward.errors import UnknownName
from stateward.lifecycle import Lifecycle

if TYPE_CHECKING:
    from stateward.domains.plugin import DomainPlugin, ProcessContext

DOMAINS = (mci, edge, ovc, leases, systems)
DOMAINS_BY_NAME = {domain.__name__.rpartition(".")[2]: domain for domain in DOMAINS}

_KINDS: dict[str, Lifecycle] = {lifecycle.kind: lifecycle for domain in DOMAINS for lifecycle in domain.LIFECYCLES}


def lifecycles() -> tuple[Lifecycle, ...]:
    """Return every declared lifecycle, domain by domain."""
    return tuple(_KINDS.values())


def sections() -> dict[str, type[Struct]]:
    """Return the settings of the domains that have some, by the prefix of their names."""
    return {name: domain.SETTINGS for name, domain in DOMAINS_BY_NAME.items() if hasattr(domain, "SETTINGS")}


def command_lines() -> dict[str, str]:
    """Return where the commands of the domains are (`module:application`), by the names of their commands."""
    return {domain.COMMAND: f"{domain.__name__}.cli:app" for domain in DOMAINS if hasattr(domain, "COMMAND")}


def lifecycle_of(kind: str) -> Lifecycle:
    """Return the lifecycle of a kind, or raise with the kinds that exist."""
    try:
        return _KINDS[kind]
    except KeyError:
        raise UnknownName("kind", kind, _KINDS) from None


def load_plugins(context: "ProcessContext") -> "list[DomainPlugin]":
    """Create the plug-in of every domain, by `create_plugin(context)` in the domain's module `plugin`."""
    return [import_module(f"{domain.__name__}.plugin").create_plugin(context) for domain in DOMAINS]


def load_examples() -> dict[str, Any]:
    """Return examples of request bodies, by the published name of the record: `EXAMPLES` in a module `examples`."""
    return _collect("EXAMPLES")


def load_published_names() -> dict[str, str]:
    """Return the names of records in the OpenAPI document that differ from those in the code: `PUBLISHED_NAMES`."""
    return _collect("PUBLISHED_NAMES")


def _collect(attribute: str) -> dict[str, Any]:
    """Return the entries of a dictionary that a domain's module `examples` may have, of all domains."""
    modules = (f"{domain.__name__}.examples" for domain in DOMAINS)
    found = (getattr(import_module(module), attribute, {}) for module in modules if find_spec(module) is not None)
    return {name: value for entries in found for name, value in entries.items()}
