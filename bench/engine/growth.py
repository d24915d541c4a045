"""Whether an action costs more, or the process needs more memory, the more objects are stored.

The objects are put there in bulk. STATEWARD_BENCH_OBJECTS says how many are many.
"""

from collections.abc import Callable
from os import environ

from bench.engine.databases import filled, new_database, new_file
from bench.engine.turns import Result, WorkloadSpec, run_in_turns
from bench.figures import Line, ratio

FEW, MANY = 10_000, int(environ.get("STATEWARD_BENCH_OBJECTS", "1000000"))
ACTIONS, CALLERS, ROUNDS = 2_000, 100, 15
TARGET = 1.3


def report() -> list[Line]:
    """Measure and return lines to print."""
    return [
        f"growth: actions on any of {MANY:,} stored objects, against {FEW:,}",
        *_compared("SQLite", "sqlite", new_file),
        *_compared("PostgreSQL", "postgres", new_database),
    ]


def _compared(name: str, dialect: str, new: Callable[[], str]) -> list[Line]:
    few, many = ((filled(new(), stored), str(CALLERS), str(stored)) for stored in (FEW, MANY))
    small, large = run_in_turns([WorkloadSpec("engine", ("ours", *one), ACTIONS) for one in (few, many)], ROUNDS)
    bare = run_in_turns([WorkloadSpec("bare SQL", (f"bare-{dialect}", *one), ACTIONS) for one in (few, many)], ROUNDS)
    among = f"among {MANY:,} objects, {name}"
    return [
        ratio(f"an action {among}", large.timing.times(small.timing), f"the time among {FEW:,}", TARGET),
        ratio(f"bare SQL {among}", bare[1].timing.times(bare[0].timing), f"the time among {FEW:,}"),
        ratio(f"the process {among}", large.resident / small.resident, f"the memory among {FEW:,}"),
        *(_weight(one, stored) for one, stored in ((small, FEW), (large, MANY))),
    ]


def _weight(one: Result, stored: int) -> str:
    return f"  {one.timing.seconds * 1e6:7.1f} µs an action, {one.resident / 2**20:5.0f} MiB  {stored:,} objects"
