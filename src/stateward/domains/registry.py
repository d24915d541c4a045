"""The domains there are. Upper floors learn of them here and nowhere else; a new domain adds one line."""

from collections.abc import Callable

from stateward.domains import edge, leases, mci, ovc, systems
from stateward.domains.wing import Site, Wing, bare
from stateward.engine import Kind
from stateward.errors import UnknownName
from stateward.lifecycle import Lifecycle

DOMAINS = (mci, edge, ovc, leases, systems)

_KINDS: dict[str, Lifecycle] = {lifecycle.kind: lifecycle for domain in DOMAINS for lifecycle in domain.LIFECYCLES}


def lifecycles() -> tuple[Lifecycle, ...]:
    """Return every declared lifecycle, domain by domain."""
    return tuple(_KINDS.values())


def wings(site: Site, make: Callable[[Lifecycle], Kind] = Kind) -> list[Wing]:
    """Furnish all domains; `make` is how the kinds are made of one that has no wing of its own."""
    return [domain.wing(site) if hasattr(domain, "wing") else bare(domain.LIFECYCLES, make) for domain in DOMAINS]


def lifecycle_of(kind: str) -> Lifecycle:
    """Return the lifecycle of a kind, or raise with the kinds that exist."""
    try:
        return _KINDS[kind]
    except KeyError:
        raise UnknownName("kind", kind, _KINDS) from None
