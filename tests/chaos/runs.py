"""The runs of handlers, put together from the ledger's lines.

The order of the lines is the order of events, so "at once" is a matter of line numbers. Only how long a process stood
still is told by the clock: others may have taken it for dead by then, and what it was at is *doubtful*; it may overlap
with what was begun in its place, because nothing can hold back a process that wakes up in mid-sentence.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from tests.chaos.ledger import Entry, What

NEVER = 2**62


class Run(Struct):
    """A handler at work on an operation, from line to line."""

    worker: str
    op: str
    object: str
    lane: str
    lock: str
    epoch: int
    first: int
    begun: float
    last: int = NEVER
    ended: float = float("inf")
    cut: bool = False  # its process was killed
    asked: int = 0  # how often it asked the provider for the effect
    doubtful: bool = False

    def overlaps(self, other: "Run") -> bool:
        """Whether both were at work at once."""
        return self.first < other.last and other.first < self.last


def runs_of(entries: Sequence[Entry], lease: float) -> list[Run]:
    """Return all runs, in the order in which they began."""
    found: list[Run] = []
    open_runs: dict[tuple[str, str, int], Run] = {}
    for number, entry in enumerate(entries):
        key = (entry.worker, entry.op, entry.epoch)
        if entry.what is What.BEGIN:
            run = Run(entry.worker, entry.op, entry.object, entry.lane, entry.lock, entry.epoch, number, entry.at)
            open_runs[key] = run
            found.append(run)
        elif entry.what is What.APPLY and key in open_runs:
            open_runs[key].asked += 1
        elif entry.what is What.END:
            _close(open_runs.pop(key), number, entry.at)
        elif entry.what is What.KILLED:
            for mine in [one for one in open_runs if one[0] == entry.worker]:
                _close(open_runs.pop(mine), number, entry.at, cut=True)
    _doubt(found, still_times(entries), lease)
    return found


def _close(run: Run, number: int, at: float, *, cut: bool = False) -> None:
    run.last, run.ended, run.cut = number, at, cut


Times = dict[str, list[tuple[float, float]]]


def still_times(entries: Iterable[Entry]) -> Times:
    """Return when each process stood still: because it was stopped, or was given no time by the machine."""
    times: Times = defaultdict(list)
    stopped: dict[str, float] = {}
    for entry in entries:
        if entry.what is What.STOPPING:
            stopped[entry.worker] = entry.at
        elif entry.what in (What.WOKEN, What.KILLED) and entry.worker in stopped:
            times[entry.worker].append((stopped.pop(entry.worker), entry.at))
        elif entry.what is What.STILL:
            times[entry.worker].append((entry.since, entry.at))
    for worker, since in stopped.items():
        times[worker].append((since, float("inf")))
    return times


def _doubt(runs: Iterable[Run], times: Times, lease: float) -> None:
    """Doubt what a process was at while it stood still, and what it began before it could know of that."""
    for run in runs:
        run.doubtful = any(run.begun < until + lease and since < run.ended for since, until in times[run.worker])
