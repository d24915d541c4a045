"""Words of Markdown that the pages of the reference share."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, or nothing where there are no rows."""
    lines = [_line(row) for row in rows]
    return "\n".join([_line(head), _line(["---"] * len(head)), *lines]) if lines else ""


def joined(*parts: str) -> str:
    """Put a page together from its paragraphs; those that say nothing are left out."""
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def code(text: object) -> str:
    """Return a text as code, in one line."""
    return f"`{text}`"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
