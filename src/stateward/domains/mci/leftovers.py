"""Leftovers: subnets that a provider shows within a network of ours, and that the network's record does not want.

A change of a network that timed out is taken back, but nobody knows what became of its last call: the subnet may have
been made all the same. No VM can stand in it, for no record names it. The network is shaped once more into what its
record says, and that takes it away.
"""

from collections.abc import Collection, Iterable

from stateward.domains.mci.lifecycle import VNET, PartState
from stateward.domains.mci.model import NetworkSpec, network_of, part_seen, subnet_key
from stateward.drivers import CloudResource, ResourceKind
from stateward.store.records import Object

TRY_AGAIN = 600.0
"""How many seconds pass before a leftover is tried again that would not go."""


def leftovers(network: NetworkSpec, native: str, shown: Iterable[CloudResource]) -> list[CloudResource]:
    """Return the subnets within a network that it is not to have."""
    wanted = {subnet_key(network.uid, one.name) for one in network.subnets}
    return [
        one
        for one in shown
        if one.kind is ResourceKind.SUBNET
        and native
        and one.within == native
        and one.key.startswith(subnet_key(network.uid, ""))
        and one.key not in wanted
    ]


class Leftovers:
    """Finds networks that have leftovers, and lets each rest a while when they would not go."""

    def __init__(self) -> None:
        self._tried: dict[str, float] = {}  # keys of subnets, and when their network was last reshaped for them

    def find(self, networks: Iterable[Object], shown: Collection[CloudResource], now: float) -> list[Object]:
        """Return the networks at rest that are to be reshaped now."""
        self._tried = {key: at for key, at in self._tried.items() if now - at < TRY_AGAIN}
        return [one for one in networks if self._is_due(one, shown, now)]

    def _is_due(self, found: Object, shown: Collection[CloudResource], now: float) -> bool:
        if found.kind != VNET.kind or found.state != PartState.AVAILABLE:
            return False
        left = leftovers(network_of(found), part_seen(found).native_id, shown)
        keys = [one.key for one in left if one.key not in self._tried]
        self._tried.update(dict.fromkeys(keys, now))
        return bool(keys)
