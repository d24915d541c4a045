"""Checks of the store after a run, against the notes of the clients and the ledger of effects."""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import asyncpg
from msgspec import Struct

from stateward.engine.waiters import ENDED_STATUSES
from stateward.lifecycle import NEW, TRANSITIONAL
from stateward.store import Reader
from stateward.store.filters import JournalFilter
from stateward.store.records import JournalEntry
from tests.chaos.crane_kind import CRANE, YARD
from tests.chaos.notes import Notes, Sort

WORDS = {state.word: state for lifecycle in (CRANE, YARD) for state in lifecycle.states}


class Stored(Struct, frozen=True):
    """The rows that matter, read past the engine."""

    objects: dict[str, tuple[str, str | None]]  # state and holder, by id
    operations: dict[str, tuple[str, str | None, str]]  # status, parent and object, by id
    lines: list[JournalEntry]
    left: dict[str, int]  # how many rows there are where none should be


async def query(store: str, sql: str) -> list[Any]:
    """Ask a database, of either sort, directly."""
    if "://" not in store:
        connection = sqlite3.connect(store)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()
    server = await asyncpg.connect(store, server_settings={"search_path": "stateward"})
    try:
        return [tuple(row) for row in await server.fetch(sql)]
    finally:
        await server.close()


async def stored(store: str, reader: Reader) -> Stored:
    """Read everything."""
    return Stored(
        objects={row[0]: (row[1], row[2]) for row in await query(store, "SELECT id, state, op FROM objects")},
        operations={
            row[0]: (row[1], row[2], row[3])
            for row in await query(store, "SELECT id, status, parent, object FROM operations")
        },
        lines=await journal(reader),
        left={name: (await query(store, f"SELECT count(*) FROM {name}"))[0][0] for name in ("work", "locks", "timers")},
    )


async def journal(reader: Reader) -> list[JournalEntry]:
    """Return the whole journal, page by page."""
    lines: list[JournalEntry] = []
    while page := await reader.journal(lines[-1].seq if lines else 0, 5000, JournalFilter()):
        lines += page
    return lines


def lost(found: Stored, notes: Iterable[Notes]) -> Iterator[str]:
    """Tell of accepted operations that are not there, or have not ended, and of denied ones that are there."""
    for note in notes:
        for answer in note.answered.values():
            missing = [op for op in answer.operations if op not in found.operations]
            yield from (f"{op} was accepted and is not there" for op in missing)
            if answer.verdict == "denied" and answer.op in found.operations:
                yield f"{answer.op} was denied and is there"
    for op, (status, _, name) in found.operations.items():
        if status not in ENDED_STATUSES:
            yield f"{op} on {name} has not ended: {status}"


def foreign(found: Stored, notes: Iterable[Notes]) -> Iterator[str]:
    """Tell of operations that nobody asked for: not a client, not a group, not a timer."""
    asked = {op for note in notes for op in note.asked}
    rung = {line.op for line in found.lines if line.actor == "clock" and line.event == "lift"}
    for op, (_, parent, name) in found.operations.items():
        if op not in asked and parent not in asked and op not in rung:
            yield f"{op} on {name} was asked for by nobody"


def ended_twice(found: Stored) -> Iterator[str]:
    """Tell of operations with more than one ending in the journal, or with an ending other than their status."""
    endings: Counter[str] = Counter()
    for line in found.lines:
        if line.op is not None and line.target is not None and WORDS[line.target].state_class is not TRANSITIONAL:
            endings[line.op] += 1
    for op, count in endings.items():
        if count > 1:
            yield f"{op} ended {count} times"


def restless(found: Stored) -> Iterator[str]:
    """Tell of objects that are not at rest, and of rows of work, locks and timers that were left behind."""
    for name, (state, holder) in found.objects.items():
        if state in WORDS and (WORDS[state].state_class is TRANSITIONAL or holder is not None):
            yield f"{name} is {state}, held by {holder}"
    yield from (f"{count} rows are left in {table}" for table, count in found.left.items() if count)


def misreplayed(found: Stored) -> Iterator[str]:
    """Tell of objects whose states are not what their journal leads to, step by step."""
    states: dict[str, str] = defaultdict(lambda: NEW.word)
    for line in found.lines:
        if line.target is None:
            continue
        before = states[line.object] if states[line.object] != "(gone)" else NEW.word
        if line.source != before:
            yield f"line {line.seq}: {line.object} goes from {line.source} to {line.target}, but was {before}"
        states[line.object] = line.target
    for name, (state, _) in found.objects.items():
        if states[name] != state:
            yield f"{name} is {state}, but its journal leads to {states[name]}"


def misrung(found: Stored, notes: Iterable[Notes]) -> Iterator[str]:
    """Tell of timers that did not ring exactly once; one whose setting was not answered may have been set or not."""
    rings = Counter(
        line.who for line in found.lines if line.actor == "clock" and line.event in ("lift", "rejected: lift")
    )
    for note in notes:
        for asked in note.asked.values():
            if asked.sort is Sort.TIMER:
                sure = asked.request.op in note.answered
                if rings[asked.request.op] > 1 or (sure and rings[asked.request.op] == 0):
                    yield f"timer {asked.request.op} rang {rings[asked.request.op]} times"


def misseen(seen: Sequence[JournalEntry], found: Stored) -> Iterator[str]:
    """Tell of gaps, duplicates and disorder in what a watcher was shown."""
    shown, true = [line.seq for line in seen], [line.seq for line in found.lines]
    if len(set(shown)) != len(shown):
        yield f"{len(shown) - len(set(shown))} lines were shown twice"
    if shown != sorted(shown):
        yield "lines were shown out of order"
    if missing := sorted(set(true) - set(shown)):
        yield f"{len(missing)} lines were never shown, such as {missing[:5]}"
    if list(seen) != found.lines and shown == true:
        yield "lines were shown with another content"


def misapplied(found: Stored, applied: frozenset[str]) -> Iterator[str]:
    """Tell of operations that succeeded without their effect, and of effects of nothing that was accepted."""
    children = {parent for _, parent, _ in found.operations.values() if parent is not None}
    for op, (status, _, name) in found.operations.items():
        if status == "succeeded" and op not in applied and op not in children:
            yield f"{op} on {name} succeeded, but its effect never took place"
    for op in applied - found.operations.keys():
        yield f"the effect of {op} took place, but it was never accepted"
