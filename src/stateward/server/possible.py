"""What may be done in a state by somebody, and why the rest may not: the table, read for one caller."""

from collections.abc import Iterator

from msgspec import Struct

from stateward.lifecycle import Lifecycle, Move, decide
from stateward.lifecycle.moves import Allowed


class Possible(Struct, frozen=True):
    """Something that can be asked for: allowed as it is or not, what it needs, and where it leads."""

    event: str
    allowed: bool
    why_not: str | None
    needs: list[str]
    target: str | None
    desired: str | None
    within: float | None


def possible(lifecycle: Lifecycle, state: str, actor: str, origin: str | None) -> list[Possible]:
    """Return what an actor can ask for, in the order of the table; `origin` is where the work under way began."""
    if actor not in lifecycle.actors:
        why = f"{lifecycle.kind} knows no {actor}"
        return [Possible(event, False, why, [], None, None, None) for event in lifecycle.actions]
    mine = (move.event for move in lifecycle.every_move() if move.actor == actor)
    events = dict.fromkeys((*lifecycle.actions, *mine))
    return [one for event in events for one in _ways(lifecycle, state, event, actor, origin)]


def _ways(lifecycle: Lifecycle, state: str, event: str, actor: str, origin: str | None) -> Iterator[Possible]:
    lines = [one for one in lifecycle.allowed[state] if one.event == event and actor in one.actors]
    fits = [one for one in lines if _leads(lifecycle, state, one, actor, origin)]
    for line in fits:
        why = f"it needs {', '.join(line.needs)}" if line.needs else None
        desired = None if line.desired is None else line.desired.word
        yield Possible(event, why is None, why, list(line.needs), line.target.word, desired, line.within)
    if not fits:
        why = str(decide(lifecycle, state, event, actor, origin=origin))
        yield Possible(event, False, why, [], None, None, None)


def _leads(lifecycle: Lifecycle, state: str, line: Allowed, actor: str, origin: str | None) -> bool:
    """Tell whether a line of the table is the one that counts when its needs are met."""
    verdict = decide(lifecycle, state, line.event, actor, frozenset(line.needs), origin)
    return isinstance(verdict, Move) and (verdict.target, verdict.needs) == (line.target, frozenset(line.needs))
