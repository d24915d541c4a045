"""A declared row as the cells of a table, for Markdown and for the terminal alike."""

from collections.abc import Iterator
from typing import TypeAlias

from stateward.lifecycle.render.phrases import common, named_actors, span
from stateward.lifecycle.rows import Meaning, Row
from stateward.lifecycle.states import Back, State
from stateward.lifecycle.table import Lifecycle

Part: TypeAlias = State | str
Cell: TypeAlias = tuple[Part, ...]
"""What stands in a cell, separated by commas: states, which a terminal can colour, or words."""

COLUMNS = ("From", "Action or event", "By", "Through", "To", "On error", "Within", "Needs")
STATE_COLUMNS = ("State", "Class", "About")


def row_cells(lifecycle: Lifecycle, row: Row) -> tuple[Cell, ...]:
    """Return a row's cells in the order of the columns."""
    phrase = common(lifecycle, row.sources)
    return (
        (phrase,) if phrase else tuple(row.sources),
        (row.event,),
        tuple(named_actors(row.actors)),
        (row.via,) if row.via is not None else (),
        ("stays",) if row.meaning is Meaning.HIDDEN else _place(row.to),
        _place(row.error),
        (span(row.within),) if row.within is not None else (),
        tuple(sorted(row.needs)),
    )


def state_cells(lifecycle: Lifecycle) -> Iterator[tuple[Cell, ...]]:
    """Return the cells of every declared state."""
    return (((state,), (state.state_class.value,), (state.about,)) for state in lifecycle.declaration.states)


def _place(place: State | Back | None) -> Cell:
    if place is None:
        return ()
    return ("back",) if isinstance(place, Back) else (place,)
