"""Whether an action costs more, or the process needs more memory, the more objects are stored.

The objects are put there in bulk. STATEWARD_BENCH_OBJECTS says how many are many.
"""

from os import environ

from bench.engine.places import filled, new_database, new_file
from bench.engine.race import Result, Runner, race

FEW, MANY = 10_000, int(environ.get("STATEWARD_BENCH_OBJECTS", "1000000"))
ACTIONS, CALLERS, ROUNDS = 2_000, 100, 5
TARGET = 1.3


def report() -> list[str]:
    """Measure and return lines to print."""
    return [
        f"growth: {MANY:,} stored objects against {FEW:,}",
        *_compared("SQLite", *(_runner(filled(new_file(), stored), stored) for stored in (FEW, MANY))),
        *_compared("PostgreSQL", *(_runner(filled(new_database(), stored), stored) for stored in (FEW, MANY))),
    ]


def _runner(url: str, stored: int) -> Runner:
    return Runner(f"{stored:,} objects", ("ours", url, str(CALLERS), str(stored)), ACTIONS)


def _compared(name: str, few: Runner, many: Runner) -> list[str]:
    small, large = race([few, many], ROUNDS)
    return [
        f"  {large.timing.times(small.timing):7.2f} x the time of an action on {name:<12} target {TARGET}",
        f"  {large.resident / small.resident:7.2f} x the memory of the process",
        *(_weight(one) for one in (small, large)),
    ]


def _weight(one: Result) -> str:
    return f"  {one.timing.seconds * 1e6:7.1f} µs an action, {one.resident / 2**20:5.0f} MiB  {one.runner.name}"
