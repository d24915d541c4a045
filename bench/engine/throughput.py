"""Actions that do nothing, end to end: accepted, claimed, run and finished, durable and journaled.

The raw limit is bare SQL that writes the same rows in batches as large as there are callers (see `bare`). The other
engines run jobs that do nothing, on the same PostgreSQL; they know no objects, no states and no journal. Two of them
can be fed in batches by hand, which is measured as well. All do the same number of actions in a round, so that what a
round costs once (a poll, a batch that isn't full) weighs the same for all.
"""

from bench.engine.databases import filled, new_database, new_file
from bench.engine.turns import Result, WorkloadSpec, run_in_turns
from bench.figures import Figure, Line, gain

ACTIONS, CALLERS, ROUNDS = 3_000, 100, 5
LIMIT = 0.4
WHAT = "an action, accepted to ended"
TARGETS = {"pgqueuer": 1, "Procrastinate": 20, "DBOS": 50}


def report() -> list[Line]:
    """Measure and return lines to print."""
    return [*sqlite(), *postgres()]


def sqlite() -> list[Line]:
    """Measure on SQLite."""
    callers, stored = str(CALLERS), str(ACTIONS)
    bare, ours, waited = run_in_turns(
        [
            WorkloadSpec("bare SQL", ("bare-sqlite", filled(new_file(), ACTIONS), callers, stored), ACTIONS),
            WorkloadSpec("engine", ("ours", filled(new_file(), ACTIONS), callers, stored), ACTIONS),
            WorkloadSpec("engine, waiting", ("waited", filled(new_file(), ACTIONS), callers, stored), ACTIONS),
        ],
        ROUNDS,
    )
    return [
        f"actions that do nothing, end to end, on SQLite; {CALLERS} callers",
        against(bare, ours, "on SQLite"),
        against(bare, waited, "on SQLite, each caller waiting for the end"),
        *(one.rate() for one in (bare, ours, waited)),
    ]


def postgres() -> list[Line]:
    """Measure on PostgreSQL."""
    callers, stored = str(CALLERS), str(ACTIONS)
    bare, ours, spread, *peers, pgqueuer, procrastinate = results = run_in_turns(
        [
            WorkloadSpec("bare SQL", ("bare-postgres", filled(new_database(), ACTIONS), callers, stored), ACTIONS),
            WorkloadSpec("engine, 1 process", ("ours", filled(new_database(), ACTIONS), callers, stored), ACTIONS),
            WorkloadSpec("engine, 3 workers", ("ours", filled(new_database(), ACTIONS), callers, stored, "3"), ACTIONS),
            WorkloadSpec("pgqueuer", ("pgqueuer", new_database(), callers), ACTIONS),
            WorkloadSpec("Procrastinate", ("procrastinate", new_database(), callers), ACTIONS),
            WorkloadSpec("DBOS", ("dbos", new_database(), callers), ACTIONS),
            WorkloadSpec("pgqueuer, fed in batches", ("pgqueuer", new_database(), callers, "1"), ACTIONS),
            WorkloadSpec("Procrastinate, fed in batches", ("procrastinate", new_database(), callers, "1"), ACTIONS),
        ],
        ROUNDS,
    )
    return [
        f"actions that do nothing, end to end, on PostgreSQL; {CALLERS} callers",
        against(bare, ours, "on PostgreSQL"),
        against(bare, spread, "on PostgreSQL, 3 worker processes"),
        *(faster(one, ours) for one in (*peers, pgqueuer, procrastinate)),
        *(one.rate() for one in results),
    ]


def against(bare: Result, ours: Result, how: str) -> Figure:
    speed = bare.timing.times(ours.timing)
    return gain(f"{WHAT}, {how}", speed, "the speed of bare SQL with the same rows", LIMIT)


def faster(peer: Result, ours: Result) -> Figure:
    speed, name = peer.timing.times(ours.timing), peer.spec.name
    return gain(f"{WHAT}, on PostgreSQL", speed, f"the speed of {name}", TARGETS.get(name))
