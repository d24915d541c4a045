"""The domains there are. Upper floors learn of them here and nowhere else; a new domain adds one line."""

from msgspec import Struct

from stateward.domains import edge, leases, mci, ovc, systems
from stateward.errors import UnknownName
from stateward.lifecycle import Lifecycle

DOMAINS = (mci, edge, ovc, leases, systems)

_KINDS: dict[str, Lifecycle] = {lifecycle.kind: lifecycle for domain in DOMAINS for lifecycle in domain.LIFECYCLES}


def lifecycles() -> tuple[Lifecycle, ...]:
    """Return every declared lifecycle, domain by domain."""
    return tuple(_KINDS.values())


def sections() -> dict[str, type[Struct]]:
    """Return the settings of the domains that have some, by the prefix of their names."""
    return {domain.__name__.rpartition(".")[2]: domain.SETTINGS for domain in DOMAINS if hasattr(domain, "SETTINGS")}


def lifecycle_of(kind: str) -> Lifecycle:
    """Return the lifecycle of a kind, or raise with the kinds that exist."""
    try:
        return _KINDS[kind]
    except KeyError:
        raise UnknownName("kind", kind, _KINDS) from None
