"""The one place where it is decided whether a state may change.

`decide` is pure and does a single look-up in the compiled table; only a refusal takes the time to say why.
"""

from stateward.errors import UnknownName
from stateward.lifecycle.actors import Actor, Actors
from stateward.lifecycle.moves import NO_FACTS, AllowedEvent, Move, Refusal, RefusalCode
from stateward.lifecycle.rows import BEGINNINGS, Meaning
from stateward.lifecycle.states import FINAL, TRANSITIONAL, States
from stateward.lifecycle.table import Lifecycle


def decide(
    lifecycle: Lifecycle,
    state: str,
    event: str,
    actor: str,
    facts: frozenset[str] = NO_FACTS,
    origin: str | None = None,
) -> Move | Refusal:
    """Say what an event by an actor does to an object in a state, or why it may not happen.

    `facts` are the names of what is true of this request (such as force); `origin` is the state in which the work
    under way began, for endings that depend on it.
    """
    try:
        move: Move | None = lifecycle.moves[state, event, actor]
    except KeyError:
        return _refuse(lifecycle, state, event, actor, facts)
    while move is not None:
        if move.needs <= facts and (move.origin is None or move.origin == origin):
            return move
        move = move.otherwise
    return _refuse(lifecycle, state, event, actor, facts)


def _refuse(lifecycle: Lifecycle, word: str, event: str, name: str, facts: frozenset[str]) -> Refusal:
    state = lifecycle.state(word)
    sources = lifecycle.sources(event)
    actor = next((known for known in lifecycle.actors if known == name), None)
    if actor is None:
        raise UnknownName(f"actor of {lifecycle.kind}", name, lifecycle.actors)
    here = [allowed for allowed in lifecycle.allowed[state] if allowed.event == event]
    mine = [allowed for allowed in here if actor in allowed.actors]
    owners = dict.fromkeys(Actor(who) for _, action, who in lifecycle.moves if action == event)
    missing: tuple[str, ...] = ()
    if mine and all(set(allowed.needs) - facts for allowed in mine):
        reason = RefusalCode.NEEDS_FACT
        missing = min((tuple(sorted(set(allowed.needs) - facts)) for allowed in mine), key=len)
    elif mine:
        reason, sources = RefusalCode.OTHER_ORIGIN, States(state for allowed in mine for state in allowed.origins)
    elif here:
        reason = RefusalCode.NOT_YOURS
    elif state.state_class is TRANSITIONAL:
        reason = RefusalCode.IN_TRANSITION
    elif actor not in owners:
        reason = RefusalCode.NOT_YOURS
    elif state.state_class is FINAL:
        reason = RefusalCode.FINAL_STATE
    else:
        reason = RefusalCode.NOT_FROM_HERE
    return Refusal(
        kind=lifecycle.kind,
        state=state,
        state_class=state.state_class,
        event=event,
        actor=Actor(actor),
        reason=reason,
        allowed=lifecycle.allowed[state],
        may=Actors(dict.fromkeys(who for allowed in here for who in allowed.actors) or owners),
        missing=missing,
        sources=sources,
    )


MOVING_MEANINGS = (BEGINNINGS - {Meaning.HIDDEN}) | {Meaning.STEP}
"""The rows that bring an object from one state to another; hidden work leaves it where it is."""


def actions_between(lifecycle: Lifecycle, start: str, end: str) -> tuple[AllowedEvent, ...]:
    """Return what can be asked for in the first state that is to end in the second; raises on unknown states."""
    wanted = lifecycle.state(end)
    here = lifecycle.allowed[lifecycle.state(start)]
    return tuple(
        allowed
        for allowed in here
        if allowed.meaning in MOVING_MEANINGS and (allowed.desired or allowed.target) == wanted
    )


def is_end(lifecycle: Lifecycle, word: str) -> bool:
    """Return whether an object in this state has ended: the state is final, or the object does not exist in it."""
    state = lifecycle.state(word)
    return state.is_absent or state.state_class is FINAL


def undoing_actions(lifecycle: Lifecycle, before: str, after: str, actor: str) -> tuple[str, ...]:
    """Return the actions that lead an object back from the second state to the first, without further facts."""
    if before == after or is_end(lifecycle, after):
        return ()
    ways = actions_between(lifecycle, after, before)
    return tuple(dict.fromkeys(way.event for way in ways if actor in way.actors and not way.needs))
