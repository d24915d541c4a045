"""One action on 10,000 objects, accepted in one transaction, against bare SQL that writes the same rows in one batch.

What is measured is the acceptance: every object in its transitional state, with an operation, work and a line of the
journal of its own. How that compares with changing nothing but the objects is told as well.
"""

from bench.engine.databases import filled, new_database, new_file
from bench.engine.turns import WorkloadSpec, run_in_turns
from bench.figures import Line, ratio

OBJECTS, ROUNDS = 10_000, 15
TARGET = 1.5


def report() -> list[Line]:
    """Measure and return lines to print."""
    return [
        f"a group action on {OBJECTS:,} objects, accepted in one transaction",
        *_on("SQLite", "sqlite", [filled(new_file(), OBJECTS) for _ in range(3)]),
        *_on("PostgreSQL", "postgres", [filled(new_database(), OBJECTS) for _ in range(3)]),
    ]


def _on(name: str, dialect: str, places: list[str]) -> list[Line]:
    size = str(OBJECTS)
    ours, bare, objects = run_in_turns(
        [
            WorkloadSpec("engine", ("group", places[0], size), OBJECTS),
            WorkloadSpec("bare SQL, the same rows", (f"bare-{dialect}-group", places[1], size, size), OBJECTS),
            WorkloadSpec("bare SQL, the objects alone", (f"bare-{dialect}-objects", places[2], size, size), OBJECTS),
        ],
        ROUNDS,
    )
    what = f"one action on {OBJECTS:,} objects, {name}"
    return [
        ratio(what, ours.timing.times(bare.timing), "the time of bare SQL in one batch", TARGET),
        ratio(what, ours.timing.times(objects.timing), "the time of changing the objects alone"),
        *(f"  {one.timing.seconds * 1e6:7.1f} µs an object  {one.spec.name}" for one in (ours, bare, objects)),
    ]
