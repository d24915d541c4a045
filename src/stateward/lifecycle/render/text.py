"""A lifecycle for terminals: the same tables as in Markdown, with each state in the colour of its class."""

from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from stateward.lifecycle.render.cells import COLUMNS, STATE_COLUMNS, Cell, Part, row_cells, state_cells
from stateward.lifecycle.states import FINAL, STABLE, TRANSITIONAL, State
from stateward.lifecycle.table import Lifecycle

COLOURS = {STABLE: "green", TRANSITIONAL: "yellow", FINAL: "blue"}


def text(lifecycle: Lifecycle) -> Group:
    """Return a lifecycle's rows and states as something that Rich can print."""
    rows = _table(COLUMNS, [row_cells(lifecycle, row) for row in lifecycle.rows])
    return Group(Text(lifecycle.kind, style="bold"), rows, _table(STATE_COLUMNS, list(state_cells(lifecycle))))


def coloured(state: State) -> Text:
    """Return a state's word in the colour of its class."""
    return Text(state.word, style=COLOURS[state.state_class])


def _table(titles: tuple[str, ...], rows: list[tuple[Cell, ...]]) -> Table:
    """Set a table, without the columns that would be empty."""
    used = [n for n in range(len(titles)) if any(any(row[n]) for row in rows)]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for n in used:
        table.add_column(titles[n], overflow="fold")  # no name is cut, however narrow the terminal is
    for row in rows:
        table.add_row(*(_cell(row[n]) for n in used))
    return table


def _cell(cell: Iterable[Part]) -> Text:
    return Text(", ").join(coloured(part) if isinstance(part, State) else Text(part) for part in cell)
