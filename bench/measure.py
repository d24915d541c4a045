"""Timing on a machine that others use too.

Absolute times are worth little there, but two things timed in turns are disturbed alike. So all cases take turns,
round by round; a ratio is taken within each round, and the median over the rounds is what is reported.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from timeit import Timer

from msgspec import Struct

TURN = 0.003
"""How many seconds a case runs in each round, about."""


class Case(Struct, frozen=True):
    """A statement to time, the names that it uses, and how many operations it does."""

    name: str
    statement: str
    names: Mapping[str, object]
    operations: int = 1


class Timing(Struct, frozen=True):
    """The seconds per operation of a case, one figure per round."""

    name: str
    rounds: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """The median over the rounds."""
        return median(self.rounds)

    def times(self, other: "Timing") -> float:
        """Return how many times as long as another it takes: the median of the rounds' ratios."""
        return median(mine / its for mine, its in zip(self.rounds, other.rounds, strict=True))


def take_turns(cases: Sequence[Case], rounds: int) -> list[Timing]:
    """Time the cases in turns."""
    timers = [Timer(case.statement, globals=dict(case.names)) for case in cases]
    numbers = [_number(timer) for timer in timers]
    taken: list[list[float]] = [[] for _ in cases]
    for _ in range(rounds):
        for case, timer, number, figures in zip(cases, timers, numbers, taken, strict=True):
            figures.append(timer.timeit(number) / number / case.operations)
    return [Timing(case.name, tuple(figures)) for case, figures in zip(cases, taken, strict=True)]


def _number(timer: Timer) -> int:
    """Return how often a statement runs in one turn; the first run warms up and is not counted."""
    timer.timeit(10)
    number = 1
    while (seconds := timer.timeit(number)) < TURN / 4:
        number *= 2
    return max(1, round(number * TURN / seconds))


def duration(seconds: float) -> str:
    """Return a time for a person to read."""
    return f"{seconds * 1e9:8,.0f} ns" if seconds < 1e-5 else f"{seconds * 1e6:8,.1f} µs"
