"""The report of a run: violations and figures."""

from collections.abc import Iterator
from statistics import median

from msgspec import Struct

from stateward.store import open_store
from tests.chaos import aftermath, verdict
from tests.chaos.ledger import Entry, What, entries
from tests.chaos.notes import Sort
from tests.chaos.runs import Run, runs_of
from tests.chaos.storm import Storm


class Report(Struct, frozen=True):
    """What was found, in figures and in faults."""

    figures: dict[str, int | float]
    faults: list[str]

    def __str__(self) -> str:
        figures = ", ".join(f"{name} {value:g}" for name, value in self.figures.items())
        return "\n".join([figures, *self.faults[:40], *([f"({len(self.faults)} faults)"] if self.faults else [])])


async def judged(storm: Storm) -> Report:
    """Compare everything with everything."""
    store = open_store(storm.site.store)
    await store.open()
    try:
        found = await aftermath.stored(storm.site.store, store.reader)
        left = [f"worker {one.id} has left without a word" for one in await store.reader.workers()]
    finally:
        await store.close()
    seen = entries(storm.site.ledger_path)
    runs = runs_of(seen, storm.site.lease)
    faults = [*_faults(storm, found, seen, runs), *left, *storm.deaths]
    return Report(_figures(storm, found, seen, runs), faults)


def _faults(storm: Storm, found: aftermath.Stored, seen: list[Entry], runs: list[Run]) -> Iterator[str]:
    notes = storm.notes()
    yield from aftermath.lost(found, notes)
    yield from aftermath.foreign(found, notes)
    yield from aftermath.ended_twice(found)
    yield from aftermath.restless(found)
    yield from aftermath.misreplayed(found)
    yield from aftermath.misrung(found, notes)
    yield from aftermath.misseen(storm.watcher.lines, found)
    yield from aftermath.misapplied(found, verdict.effects_of(seen).applied)
    yield from verdict.collisions(runs)
    yield from verdict.lock_violations(runs)
    yield from verdict.crowds(runs)
    yield from verdict.doubled(runs)
    yield from verdict.never_ended(runs)


def _figures(storm: Storm, found: aftermath.Stored, seen: list[Entry], runs: list[Run]) -> dict[str, int | float]:
    effects = verdict.effects_of(seen)
    statuses = [status for status, _, _ in found.operations.values()]
    notes = storm.notes()
    return {
        "operations": len(found.operations),
        **{status: statuses.count(status) for status in sorted(set(statuses))},
        "denied": sum(answer.verdict == "denied" for note in notes for answer in note.answered.values()),
        "groups": sum(len(note.accepted(Sort.GROUP)) for note in notes),
        "timers": sum(len(note.accepted(Sort.TIMER)) for note in notes),
        **{f"{blow}s": count for blow, count in sorted(storm.blows.items())},
        "runs": len(runs),
        "repeated runs": len(runs) - len({run.op for run in runs}),
        "doubtful runs": sum(run.doubtful for run in runs),
        "effects": len(effects.applied),
        "recognised": effects.recognised,
        "journal lines": len(found.lines),
        "rejected words": sum(line.event.startswith("rejected") for line in found.lines),
        "watcher's connections": storm.watcher.connections,
        **_leases("kill", verdict.continuations(seen, What.KILLED), storm.site.lease),
        **_leases("stop", verdict.continuations(seen, What.STOPPING), storm.site.lease),
    }


def _leases(blow: str, times: list[float], lease: float) -> dict[str, int | float]:
    """Tell how long it took others to go on, in leases."""
    if not times:
        return {}
    usual, longest = median(times) / lease, max(times) / lease
    return {
        f"leases from {blow} to continuation, usually": round(usual, 2),
        f"leases from {blow} to continuation, at most": round(longest, 2),
    }
