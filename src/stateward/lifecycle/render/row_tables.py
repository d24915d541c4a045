"""A lifecycle as tables of rows and states: for terminals, with a colour for each class of states, and in Markdown."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from stateward.lifecycle.render.phrases import common_phrase, format_duration, named_actors
from stateward.lifecycle.rows import Meaning, Row
from stateward.lifecycle.states import FINAL, STABLE, TRANSITIONAL, Back, State
from stateward.lifecycle.table import Lifecycle

if TYPE_CHECKING:  # servers only write Markdown, and must not wait for the library that draws
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

Part: TypeAlias = State | str
Cell: TypeAlias = tuple[Part, ...]
"""The parts of a cell, shown with commas: states, which a terminal can colour, or words."""

COLUMNS = ("From", "Action or event", "By", "Through", "To", "On error", "Within", "Needs")
STATE_COLUMNS = ("State", "Class", "About")


def row_cells(lifecycle: Lifecycle, row: Row) -> tuple[Cell, ...]:
    """Return a row's cells in the order of the columns."""
    phrase = common_phrase(lifecycle, row.sources)
    return (
        (phrase,) if phrase else tuple(row.sources),
        (row.event,),
        tuple(named_actors(row.actors)),
        (row.via,) if row.via is not None else (),
        ("stays",) if row.meaning is Meaning.HIDDEN else _target_cell(row.to),
        _target_cell(row.error),
        (format_duration(row.within),) if row.within is not None else (),
        tuple(sorted(row.needs)),
    )


def state_cells(lifecycle: Lifecycle) -> Iterator[tuple[Cell, ...]]:
    """Return the cells of every declared state."""
    return (((state,), (state.state_class.value,), (state.about,)) for state in lifecycle.declaration.states)


def _target_cell(place: State | Back | None) -> Cell:
    if place is None:
        return ()
    return ("back",) if isinstance(place, Back) else (place,)


COLOURS = {STABLE: "green", TRANSITIONAL: "yellow", FINAL: "blue"}


def text(lifecycle: Lifecycle) -> "Group":
    """Return the tables of a lifecycle for Rich."""
    from rich.console import Group
    from rich.text import Text

    rows = _rich_table(COLUMNS, [row_cells(lifecycle, row) for row in lifecycle.rows])
    return Group(Text(lifecycle.kind, style="bold"), rows, _rich_table(STATE_COLUMNS, list(state_cells(lifecycle))))


def colour_state(state: State) -> "Text":
    """Return a state's word in the colour of its class."""
    from rich.text import Text

    return Text(state.word, style=COLOURS[state.state_class])


def _rich_table(titles: tuple[str, ...], rows: list[tuple[Cell, ...]]) -> "Table":
    """Return a table for Rich, without empty columns."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    used = [n for n in range(len(titles)) if any(any(row[n]) for row in rows)]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for n in used:
        table.add_column(titles[n], overflow="fold")  # no name is cut, however narrow the terminal is
    for row in rows:
        table.add_row(*(_rich_cell(row[n]) for n in used))
    return table


def _rich_cell(cell: Iterable[Part]) -> "Text":
    from rich.text import Text

    return Text(", ").join(colour_state(part) if isinstance(part, State) else Text(part) for part in cell)


_SPECIAL = str.maketrans(
    {sign: f"\\{sign}" for sign in "\\`*_~[]|#"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\n": " ", "\r": " "}
)


def markdown(lifecycle: Lifecycle) -> str:
    """Return a lifecycle as two Markdown tables: its declared rows, and its states."""
    rows = (row_cells(lifecycle, row) for row in lifecycle.rows)
    return f"{_markdown_table(COLUMNS, rows)}\n{_markdown_table(STATE_COLUMNS, state_cells(lifecycle))}"


def _markdown_table(titles: tuple[str, ...], rows: Iterable[tuple[Cell, ...]]) -> str:
    written = (_line(", ".join(map(_safe, cell)) for cell in row) for row in rows)
    return "".join((_line(titles), _line(["---"] * len(titles)), *written))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _safe(text: str) -> str:
    return text.translate(_SPECIAL)
