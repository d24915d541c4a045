"""The state of a service by its facts, and the state of a system by its services and node pools (pure).

The first rule that matches decides. Jobs do not count. A system that is being initialised or deleted, or could not be
initialised, does not follow its services.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from stateward.domains.systems.backends.port import InstancePhase, ServiceInstance
from stateward.domains.systems.lifecycle import NodePoolState, ServiceState, SystemState
from stateward.errors import UnknownName
from stateward.lifecycle.rollup import first_present


class ServiceFacts(Struct, frozen=True):
    """The facts that decide the state of a service."""

    observed: bool  # all its instances have the present spec
    overdue: bool  # no progress before its deadline
    has_unhealthy: bool  # an instance of the present spec has crashed or is not ready
    dependencies_stable: bool  # its node pool and its address are stable
    wanted: int
    found: int


def service_state(facts: ServiceFacts) -> ServiceState:
    """Return the state of a service: the first rule that matches."""
    if not facts.observed:
        return ServiceState.UPDATING
    if facts.overdue:
        return ServiceState.FAILED
    if facts.has_unhealthy:
        return ServiceState.DEGRADED
    if not facts.dependencies_stable:
        return ServiceState.UPDATING
    if facts.found != facts.wanted:
        return ServiceState.SCALING
    return ServiceState.STABLE


AILING = frozenset({InstancePhase.CRASHED, InstancePhase.UNKNOWN})


def facts_at_rest(
    wanted: int, revision: str, seen: Sequence[ServiceInstance], *, provided: bool = True
) -> ServiceFacts:
    """Return the facts of a service that no operation is at work on."""
    present = [instance for instance in seen if instance.is_wanted]
    ours = [instance for instance in present if instance.is_current(revision)]
    ailing = any(instance.phase in AILING or not instance.ready for instance in ours)
    return ServiceFacts(len(ours) == len(present), False, ailing, provided, wanted, len(ours))


V = ServiceState

# fmt: off
PRIORITIES = (
    # any service or node pool that is     makes the system
    ((V.FAILED, V.DEGRADED),               SystemState.DEGRADED),
    ((V.UPDATING, V.PENDING, V.DELETING),  SystemState.UPDATING),
    ((V.SCALING,),                         SystemState.SCALING),
)
# fmt: on
"""The states of services; node pools use the same words."""

OWN_STATES = frozenset({SystemState.PENDING, SystemState.FAILED, SystemState.DELETING})
"""The states in which a system does not follow its services."""


def roll_up(services: Iterable[ServiceState], node_pools: Iterable[NodePoolState] = ()) -> SystemState:
    """Return the state that services and node pools add up to; with none of either, stable."""
    words = Counter[str](services)
    words.update(node_pools)
    for word in words.keys() - set(V):
        raise UnknownName("state of a service or node pool", word, V)  # or it would pass for stable
    return first_present(words, PRIORITIES, SystemState.STABLE)


def system_state(
    system: SystemState, services: Iterable[ServiceState], node_pools: Iterable[NodePoolState] = ()
) -> SystemState:
    """Return the state that a system should have: its own in `OWN_STATES`, else the roll-up of its parts."""
    return system if system in OWN_STATES else roll_up(services, node_pools)
