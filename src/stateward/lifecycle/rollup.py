"""Roll-ups: what a whole is said to be, given what its parts are.

Three forms cover the five designs. The dominant status is the one that most parts have. The first present is the most
urgent status that any part has. A combination table goes the other way: it says, for each status of the
whole, which statuses its parts may have, so that a whole and its parts can be proved to agree.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from stateward.errors import BadInput, UnknownName

S = TypeVar("S", bound=str)
R = TypeVar("R")


class Dominant(Struct, Generic[S], frozen=True):
    """The status that most parts have, how many have it, and how many parts there are."""

    status: S
    count: int
    total: int

    @property
    def partial(self) -> bool:
        """Whether some part has another status."""
        return self.count < self.total


def dominant(counts: Mapping[S, int], order: Sequence[S]) -> Dominant[S] | None:
    """Return the status with the highest count, of equals the first in `order`; None where there are no parts."""
    _certain(counts, order)
    total = sum(counts.values())
    if not total:
        return None
    status = max(order, key=lambda candidate: counts.get(candidate, 0))
    return Dominant(status, counts[status], total)


def first_present(counts: Mapping[S, int], priorities: Iterable[tuple[Iterable[S], R]], default: R) -> R:
    """Return the result of the first priority of which any status is present, else the default."""
    return next((result for urgent, result in priorities if any(counts.get(status, 0) for status in urgent)), default)


def _certain(counts: Mapping[S, int], order: Sequence[S]) -> None:
    """Refuse what would make a roll-up lie: a part that has no place in the order, or less than no parts."""
    for status, count in counts.items():
        if status not in order:
            raise UnknownName("status to roll up", status, order)
        if count < 0:
            raise BadInput(f"count of {status}", count, "a count: 0 or more")


class Cell(Struct, frozen=True):
    """The statuses that one kind of part may have; `text` is how the documentation says it."""

    statuses: frozenset[str]
    text: str
    any: bool = False

    def allows(self, status: str | None) -> bool:
        """Return whether a part may have a status; None is a part that is not there, and passes only where any does."""
        return self.any or status in self.statuses


ANY = Cell(frozenset(), "any", any=True)
"""No condition at all: also a part that is not there."""


def one_of(*statuses: str) -> Cell:
    """Make the condition that a part has one of these statuses."""
    return Cell(frozenset(statuses), " or ".join(map(str, statuses)))


class Combination(Struct, frozen=True):
    """One line of a combination table: a status of the whole, and a condition per kind of part."""

    whole: str
    cells: tuple[Cell, ...]


class CombinationViolation(Struct, frozen=True):
    """A part whose status does not go with that of the whole."""

    whole: str
    part: str
    status: str | None
    expected: str

    def __str__(self) -> str:
        return f"{self.whole} needs {self.part} to be {self.expected}, not {self.status or 'missing'}"


class Combinations(Struct, frozen=True):
    """A combination table: the kinds of parts are its columns, the statuses of the whole its rows."""

    whole: str
    parts: tuple[str, ...]
    rows: tuple[Combination, ...]

    def row(self, whole: str) -> Combination:
        """Return the line for a status of the whole, or raise with the statuses that have one."""
        combination = next((row for row in self.rows if row.whole == whole), None)
        if combination is None:
            raise UnknownName(f"status of {self.whole}", whole, (row.whole for row in self.rows))
        return combination

    def violations(self, whole: str, *parts: Iterable[str | None]) -> tuple[CombinationViolation, ...]:
        """Return every part that does not go with the whole; `parts` are the statuses found, kind by kind."""
        return tuple(self._violations(self.row(whole), parts))

    def _violations(self, row: Combination, parts: tuple[Iterable[str | None], ...]) -> Iterator[CombinationViolation]:
        for part, cell, statuses in zip(self.parts, row.cells, parts, strict=True):
            for status in statuses:
                if not cell.allows(status):
                    yield CombinationViolation(row.whole, part, status, cell.text)

    def as_markdown(self) -> str:
        """Return the table as the documentation shows it."""
        lines = [(self.whole, *self.parts), ("---",) * (len(self.parts) + 1)]
        lines += [(str(row.whole), *(cell.text for cell in row.cells)) for row in self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
