"""The seed's own two names, derived from the tables: TRANSITION_STATES and validate_transition."""

from stateward.domains.ovc.lifecycle import LIFECYCLES
from stateward.errors import UnknownName
from stateward.lifecycle import TRANSITIONAL, Lifecycle
from stateward.lifecycle.ways import ways

TRANSITION_STATES: tuple[str, ...] = tuple(
    dict.fromkeys(
        state.word
        for lifecycle in LIFECYCLES
        for state in lifecycle.declaration.states
        if state.state_class is TRANSITIONAL
    )
)
"""Every transition state of any object; all other states are static."""

OBJECT_TYPES: dict[str, Lifecycle] = {lifecycle.kind.removeprefix("ovc."): lifecycle for lifecycle in LIFECYCLES}


def validate_transition(object_type: str, init_state: str, desired_state: str, through: str | None = None) -> bool:
    """Tell whether an object may be brought from one static state to another; False for states that it does not have.

    Several transitions can lead from one state to the same (RUNNING to RUNNING by a reboot, a reset, a new disk);
    `through` names the action or the transition state, to ask about that one alone.
    """
    if object_type not in OBJECT_TYPES:
        raise UnknownName("object type", object_type, OBJECT_TYPES)
    try:
        found = ways(OBJECT_TYPES[object_type], init_state, desired_state)
    except UnknownName:
        return False
    return any(through is None or through in (way.event, way.target) for way in found)
