"""Checks of a rehearsal's outcome: the database, the callers' records and the agents' ledger must agree."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from stateward.agents.messages import Existing
from stateward.domains.edge.lifecycle import APPINST, CLOUDLET, CLUSTERINST
from stateward.lifecycle import GONE, TRANSITIONAL
from stateward.store import open_store
from stateward.store.records import JournalEntry
from tests.chaos import aftermath, verdict
from tests.chaos.aftermath import Stored
from tests.chaos.ledger import entries
from tests.chaos.runs import runs_of
from tests.rehearsal.load import ENDED

LEASE = 15.0
WORDS = {(kind.kind, state.word): state for kind in (CLUSTERINST, APPINST, CLOUDLET) for state in kind.states}
READY = "Ready"


async def read(database: str) -> Stored:
    """Read everything."""
    store = open_store(database)
    await store.open()
    try:
        return await aftermath.stored(database, store.reader)
    finally:
        await store.close()


def lost(found: Stored, accepted: Iterable[str]) -> Iterator[str]:
    """Yield accepted operations that the database does not have, and operations that have not ended."""
    yield from (f"{op} was accepted and is not there" for op in accepted if op not in found.operations)
    for op, (status, _, name) in found.operations.items():
        if status not in ENDED:
            yield f"{op} on {name} has not ended: {status}"


def unfinished(found: Stored) -> Iterator[str]:
    """Yield objects that an operation still holds, and work items and locks that are left."""
    held = [(name, state, op) for name, (state, op) in found.objects.items() if op is not None]
    yield from (f"{name} is {state}, held by {op}" for name, state, op in held)
    yield from (f"{found.left[table]} rows are left in {table}" for table in ("work", "locks") if found.left[table])


def ended_twice(lines: Iterable[JournalEntry]) -> Iterator[str]:
    """Yield operations with more than one ending in the journal."""
    endings: Counter[str] = Counter()
    for line in lines:
        state = WORDS.get((line.kind, line.target or ""))
        if line.op is not None and state is not None and state.state_class is not TRANSITIONAL:
            endings[line.op] += 1
    yield from (f"{op} ended {count} times" for op, count in endings.items() if count > 1)


def contradicting_states(found: Stored) -> Iterator[str]:
    """Yield objects whose states contradict their journal; the first entry says where they come from."""
    states: dict[str, str] = {}
    for line in found.lines:
        if line.target is not None:
            before = states.get(line.object, line.source)
            if before not in (line.source, GONE.word):
                yield f"line {line.seq}: {line.object} goes from {line.source} to {line.target}, but was {before}"
            states[line.object] = line.target
    for name, (state, _) in found.objects.items():
        if states.get(name, state) != state:
            yield f"{name} is {state}, but its journal leads to {states[name]}"


def mismatched_instances(found: Stored, things: Mapping[str, Existing]) -> Iterator[str]:
    """Yield instances that exist only in the database or only at a site."""
    there = {name for name, what in things.items() if what.generation}
    here = {name for name, (state, _) in found.objects.items() if ":" in name and state == READY}
    yield from (f"{name} is {READY}, but does not exist at its site" for name in here - there)
    yield from (f"{name} exists at its site, but is not {READY}" for name in there - here)


def faults_of(
    found: Stored, accepted: Iterable[str], ledger: Path, things: Mapping[str, Existing]
) -> tuple[list[str], dict[str, int]]:
    """Run all checks; returns the faults, and some figures."""
    seen = entries(ledger)
    runs, effects = runs_of(seen, LEASE), verdict.effects_of(seen)
    instances = {op: row for op, row in found.operations.items() if ":" in row[2]}
    theirs = Stored(found.objects, instances, found.lines, found.left)
    faults = [
        *lost(found, accepted),
        *unfinished(found),
        *ended_twice(found.lines),
        *contradicting_states(found),
        *aftermath.misapplied(theirs, effects.applied),
        *mismatched_instances(found, things),
        *verdict.collisions(runs),
        *verdict.doubled(runs),
        *verdict.never_ended(runs),
    ]
    statuses = Counter(status for status, _, _ in found.operations.values())
    figures = {"operations": len(found.operations), **statuses, "effects": len(effects.applied)}
    return faults, {**figures, "effects asked for again": effects.recognised, "journal lines": len(found.lines)}
