"""The design's own two names, TRANSITION_STATES and validate_transition, as `stateward.compat` has them."""

from stateward.domains.ovc.model import OBJECT_TYPES, TRANSITION_STATES
from stateward.errors import UnknownName
from stateward.lifecycle.decide import actions_between

__all__ = ["OBJECT_TYPES", "TRANSITION_STATES", "validate_transition"]


def validate_transition(object_type: str, init_state: str, desired_state: str, through: str | None = None) -> bool:
    """Tell whether an object may be brought from one static state to another; False for states that it does not have.

    Several transitions can lead from one state to the same (RUNNING to RUNNING by a reboot, a reset, a new disk);
    `through` names the action or the transition state, to ask about that one alone.
    """
    if object_type not in OBJECT_TYPES:
        raise UnknownName("object type", object_type, OBJECT_TYPES)
    try:
        ways = actions_between(OBJECT_TYPES[object_type], init_state, desired_state)
    except UnknownName:
        return False
    return any(through is None or through in (way.event, way.target) for way in ways)
