"""Table of path patterns: finds the row of a path; a parameter such as `{ns}` stands for one segment."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class PathTable(Generic[T]):
    """Values by path patterns; a pattern with more fixed segments comes first."""

    def __init__(self, rows: Iterable[tuple[str, T]]) -> None:
        by_length: dict[int, list[tuple[list[str], T]]] = defaultdict(list)
        for pattern, value in rows:
            segments = pattern.strip("/").split("/")
            by_length[len(segments)].append((segments, value))
        self._rows = {count: sorted(same, key=lambda row: _parameters(row[0])) for count, same in by_length.items()}

    def find(self, path: str) -> T | None:
        """Return the value of the pattern that a path fits, or None."""
        given = path.strip("/").split("/")
        for segments, value in self._rows.get(len(given), ()):
            if all(want == got or (got and is_parameter(want)) for want, got in zip(segments, given, strict=True)):
                return value
        return None


def is_parameter(segment: str) -> bool:
    """Tell whether a segment of a pattern stands for any text."""
    return segment.startswith("{")


def _parameters(segments: list[str]) -> int:
    return sum(map(is_parameter, segments))
