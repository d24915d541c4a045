"""On which node of a pool an instance runs: the one with the most room."""

from collections.abc import Mapping

from stateward.domains.systems.backends.port import NoRoom
from stateward.domains.systems.definition import NodePool


def node_names(name: str, pool: NodePool) -> list[str]:
    """Return the names of a pool's nodes."""
    return [f"{name}-{number}" for number in range(pool.nodes)]


def place(name: str, pool: NodePool, used: Mapping[str, int]) -> str:
    """Return the node for one more instance; `used` says how many each node has."""
    best = min(node_names(name, pool), key=lambda node: used.get(node, 0))
    if used.get(best, 0) >= pool.slots:
        raise NoRoom(name, pool.nodes, pool.slots)
    return best


def check_fits(name: str, pool: NodePool, used: Mapping[str, int]) -> None:
    """Raise where what runs on a pool would not fit once it has this size."""
    kept = set(node_names(name, pool))
    if any(count and (node not in kept or count > pool.slots) for node, count in used.items()):
        raise NoRoom(name, pool.nodes, pool.slots)
