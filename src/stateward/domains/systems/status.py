"""The state of a service: the first that matches, in the order of the design."""

from collections.abc import Sequence

from msgspec import Struct

from stateward.domains.systems.backends.port import Instance, Phase
from stateward.domains.systems.lifecycle import ServiceState


class Facts(Struct, frozen=True):
    """What is known of a service."""

    observed: bool  # its spec has been seen by whoever runs it
    overdue: bool  # it made no progress before its deadline
    ailing: bool  # an instance of the settled spec has crashed, or is not healthy any more
    provided: bool  # its node pool and its address are stable
    wanted: int
    found: int


def service_state(facts: Facts) -> ServiceState:
    """Return the state that follows from what is known."""
    if not facts.observed:
        return ServiceState.UPDATING
    if facts.overdue:
        return ServiceState.FAILED
    if facts.ailing:
        return ServiceState.DEGRADED
    if not facts.provided:
        return ServiceState.UPDATING
    if facts.found != facts.wanted:
        return ServiceState.SCALING
    return ServiceState.STABLE


def settled_facts(wanted: int, revision: str, seen: Sequence[Instance], *, provided: bool = True) -> Facts:
    """Return what is known of a service that nobody is changing."""
    present = [one for one in seen if one.present]
    ours = [one for one in present if one.revision == revision]
    ailing = any(one.phase is Phase.CRASHED or not one.ready for one in ours)
    return Facts(len(ours) == len(present), False, ailing, provided, wanted, len(ours))
