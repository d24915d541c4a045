"""A lifecycle as plain data, for everything that speaks JSON."""

from msgspec import Struct

from stateward.lifecycle.declaration import Fault
from stateward.lifecycle.moves import AllowedEvent
from stateward.lifecycle.rows import Row
from stateward.lifecycle.states import Back, State
from stateward.lifecycle.table import Lifecycle

BACK_WORD = "(back)"


class StateInfo(Struct, frozen=True):
    """A state: its word, its class, what it means."""

    state: str
    state_class: str
    about: str


class RowInfo(Struct, frozen=True):
    """A row as it was declared."""

    meaning: str
    sources: list[str]
    event: str
    actors: list[str]
    via: str | None
    to: str
    error: str | None
    within: float | None
    needs: list[str]


class LifecycleInfo(Struct, frozen=True):
    """A whole lifecycle."""

    kind: str
    about: str
    initial: str
    actors: list[str]
    actions: list[str]
    states: list[StateInfo]
    rows: list[RowInfo]


class AllowedInfo(Struct, frozen=True):
    """One thing that may happen in a state."""

    event: str
    actors: list[str]
    target: str
    meaning: str
    desired: str | None
    error: str | None
    within: float | None
    needs: list[str]
    origins: list[str]


class FaultInfo(Struct, frozen=True):
    """One thing that is wrong with a lifecycle."""

    kind: str
    code: str
    detail: str
    state: str | None
    row: str | None


def describe(lifecycle: Lifecycle) -> LifecycleInfo:
    """Return a lifecycle as plain data."""
    return LifecycleInfo(
        kind=lifecycle.kind,
        about=lifecycle.declaration.about,
        initial=lifecycle.initial.word,
        actors=list(map(str, lifecycle.actors)),
        actions=list(lifecycle.actions),
        states=[StateInfo(state.word, str(state.state_class), state.about) for state in lifecycle.states],
        rows=[describe_row(row) for row in lifecycle.rows],
    )


def describe_row(row: Row) -> RowInfo:
    """Return a row as plain data."""
    return RowInfo(
        meaning=str(row.meaning),
        sources=_words(row.sources),
        event=row.event,
        actors=_words(row.actors),
        via=_word(row.via),
        to=_word(row.to) or "",
        error=_word(row.error),
        within=row.within,
        needs=sorted(row.needs),
    )


def describe_allowed(allowed: AllowedEvent) -> AllowedInfo:
    """Return one allowed thing as plain data."""
    return AllowedInfo(
        event=allowed.event,
        actors=_words(allowed.actors),
        target=allowed.target.word,
        meaning=str(allowed.meaning),
        desired=_word(allowed.desired),
        error=_word(allowed.error),
        within=allowed.within,
        needs=list(allowed.needs),
        origins=_words(allowed.origins),
    )


def describe_fault(fault: Fault) -> FaultInfo:
    """Return a fault as plain data."""
    row = None if fault.row is None else str(fault.row)
    return FaultInfo(fault.kind, str(fault.code), fault.detail, _word(fault.state), row)


def _word(place: State | Back | None) -> str | None:
    if place is None:
        return None
    return BACK_WORD if isinstance(place, Back) else place.word


def _words(several: tuple[str, ...]) -> list[str]:
    return [str.__str__(word) for word in several]
