"""A lifecycle as Markdown tables: its rows as they were declared, and its states."""

from collections.abc import Iterable

from stateward.lifecycle.render.cells import COLUMNS, STATE_COLUMNS, Cell, row_cells, state_cells
from stateward.lifecycle.table import Lifecycle

_SPECIAL = str.maketrans(
    {sign: f"\\{sign}" for sign in "\\`*_~[]|#"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\n": " ", "\r": " "}
)


def markdown(lifecycle: Lifecycle) -> str:
    """Write a lifecycle as two tables: one line per declared row, and one per state."""
    rows = (row_cells(lifecycle, row) for row in lifecycle.rows)
    return f"{_table(COLUMNS, rows)}\n{_table(STATE_COLUMNS, state_cells(lifecycle))}"


def _table(titles: tuple[str, ...], rows: Iterable[tuple[Cell, ...]]) -> str:
    written = (_line(", ".join(map(_safe, cell)) for cell in row) for row in rows)
    return "".join((_line(titles), _line(["---"] * len(titles)), *written))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _safe(text: str) -> str:
    return text.translate(_SPECIAL)
