"""The verdict of a soak: leaks, rows that are left, and answers that no server may give."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from msgspec import Struct

from tests.soak.soak_deployment import Sample

GROWTH, SLACK = 1.2, 32 * 2**20
"""How much a process may grow under a steady load: a fifth, or so many bytes."""

FILES = 40
"""How many files and connections more than in the beginning a process may have when all is at rest."""


class Verdict(Struct, frozen=True):
    """What was found, in figures and in faults."""

    figures: dict[str, float]
    faults: list[str]

    def __str__(self) -> str:
        figures = ", ".join(f"{name} {value:g}" for name, value in self.figures.items())
        return "\n".join([figures, *self.faults[:40], f"({len(self.faults)} faults)" if self.faults else "no faults"])


def grown(samples: Sequence[Sample], since: float) -> Iterator[tuple[str, int, int]]:
    """Yield the memory of each process in the beginning and in the end of the time in which none was killed."""
    for name in dict.fromkeys(one.name for one in samples):
        mine = [one.resident for one in samples if one.name == name and one.at >= since]
        part = max(1, len(mine) // 4)
        if mine:
            yield name, int(median(mine[:part])), int(median(mine[-part:]))


def leaks(samples: Sequence[Sample], since: float) -> Iterator[str]:
    """Yield the processes that have grown."""
    for name, first, last in grown(samples, since):
        if last > first * GROWTH and last - first > SLACK:
            yield f"the {name} has grown from {first >> 20} to {last >> 20} MiB under a steady load"


def open_files(first: Mapping[str, int], last: Mapping[str, int]) -> Iterator[str]:
    """Yield the processes that have kept files and connections open."""
    for name, files in last.items():
        if files > first.get(name, files) + FILES:
            yield f"the {name} had {first[name]} files open in the beginning, and has {files} at rest"


def left(rows: Mapping[str, int]) -> Iterator[str]:
    """Yield the rows that have no owner."""
    yield from (f"{count} {name} are left" for name, count in rows.items() if count)
