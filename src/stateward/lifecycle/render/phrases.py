"""Texts that all drawings share: actors, durations, and groups of states."""

from collections.abc import Collection, Iterable

from stateward.lifecycle.actors import ADMIN, HEALER, USER, WORKER, Actor, Actors
from stateward.lifecycle.rows import DAY, HOUR, MINUTE
from stateward.lifecycle.states import FINAL, STABLE, TRANSITIONAL, State
from stateward.lifecycle.table import Lifecycle

IMPLIED = {USER: ADMIN, WORKER: HEALER}
"""The actor that may do all that another may, by that other one; only the latter is named."""

MIN_STATES_FOR_PHRASE = 4
"""From how many states on a phrase such as "any stable state" replaces their names."""

_UNITS = ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"))
_CLASSES = {
    frozenset({STABLE}): "any stable state",
    frozenset({TRANSITIONAL}): "any transitional state",
    frozenset({STABLE, TRANSITIONAL}): "any state not final",
}


def named_actors(actors: Iterable[Actor]) -> Actors:
    """Return the actors without those that another one implies."""
    given = tuple(dict.fromkeys(actors))
    implied = {IMPLIED[actor] for actor in given if actor in IMPLIED}
    return Actors(actor for actor in given if actor not in implied)


def format_duration(seconds: float | None) -> str:
    """Return a duration in its largest fitting unit."""
    if seconds is None:
        return ""
    fitting = ((seconds / unit, name) for unit, name in _UNITS if seconds >= unit and seconds % unit == 0)
    value, name = next(fitting, (seconds, "s"))
    return f"{value:g} {name}"


def common_phrase(lifecycle: Lifecycle, states: Collection[State]) -> str | None:
    """Return what many states have in common, such as "any stable state"; None if they are few, or differ."""
    if len(states) < MIN_STATES_FOR_PHRASE:
        return None
    others = [state for state in lifecycle.declaration.states if state not in states]
    if not others:
        return "any state"
    classes, other_classes = {state.state_class for state in states}, {state.state_class for state in others}
    if not classes & other_classes:
        return _CLASSES.get(frozenset(classes))
    missing = [state.word for state in others if state.state_class is not FINAL]
    return f"any but {', '.join(missing)}" if FINAL not in classes and len(missing) <= 2 else None


def join_states(lifecycle: Lifecycle, states: Collection[State]) -> str:
    """Return the phrase for several states, or their names."""
    return common_phrase(lifecycle, states) or ", ".join(state.word for state in states)
