"""How much may be done at once at each provider: regions, and VMs in each of them, for the whole deployment."""

from collections.abc import Iterable

from msgspec import Struct

from stateward.domains.mci.model import Connection
from stateward.store.records import Lane, LaneGroup


class Limit(Struct, frozen=True):
    """So many regions at once, and so many VMs at once in each."""

    regions: int
    vms: int


LIMITS = {
    #                  regions  VMs
    "aws":       Limit(10,      30),
    "azure":     Limit(8,       25),
    "gcp":       Limit(12,      35),
    "alibaba":   Limit(6,       20),
    "ncp":       Limit(3,       15),
    "openstack": Limit(5,       15),
}  # fmt: skip
OTHERS = Limit(10, 30)


def limit_of(provider: str) -> Limit:
    """Return the limits of a provider."""
    return LIMITS.get(provider, OTHERS)


def lanes_of(connections: Iterable[Connection]) -> tuple[list[LaneGroup], list[Lane]]:
    """Return the groups and lanes that connections need."""
    places = {(one.provider, one.lane) for one in connections}
    groups = [LaneGroup(provider, limit_of(provider).regions) for provider in sorted({grp for grp, _ in places})]
    lanes = [Lane(lane, provider, limit_of(provider).vms, 0.0, 0.0, 0) for provider, lane in sorted(places)]
    return groups, lanes
