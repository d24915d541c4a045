"""What a decision yields: a Move, or a Refusal that says why not and what would be allowed."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct

from stateward.lifecycle.actors import Actor, Actors
from stateward.lifecycle.rows import BEGINNINGS, Meaning
from stateward.lifecycle.states import State, States
from stateward.state_class import StateClass

NO_FACTS: frozenset[str] = frozenset()  # a request without facts


class Move(Struct, frozen=True):
    """One legal change of state, compiled from a row for one source, event and actor.

    `target` is the state that the object enters now; `desired` and `error` are where the work that begins is to end,
    and `within` how many seconds it has. A move with an `origin` holds only for work that started in that state.
    """

    source: State
    event: str
    actor: Actor
    target: State
    meaning: Meaning
    desired: State | None = None
    error: State | None = None
    within: float | None = None
    needs: frozenset[str] = NO_FACTS
    origin: State | None = None
    otherwise: Move | None = None

    @property
    def begins(self) -> bool:
        """Whether work begins with this move (rather than ends, or was never needed)."""
        return self.meaning in BEGINNINGS

    @property
    def preempts(self) -> bool:
        """Whether the work under way must be fenced off first: something begins in the middle of something else."""
        return self.begins and self.source.state_class is StateClass.TRANSITIONAL


class AllowedEvent(Struct, frozen=True):
    """One thing that may happen in a state: what, by whom, into what, and what it takes."""

    event: str
    actors: Actors
    target: State
    meaning: Meaning
    desired: State | None
    error: State | None
    within: float | None
    needs: tuple[str, ...]
    origins: States


class RefusalCode(StrEnum):
    """Why a move was refused, as a code."""

    IN_TRANSITION = "in_transition"
    FINAL_STATE = "final_state"
    NOT_FROM_HERE = "not_from_here"
    NOT_YOURS = "not_yours"
    NEEDS_FACT = "needs_fact"
    OTHER_ORIGIN = "other_origin"


class Refusal(Struct, frozen=True):
    """A move that may not be made now, with the facts that say why; its text is built from them."""

    kind: str
    state: State
    state_class: StateClass
    event: str
    actor: Actor
    reason: RefusalCode
    allowed: tuple[AllowedEvent, ...]
    may: Actors
    missing: tuple[str, ...]
    sources: States

    def allowed_to(self, actor: str) -> tuple[str, ...]:
        """Return the events that the actor may bring about in this state as it is; never the refused one."""
        plain = (allowed.event for allowed in self.allowed if actor in allowed.actors and not allowed.needs)
        return tuple(dict.fromkeys(event for event in plain if event != self.event))

    def allowed_with_facts(self, actor: str) -> dict[str, tuple[str, ...]]:
        """Return the events that the actor may bring about with further facts only, each with the fewest it takes."""
        facts: dict[str, tuple[str, ...]] = {}
        for allowed in self.allowed:
            if allowed.needs and actor in allowed.actors and allowed.event not in self.allowed_to(actor):
                facts[allowed.event] = min(facts.get(allowed.event, allowed.needs), allowed.needs, key=len)
        return facts

    def __str__(self) -> str:
        return _TEXTS[self.reason](self)


def _allowed(refusal: Refusal) -> str:
    allowed, conditional = refusal.allowed_to(refusal.actor), refusal.allowed_with_facts(refusal.actor)
    facts = dict.fromkeys(conditional.values())
    more = [
        f"; with {'+'.join(wanted)}: {', '.join(e for e, needs in conditional.items() if needs == wanted)}"
        for wanted in facts
    ]
    return f"allowed now: {', '.join(allowed) or 'nothing'}{''.join(more)}"


def _one_of(states: States) -> str:
    return ", ".join(states) if len(states) == 1 else f"one of {', '.join(states)}"


def _refused(refusal: Refusal, why: str) -> str:
    return f"{refusal.event!r} by {refusal.actor} is refused: {refusal.kind} is {refusal.state}{why}"


_TEXTS: dict[RefusalCode, Callable[[Refusal], str]] = {
    RefusalCode.IN_TRANSITION: lambda r: _refused(r, f", a transitional state; {_allowed(r)}"),
    RefusalCode.FINAL_STATE: lambda r: _refused(r, ", a final state"),
    RefusalCode.NOT_FROM_HERE: lambda r: _refused(r, f" and must be {_one_of(r.sources)}; {_allowed(r)}"),
    RefusalCode.NOT_YOURS: lambda r: _refused(
        r, f", {'where' if r.state in r.sources else 'and'} the action is for {' and '.join(r.may)} only"
    ),
    RefusalCode.NEEDS_FACT: lambda r: f"{r.event!r} needs {' and '.join(r.missing)} while {r.kind} is {r.state}",
    RefusalCode.OTHER_ORIGIN: lambda r: _refused(r, f"; the work must have begun in {_one_of(r.sources)}"),
}
