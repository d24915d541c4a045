"""Declarations: a lifecycle as it was written, before it is compiled, and the faults that can be seen in its rows.

What is wrong with a single row, or between two rows, is found here, and stops the declaration. What is wrong with the
graph as a whole (a state that nothing reaches, no way out in time) is found by `check`.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import combinations

from msgspec import Struct

from stateward.errors import StatewardError
from stateward.lifecycle.actors import ADMIN, CLOCK, HEALER, USER, WORKER, Actors, with_implied_actors
from stateward.lifecycle.rows import ENDINGS, Meaning, Row
from stateward.lifecycle.states import GONE, NEW, TRANSITIONAL, Back, State


class FaultCode(StrEnum):
    """What can be wrong with a lifecycle."""

    UNKNOWN_STATE = "unknown state"
    UNDECLARED_ACTOR = "undeclared actor"
    AMBIGUOUS = "ambiguous rows"
    CONTESTED = "contested by two actors"
    NOT_TRANSITIONAL = "goes through a state that is not transitional"
    NO_DEADLINE = "no deadline"
    BACK_INTO_TRANSITION = "back into a transitional state"
    BACK_FROM_REST = "back from a state in which nothing is under way"
    EMPTY_ROW = "empty row"
    UNREACHABLE = "unreachable state"
    DEAD_END = "dead end that is not final"
    NO_SUCCESS = "transitional state without a success exit"
    NO_FAILURE = "transitional state without an error exit"
    NO_TIMEOUT = "transitional state without a deadline exit"
    FINAL_WITH_EXIT = "final state with an exit"


class Fault(Struct, frozen=True):
    """One thing that is wrong, with the row or the state where it is."""

    kind: str
    code: FaultCode
    detail: str = ""
    state: State | None = None
    row: Row | None = None

    def __str__(self) -> str:
        where = f" at {self.state}" if self.state is not None else ""
        row = f" in row [{self.row}]" if self.row is not None else ""
        return f"{self.kind}: {self.code}{where}{row}{': ' if self.detail else ''}{self.detail}"


class DeclarationError(StatewardError):
    """A lifecycle that cannot be compiled; carries every fault that was found in its rows."""

    kind: str
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.faults))


class Declaration(Struct, frozen=True):
    """A lifecycle as data: its states, its rows, who acts in it, where it starts.

    `unknown` is the state for "nobody can say": where it is declared, an action that times out goes there instead of
    to its error outcome, because no answer is not an answer.
    """

    kind: str
    states: type[State]
    rows: tuple[Row, ...]
    actors: Actors
    initial: State = NEW
    unknown: State | None = None
    about: str = ""

    @property
    def all_actors(self) -> Actors:
        """The actors declared, and those that come with them."""
        crew = (WORKER, HEALER, CLOCK) if any(row.meaning is Meaning.ACTION for row in self.rows) else ()
        return Actors(dict.fromkeys((*with_implied_actors(self.actors), *crew)))

    def faults(self) -> tuple[Fault, ...]:
        """Return what is wrong within the rows and between them."""
        actors = self.all_actors
        alone = (fault for row in self.rows for fault in self._faults_of(row, actors))
        between = (fault for row, other in combinations(self.rows, 2) for fault in self._faults_between(row, other))
        return (*alone, *between)

    def _faults_of(self, row: Row, actors: Actors) -> Iterator[Fault]:
        if not row.sources or not row.event or not row.actors:
            yield Fault(self.kind, FaultCode.EMPTY_ROW, "a row has a source, an event and an actor", row=row)
        places = (*row.sources, row.via, row.to, row.error)
        for state in [place for place in places if isinstance(place, State)]:
            if state not in (*self.states, NEW, GONE) or (state == NEW and self.initial != NEW):
                yield Fault(
                    self.kind, FaultCode.UNKNOWN_STATE, f"{state} is not one of {self.states.__name__}", row=row
                )
        for actor in row.actors:
            if actor not in actors:
                yield Fault(
                    self.kind, FaultCode.UNDECLARED_ACTOR, f"{actor!s} is not one of {', '.join(actors)}", row=row
                )
        if row.via is not None and row.via.state_class is not TRANSITIONAL:
            yield Fault(self.kind, FaultCode.NOT_TRANSITIONAL, f"{row.via} is {row.via.state_class}", row=row)
        if row.meaning is Meaning.HIDDEN and not row.within:
            yield Fault(self.kind, FaultCode.NO_DEADLINE, "hidden work must end in time too", row=row)
        enters = row.via or row.to
        if isinstance(enters, State) and enters.state_class is TRANSITIONAL and not (row.within and row.within > 0):
            yield Fault(self.kind, FaultCode.NO_DEADLINE, f"{enters} is transitional: say within what time", row=row)
        if isinstance(row.to, Back) and row.meaning in REPORTS:
            for source in row.sources:
                if source.state_class is not TRANSITIONAL:
                    yield Fault(self.kind, FaultCode.BACK_FROM_REST, f"{source} is {source.state_class}", row=row)
        if row.via is not None and not (isinstance(row.to, State) and isinstance(row.error, State)):
            for source in row.sources:
                if source.state_class is TRANSITIONAL:
                    yield Fault(
                        self.kind, FaultCode.BACK_INTO_TRANSITION, f"{source} is no place to return to", row=row
                    )

    def _faults_between(self, row: Row, other: Row) -> Iterator[Fault]:
        for ending, action in ((row, other), (other, row)):
            if action.meaning is Meaning.ACTION and ending.event in ENDINGS and action.via in ending.sources:
                yield Fault(
                    self.kind, FaultCode.AMBIGUOUS, f"{ending.event!r} follows from [{action}] already", row=ending
                )
        shared = [state for state in row.sources if state in other.sources]
        if not shared:
            return
        if row.via is not None and _ends_differ(row, other):
            where = _overlap(shared, other)
            yield Fault(self.kind, FaultCode.AMBIGUOUS, f"the same work ends in two ways: {where}", row=row)
        if row.event != other.event or _told_apart(row.needs, other.needs):
            return
        if set(row.actors) & set(other.actors):
            yield Fault(self.kind, FaultCode.AMBIGUOUS, _overlap(shared, other), row=row)
        elif (row.via, row.to) != (other.via, other.to) and not _privileged(row, other):
            yield Fault(self.kind, FaultCode.CONTESTED, _overlap(shared, other), row=row)


REPORTS = (Meaning.STEP, Meaning.SUCCESS, Meaning.FAILURE, Meaning.CANCEL, Meaning.TIMEOUT)


def _overlap(shared: Iterable[State], other: Row) -> str:
    return f"{'/'.join(shared)} is in both it and [{other}]"


def _ends_differ(row: Row, other: Row) -> bool:
    """Return whether two actions that look the same while they run (one state, one origin) end differently."""
    both_actions = row.meaning is Meaning.ACTION and other.meaning is Meaning.ACTION
    return both_actions and row.via == other.via and (row.to, row.error) != (other.to, other.error)


def _told_apart(needs: frozenset[str], other: frozenset[str]) -> bool:
    """Return whether facts settle which of two rows is meant: one needs more, or their facts exclude each other."""
    nested = needs != other and (needs <= other or other <= needs)
    values = dict(fact.split("=", 1) for fact in needs if "=" in fact)
    exclusive = any(values.get(key, value) != value for key, _, value in (fact.partition("=") for fact in other))
    return nested or exclusive


def _privileged(row: Row, other: Row) -> bool:
    """Return whether one row is the user's and the other the administrator's own way of doing the same."""
    return {*row.actors, *other.actors} == {USER, ADMIN} and row.needs == other.needs
