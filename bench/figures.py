"""What a benchmark finds, as records: printed as lines, kept in `bench/figures.json`, compared with what was kept.

A ratio says how a thing does against another that was measured in the same run; it is what is compared. A plain figure
(a time, a rate) has a unit of its own: it tells what this machine did that day, and is compared with nothing.
"""

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

TIMES = "x"
"""The unit of a ratio."""


class Better(StrEnum):
    """Which way a figure is better."""

    LOWER = "lower"
    HIGHER = "higher"


class Figure(Struct, frozen=True):
    """A figure: `value` times what it is a ratio of, or `value` of a unit; it may have a target."""

    name: str
    value: float
    of: str = ""
    better: Better = Better.LOWER
    target: float | None = None
    unit: str = TIMES

    @property
    def is_ratio(self) -> bool:
        """Whether it can be compared with the same figure of another run."""
        return self.unit == TIMES

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from the other figures of its benchmark."""
        return self.name, self.of

    @property
    def met(self) -> bool | None:
        """Whether its target is met, if it has one."""
        if self.target is None:
            return None
        return self.value <= self.target if self.better is Better.LOWER else self.value >= self.target

    def __str__(self) -> str:
        """Return a line to print."""
        return f"  {shown(self.value):>9} {self.unit}{f' {self.of}' if self.of else ''}: {self.name}{self._aim()}"

    def _aim(self) -> str:
        return "" if self.target is None else f"   (target {self.aim}{'' if self.met else ', missed'})"

    @property
    def aim(self) -> str:
        """The target, for a reader."""
        if self.target is None:
            return ""
        return f"{'at most' if self.better is Better.LOWER else 'at least'} {self.target:,g}"


Line: TypeAlias = str | Figure
"""What a benchmark reports: text for whoever watches, and figures."""


def ratio(name: str, value: float, of: str, target: float | None = None) -> Figure:
    """Return a ratio that is better the lower it is: a time or a size."""
    return Figure(name, _kept(value), of, Better.LOWER, target)


def gain(name: str, value: float, of: str, target: float | None = None) -> Figure:
    """Return a ratio that is better the higher it is: a speed."""
    return Figure(name, _kept(value), of, Better.HIGHER, target)


def plain(name: str, value: float, unit: str, target: float | None = None, better: Better = Better.LOWER) -> Figure:
    """Return a figure with a unit of its own."""
    return Figure(name, _kept(value), "", better, target, unit)


def _kept(value: float) -> float:
    """Return a value without the digits that mean nothing."""
    return float(f"{value:.4g}")


def shown(value: float) -> str:
    """Return a value with as many digits as can be trusted."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.2g}"
