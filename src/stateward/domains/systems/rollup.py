"""The state of a system: what its services and node pools add up to, the most urgent first.

Jobs do not count. A system that is being initialised or deleted, or could not be initialised, does not follow its
services: its state is its own.
"""

from collections import Counter
from collections.abc import Iterable

from stateward.domains.systems.lifecycle import NodePoolState, ServiceState, SystemState
from stateward.errors import UnknownName
from stateward.lifecycle.rollup import first_present

V = ServiceState

# fmt: off
PRIORITIES = (
    # any service or node pool that is     makes the system
    ((V.FAILED, V.DEGRADED),               SystemState.DEGRADED),
    ((V.UPDATING, V.PENDING, V.DELETING),  SystemState.UPDATING),
    ((V.SCALING,),                         SystemState.SCALING),
)
# fmt: on
"""The words are those of services; node pools use the same ones."""

OWN = frozenset({SystemState.PENDING, SystemState.FAILED, SystemState.DELETING})
"""The states in which a system does not follow its services."""


def roll_up(services: Iterable[ServiceState], node_pools: Iterable[NodePoolState] = ()) -> SystemState:
    """Return the state that services and node pools add up to; with none of either, stable."""
    words = Counter[str](services)
    words.update(node_pools)
    for word in words.keys() - set(V):
        raise UnknownName("state of a service or node pool", word, V)  # or it would pass for stable
    return first_present(words, PRIORITIES, SystemState.STABLE)


def followed(
    system: SystemState, services: Iterable[ServiceState], node_pools: Iterable[NodePoolState] = ()
) -> SystemState:
    """Return the state that a system is to have now: its own where it has one, else what its parts add up to."""
    return system if system in OWN else roll_up(services, node_pools)
