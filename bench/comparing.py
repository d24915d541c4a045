"""Which ratios have become worse, against what is kept."""

from collections.abc import Iterator

from msgspec import Struct

from bench.figures import Better, Figure, shown
from bench.kept import Kept

TOLERANCE = 1.2
"""By how much a ratio may be worse before it is shown: a fifth."""


class Change(Struct, frozen=True):
    """A ratio as it was kept, and as it is now; None if it is not measured any more."""

    bench: str
    kept: Figure
    now: Figure | None

    @property
    def worse(self) -> bool:
        """Whether it has become worse by more than is tolerated."""
        if self.now is None:
            return False
        was, now = self.kept.value, self.now.value
        return now > was * TOLERANCE if self.kept.better is Better.LOWER else now * TOLERANCE < was

    def __str__(self) -> str:
        """Return a line to print."""
        what = f"{self.bench}: {self.kept.name}, times {self.kept.of}"
        if self.now is None:
            return f"  {what}: was {shown(self.kept.value)}, was not measured now"
        found = f"was {shown(self.kept.value)}, is {shown(self.now.value)} ({self.kept.better} is better)"
        return f"{'! ' if self.worse else '  '}{what}: {found}"


def changes(kept: Kept, now: Kept) -> Iterator[Change]:
    """Yield every kept ratio of the benchmarks that were run now."""
    for bench, run in now.runs.items():
        found = {one.key: one for one in run.figures}
        before = kept.runs.get(bench)
        for one in before.figures if before else ():
            if one.is_ratio:
                yield Change(bench, one, found.get(one.key))
