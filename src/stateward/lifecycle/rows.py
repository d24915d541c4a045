"""Rows: the lines of a lifecycle's table, and the words to write them with.

A table is a tuple of rows, one per line, in the order of the seed's columns:

    action(RUNNING, "suspend", USER, SUSPENDING, SUSPENDED, FAILED, 10 * MINUTE)

Seven words make all rows. `action` and `request` begin something: the object enters a transitional state and is to
reach the desired one before the deadline. An action is worked by our own workers, so its endings (succeeded, failed,
timed out, cancelled) follow from the row itself. Another party carries out a request, or it has phases; its reports are
rows too: `step` (further, but not at the end), `success`, `failure`, and the clock's `timeout`. A step is also how a
state changes at once, with no work in between. `hidden` work (a migration) leaves the public state as it is.

A row can also be written with names. The event comes first, and the user is the actor unless `by` names another:

    action("suspend", source=RUNNING, through=SUSPENDING, to=SUSPENDED, within=10 * MINUTE)
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeAlias, overload

from msgspec import Struct

from stateward.errors import StatewardError
from stateward.lifecycle.actors import CLOCK, USER, Actor, Actors
from stateward.lifecycle.states import BACK, Back, State, States

SECOND = 1.0  # the unit of all spans of time
MINUTE = 60 * SECOND  # sixty seconds
HOUR = 60 * MINUTE  # sixty minutes
DAY = 24 * HOUR  # 24 hours

SUCCEEDED = "succeeded"  # the work of an action is done
FAILED = "failed"  # it could not be done
TIMED_OUT = "timed out"  # its deadline has passed
CANCELLED = "cancelled"  # it was stopped, with the proof that it was not done
UNKNOWN = "unknown"  # nobody knows whether it was done

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
From: TypeAlias = State | States
By: TypeAlias = Actor | Actors
To: TypeAlias = State | Back


class MalformedRow(StatewardError):
    """A row that cannot be read: a cell is missing, is given twice, or is not one of its word."""

    row: str
    problem: str
    text = "{row}: {problem}"


CELLS: dict[Meaning, tuple[str, ...]] = {
    Meaning.ACTION: ("source", "event", "by", "through", "to", "error", "within", "needs"),
    Meaning.REQUEST: ("source", "event", "by", "through", "to", "error", "within", "needs"),
    Meaning.HIDDEN: ("source", "event", "by", "within", "needs"),
    Meaning.STEP: ("source", "event", "by", "to", "within", "needs"),
    Meaning.SUCCESS: ("source", "event", "by", "to", "needs"),
    Meaning.FAILURE: ("source", "event", "by", "to", "needs"),
    Meaning.CANCEL: ("source", "event", "by", "to", "needs"),
    Meaning.TIMEOUT: ("source", "to", "needs"),
}
"""The cells of a row in the order of a table's columns."""

WORDS = {Meaning.CANCEL: "cancellation"}
"""The words of rows that differ from the meaning."""

_OPTIONAL: Mapping[str, Any] = {"needs": (), "within": None}
_DEFAULTS: Mapping[str, Any] = {"by": USER, "error": BACK, **_OPTIONAL}
"""What a row may leave out if it is written with names and is no report; other rows may only leave out `_OPTIONAL`."""


def _row(meaning: Meaning, cells: tuple[Any, ...], named: dict[str, Any]) -> Row:
    """Read a row of either form: cells in the order of the columns, or the event and names."""
    names, row = CELLS[meaning], _as_written(meaning, cells, named)
    has_names = bool(cells) and isinstance(cells[0], str) and not isinstance(cells[0], State)
    if has_names and len(cells) > 1:
        raise MalformedRow(row, "after the event, the cells are written with names; in a table, the states come first")
    given = dict(zip(("event",) if has_names else names, cells, strict=False))
    if len(cells) > len(names):
        raise MalformedRow(row, f"a row has at most {len(names)} cells: {', '.join(names)}")
    for name in named:
        if name in given:
            raise MalformedRow(row, f"{name} is given twice")
        if name not in names:
            raise MalformedRow(row, f"there is no {name}; a row has {', '.join(names)}")
    is_report = meaning not in BEGINNINGS and meaning is not Meaning.STEP
    values = {**(_DEFAULTS if has_names and not is_report else _OPTIONAL), **given, **named}
    needs_deadline = meaning in BEGINNINGS and values["within"] is None
    missing = [name for name in names if name not in values or (name == "within" and needs_deadline)]
    if missing:
        raise MalformedRow(row, f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    own = {name: values[name] for name in names}
    for name in ("source", "through", "to", "error"):
        if name in own and not _is_place(own[name], name):
            raise MalformedRow(row, f"{name} must be {PLACES[name]}")
    states = own["source"]
    actors = own.get("by", CLOCK)
    needs = own["needs"]
    return Row(
        States((states,)) if isinstance(states, State) else States(states),
        own.get("event", TIMED_OUT),
        Actors((actors,)) if isinstance(actors, Actor) else Actors(actors),
        own.get("through"),
        own.get("to", BACK),
        own.get("error"),
        own.get("within"),
        frozenset((needs,) if isinstance(needs, str) else needs),
        meaning,
    )


PLACES = {"source": "a state, or states joined with |", "through": "a state"} | dict.fromkeys(
    ("to", "error"), "a state, or BACK"
)
"""What the cells of places must be."""


def _is_place(value: Any, cell: str) -> bool:  # noqa: ANN401 - whatever was written there
    if cell == "source" and isinstance(value, tuple):
        return all(isinstance(state, State) for state in value)
    return isinstance(value, State) or (cell in ("to", "error") and isinstance(value, Back))


def _as_written(meaning: Meaning, cells: tuple[Any, ...], named: dict[str, Any]) -> str:
    """Return a row as it was written, for an error."""
    texts = [*map(_cell, cells), *(f"{name}={_cell(value)}" for name, value in named.items())]
    return f"{WORDS.get(meaning, meaning.value)}({', '.join(texts)})"


def _cell(value: Any) -> str:  # noqa: ANN401 - whatever was written there
    if isinstance(value, tuple):
        return "|".join(map(_cell, value))
    if isinstance(value, Back):
        return "BACK"
    return str(value) if isinstance(value, State | Actor) else repr(value)


@overload
def action(
    source: From, event: str, by: By, through: State, to: To, error: To, within: float, needs: Needs = ()
) -> Row: ...
@overload
def action(
    event: str,
    /,
    *,
    source: From,
    through: State,
    to: To,
    within: float,
    by: By = ...,
    error: To = ...,
    needs: Needs = (),
) -> Row: ...
def action(*cells: Any, **named: Any) -> Row:
    """Declare work that our workers do: its endings follow from this row."""
    return _row(Meaning.ACTION, cells, named)


@overload
def request(
    source: From, event: str, by: By, through: State, to: To, error: To, within: float, needs: Needs = ()
) -> Row: ...
@overload
def request(
    event: str,
    /,
    *,
    source: From,
    through: State,
    to: To,
    within: float,
    by: By = ...,
    error: To = ...,
    needs: Needs = (),
) -> Row: ...
def request(*cells: Any, **named: Any) -> Row:
    """Declare work that another party does, or that has phases: its reports are rows of their own."""
    return _row(Meaning.REQUEST, cells, named)


@overload
def hidden(source: From, event: str, by: By, within: float, needs: Needs = ()) -> Row: ...
@overload
def hidden(event: str, /, *, source: From, within: float, by: By = ..., needs: Needs = ()) -> Row: ...
def hidden(*cells: Any, **named: Any) -> Row:
    """Declare work that does not show in the object's state."""
    return _row(Meaning.HIDDEN, cells, named)


@overload
def step(source: From, event: str, by: By, to: To, within: float | None = None, needs: Needs = ()) -> Row: ...
@overload
def step(
    event: str, /, *, source: From, to: To, by: By = ..., within: float | None = None, needs: Needs = ()
) -> Row: ...
def step(*cells: Any, **named: Any) -> Row:
    """Declare a change at once, or a report of progress; `within` where the new state is transitional."""
    return _row(Meaning.STEP, cells, named)


@overload
def success(source: From, event: str, by: By, to: To, needs: Needs = ()) -> Row: ...
@overload
def success(event: str, /, *, source: From, by: By, to: To, needs: Needs = ()) -> Row: ...
def success(*cells: Any, **named: Any) -> Row:
    """Declare the good ending of a transitional state."""
    return _row(Meaning.SUCCESS, cells, named)


@overload
def failure(source: From, event: str, by: By, to: To, needs: Needs = ()) -> Row: ...
@overload
def failure(event: str, /, *, source: From, by: By, to: To, needs: Needs = ()) -> Row: ...
def failure(*cells: Any, **named: Any) -> Row:
    """Declare the bad ending of a transitional state."""
    return _row(Meaning.FAILURE, cells, named)


@overload
def cancellation(source: From, event: str, by: By, to: State, needs: Needs = ()) -> Row: ...
@overload
def cancellation(event: str, /, *, source: From, by: By, to: State, needs: Needs = ()) -> Row: ...
def cancellation(*cells: Any, **named: Any) -> Row:
    """Declare the ending of a transitional state that was cancelled."""
    return _row(Meaning.CANCEL, cells, named)


def timeout(source: From, to: To, needs: Needs = ()) -> Row:
    """Declare where a transitional state goes when its deadline has passed."""
    return _row(Meaning.TIMEOUT, (source, to, needs), {})
