"""Rows: the lines of a lifecycle's table, and the words to write them with.

A table is a tuple of rows, one per line, in the order of the seed's columns:

    action(RUNNING, "suspend", USER, SUSPENDING, SUSPENDED, FAILED, 10 * MINUTE)

Seven words make all rows. `action` and `request` begin something: the object enters a transitional state and is to
reach the desired one before the deadline. An action is worked by our own workers, so its endings (succeeded, failed,
timed out, cancelled) follow from the row itself. Another party carries out a request, or it has phases; its reports are
rows too: `step` (further, but not at the end), `success`, `failure`, and the clock's `timeout`. A step is also how a
state changes at once, with no work in between. `hidden` work (a migration) leaves the public state as it is.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from stateward.lifecycle.actors import CLOCK, Actor, Actors
from stateward.lifecycle.states import BACK, Back, State, States

SECOND = 1.0
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

SUCCEEDED = "succeeded"
FAILED = "failed"
TIMED_OUT = "timed out"
CANCELLED = "cancelled"
UNKNOWN = "unknown"

ENDINGS = frozenset({SUCCEEDED, FAILED, TIMED_OUT, CANCELLED, UNKNOWN})
"""The events that end an action: derived from its row, so no table writes them for it."""

FORCE = "force"
"""The fact that the caller insists: rows that need it pre-empt what is under way."""


class Meaning(StrEnum):
    """What a row is to the work on an object."""

    ACTION = "action"
    REQUEST = "request"
    HIDDEN = "hidden"
    STEP = "step"
    SUCCESS = "success"
    FAILURE = "failure"
    TIMEOUT = "timeout"
    CANCEL = "cancel"


BEGINNINGS = frozenset({Meaning.ACTION, Meaning.REQUEST, Meaning.HIDDEN})
"""The meanings of rows that begin work."""


class Row(Struct, frozen=True):
    """One line of a table: from these states, on this event by these actors, through `via` to `to`."""

    sources: States
    event: str
    actors: Actors
    via: State | None
    to: State | Back
    error: State | Back | None
    within: float | None
    needs: frozenset[str]
    meaning: Meaning

    def __str__(self) -> str:
        names = "/".join(map(str, self.sources))
        path = f" through {self.via}" if self.via else ""
        to = "back" if isinstance(self.to, Back) else self.to
        return f"{self.meaning} {names} -> {self.event!r} by {'/'.join(self.actors)}{path} to {to}"


Needs: TypeAlias = str | Iterable[str]


def _states(states: State | States) -> States:
    return States((states,)) if isinstance(states, State) else States(states)


def _actors(actors: Actor | Actors) -> Actors:
    return Actors((actors,)) if isinstance(actors, Actor) else Actors(actors)


def _needs(needs: Needs) -> frozenset[str]:
    return frozenset((needs,) if isinstance(needs, str) else needs)


def _row(
    meaning: Meaning,
    source: State | States,
    event: str,
    by: Actor | Actors,
    to: State | Back,
    needs: Needs,
    within: float | None = None,
    via: State | None = None,
    error: State | Back | None = None,
) -> Row:
    return Row(_states(source), event, _actors(by), via, to, error, within, _needs(needs), meaning)


def action(
    source: State | States,
    event: str,
    by: Actor | Actors,
    via: State,
    to: State | Back,
    error: State | Back,
    within: float,
    needs: Needs = (),
) -> Row:
    """Declare work that our workers do: its endings follow from this row."""
    return _row(Meaning.ACTION, source, event, by, to, needs, within, via, error)


def request(
    source: State | States,
    event: str,
    by: Actor | Actors,
    via: State,
    to: State | Back,
    error: State | Back,
    within: float,
    needs: Needs = (),
) -> Row:
    """Declare work that another party does, or that has phases: its reports are rows of their own."""
    return _row(Meaning.REQUEST, source, event, by, to, needs, within, via, error)


def hidden(source: State | States, event: str, by: Actor | Actors, within: float, needs: Needs = ()) -> Row:
    """Declare work that does not show in the object's state."""
    return _row(Meaning.HIDDEN, source, event, by, BACK, needs, within)


def step(
    source: State | States,
    event: str,
    by: Actor | Actors,
    to: State | Back,
    within: float | None = None,
    needs: Needs = (),
) -> Row:
    """Declare a change at once, or a report of progress; `within` where the new state is transitional."""
    return _row(Meaning.STEP, source, event, by, to, needs, within)


def success(source: State | States, event: str, by: Actor | Actors, to: State | Back, needs: Needs = ()) -> Row:
    """Declare the good ending of a transitional state."""
    return _row(Meaning.SUCCESS, source, event, by, to, needs)


def failure(source: State | States, event: str, by: Actor | Actors, to: State | Back, needs: Needs = ()) -> Row:
    """Declare the bad ending of a transitional state."""
    return _row(Meaning.FAILURE, source, event, by, to, needs)


def cancellation(source: State | States, event: str, by: Actor | Actors, to: State, needs: Needs = ()) -> Row:
    """Declare the ending of a transitional state that was cancelled."""
    return _row(Meaning.CANCEL, source, event, by, to, needs)


def timeout(source: State | States, to: State | Back, needs: Needs = ()) -> Row:
    """Declare where a transitional state goes when its deadline has passed."""
    return _row(Meaning.TIMEOUT, source, TIMED_OUT, CLOCK, to, needs)
