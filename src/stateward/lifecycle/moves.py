"""What a decision yields: a Move, or a Refusal that says why not and what would be allowed."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct

from stateward.lifecycle.actors import Actor, Actors
from stateward.lifecycle.rows import BEGINNINGS, Meaning
from stateward.lifecycle.states import State, StateClass, States

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
        plain = (one.event for one in self.allowed if actor in one.actors and not one.needs)
        return tuple(dict.fromkeys(event for event in plain if event != self.event))

    def allowed_with_facts(self, actor: str) -> dict[str, tuple[str, ...]]:
        """Return the events that the actor may bring about with further facts only, each with the fewest it takes."""
        found: dict[str, tuple[str, ...]] = {}
        for one in self.allowed:
            if one.needs and actor in one.actors and one.event not in self.allowed_to(actor):
                found[one.event] = min(found.get(one.event, one.needs), one.needs, key=len)
        return found

    def __str__(self) -> str:
        return f"{self.event!r} by {self.actor} is refused: {self.kind} is {self.state}, {_WHY[self.reason](self)}"


def _possible(refusal: Refusal) -> str:
    allowed, conditional = refusal.allowed_to(refusal.actor), refusal.allowed_with_facts(refusal.actor)
    plain = f"may now: {', '.join(allowed)}" if allowed else "may do nothing now"
    facts = dict.fromkeys(conditional.values())
    more = [
        f"; with {'+'.join(one)}: {', '.join(e for e, needs in conditional.items() if needs == one)}" for one in facts
    ]
    return f"the {refusal.actor} {plain}{''.join(more)}"


_WHY: dict[RefusalCode, Callable[[Refusal], str]] = {
    RefusalCode.IN_TRANSITION: lambda r: f"which is transitional; {_possible(r)}",
    RefusalCode.FINAL_STATE: lambda _: "which is final",
    RefusalCode.NOT_FROM_HERE: lambda r: f"and it is possible only from {'/'.join(r.sources)}; {_possible(r)}",
    RefusalCode.NOT_YOURS: lambda r: f"where only the {'/'.join(r.may)} may do that",
    RefusalCode.NEEDS_FACT: lambda r: f"where that needs {', '.join(r.missing)}",
    RefusalCode.OTHER_ORIGIN: lambda r: f"and where that leads depends on where the work began: {'/'.join(r.sources)}",
}
