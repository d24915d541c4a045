"""Properties of pruning: current data is never touched, and the rest of the history stays correct."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from stateward.engine.maintenance.horizon import HISTORY_KEY, horizon
from stateward.engine.maintenance.retention import Pruned, prune
from stateward.engine.queries import PastState, state_at
from stateward.store import Changes, JournalFilter, Store
from stateward.store.records import JournalEntry, Key, Object, Operation, Status
from stateward.store.retention import BEFORE_ALL_KEYS
from stateward.store.sqlite import SqliteStore
from tests.contract.samples import (
    NS,
    a_key_record,
    a_lock,
    a_timer,
    an_entry,
    an_object,
    an_operation,
    key,
    some_work,
)
from tests.contract.store_calls import write
from tests.long_forms import examples

LIMIT, NOW = 50, 100.0
NAMES = ("a", "b", "c", "d")
STATES = ("red", "green", "blue")

times = st.integers(1, 90).map(float)
maybe_name = st.none() | st.sampled_from(NAMES)


class Life(Struct, frozen=True):
    """What has happened to an object: when it was in which state, and whether it is gone."""

    moves: list[tuple[float, str]]
    removed: bool
    parent: str | None
    queue: str | None
    timed: bool
    locked: bool
    rejected: list[float]


class Deed(Struct, frozen=True):
    """An operation: of which object, when begun and when ended, below which other, and whether its worker is at it."""

    object: str
    created: float
    lasted: float | None
    parent: int | None
    haunted: bool


lives = st.builds(
    Life,
    st.lists(st.tuples(times, st.sampled_from(STATES)), min_size=1, max_size=5, unique_by=lambda move: move[0]).map(
        sorted
    ),
    st.booleans(),
    maybe_name,
    maybe_name,
    st.sampled_from([False, False, False, True]),
    st.sampled_from([False, False, False, True]),
    st.lists(times, max_size=2),
)
deeds = st.builds(
    Deed,
    st.sampled_from(NAMES),
    times,
    st.none() | st.integers(0, 60).map(float),
    st.none() | st.integers(0, 7),
    st.sampled_from([False, False, False, False, True]),
)
worlds = st.tuples(
    st.lists(lives, min_size=len(NAMES), max_size=len(NAMES)),
    st.lists(deeds, max_size=8),
    st.lists(times, max_size=4),
)


def changes_of(world: Any) -> Changes:
    """Return a world as rows: the journal in the order of time."""
    found, done, answered = world
    operations = [_operation(number, deed) for number, deed in enumerate(done)]
    lines = [an_entry(one.object, op=one.id, at=one.created, source=None, target=None) for one in operations]
    for name, life in zip(NAMES, found, strict=True):
        lines += [an_entry(name, at=at, target=state, event="move") for at, state in life.moves]
        lines += [an_entry(name, at=at, source=None, target=None, event="rejected") for at in life.rejected]
    return Changes(
        objects=[_object(name, life) for name, life in zip(NAMES, found, strict=True)],
        operations=operations,
        new_work=[
            some_work(one.id, one.object, queue=one.object, fenced=one.ended is not None)
            for one, deed in zip(operations, done, strict=True)
            if one.ended is None or deed.haunted
        ],
        journal=[*sorted(lines, key=lambda line: line.at), an_entry("z", at=99.0)],  # there is always something new
        timers=[
            a_timer(f"of {name}", 500.0, object=name) for name, life in zip(NAMES, found, strict=True) if life.timed
        ],
        locks=[a_lock("x", tree=name) for name, life in zip(NAMES, found, strict=True) if life.locked],
        idempotency_records=[a_key_record(f"{number}", at=at) for number, at in enumerate(answered)],
    )


def _object(name: str, life: Life) -> Object:
    at, state = life.moves[-1]
    return an_object(
        name,
        state=state,
        since=at,
        created=life.moves[0][0],
        removed=life.removed,
        parent=life.parent if life.parent != name else None,
        queue=life.queue or name,
    )


def _operation(number: int, deed: Deed) -> Operation:
    ended = None if deed.lasted is None else min(deed.created + deed.lasted, 95.0)
    return an_operation(
        f"op {number}",
        deed.object,
        created=deed.created,
        ended=ended,
        status=Status.WAITING if ended is None else Status.SUCCEEDED,
        parent=f"op {deed.parent}" if deed.parent is not None and deed.parent < number else None,
    )


class Kept(Struct, frozen=True):
    """What a database holds."""

    objects: dict[str, Object]
    operations: dict[str, Operation]
    work: list[str]
    lines: list[JournalEntry]
    answers: list[Key]
    timers: int


async def looked(store: Store, operations: int) -> Kept:
    """Read everything."""
    reader = store.reader
    objects = {name: found for name in NAMES if (found := await reader.object(key(name))) is not None}
    known = await reader.operations([key(f"op {number}") for number in range(operations)])
    return Kept(
        objects=objects,
        operations={one.id: one for one in known.values()},
        work=[work.op for name in NAMES for work in await reader.queue_of(key(name))],
        lines=[line for line in await reader.journal(0, 1000, JournalFilter()) if line.ns == NS],
        answers=(await store.retention.idempotency_records(BEFORE_ALL_KEYS, NOW * 10, 1000)).keys,
        timers=len(await reader.timers(NS, 100)),
    )


def on_a_store(world: Any, test: Callable[[Store], Awaitable[None]]) -> None:
    """Run a test on a store that holds a world."""

    async def run() -> None:
        store = SqliteStore(":memory:", clock=lambda: NOW)
        await store.open()
        await write(store, changes_of(world))
        await test(store)
        await store.close()

    asyncio.run(run())


def family(name: str, kept: Kept) -> set[str]:
    """Return the operations that belong together with one."""
    found, more = {name}, True
    while more:
        wider = found | {one.id for one in kept.operations.values() if one.parent in found}
        wider |= {one.parent for one in kept.operations.values() if one.id in found and one.parent in kept.operations}
        found, more = wider, wider != found
    return found


@settings(max_examples=examples(60), deadline=None)
@given(worlds, st.integers(1, 7))
def test_nothing_of_the_present_is_touched(world: Any, portion: int) -> None:
    async def test(store: Store) -> None:
        before = await looked(store, len(world[1]))
        await prune(store, LIMIT, portion=portion)
        after = await looked(store, len(world[1]))
        assert {name: one for name, one in before.objects.items() if not one.removed}.items() <= after.objects.items()
        young = {name: one for name, one in before.operations.items() if one.ended is None or one.ended >= LIMIT}
        assert young.items() <= after.operations.items()
        assert (after.work, after.timers) == (before.work, before.timers)
        assert after.objects.items() <= before.objects.items()

    on_a_store(world, test)


@settings(max_examples=examples(60), deadline=None)
@given(worlds, st.integers(1, 7))
def test_what_goes_goes_as_a_whole_and_what_refers_to_it_keeps_it(world: Any, portion: int) -> None:
    async def test(store: Store) -> None:
        before = await looked(store, len(world[1]))
        await prune(store, LIMIT, portion=portion)
        after = await looked(store, len(world[1]))
        for name in before.operations.keys() - after.operations.keys():
            assert not family(name, before) & after.operations.keys()
        for name in before.objects.keys() - after.objects.keys():
            assert before.objects[name].removed
            assert before.objects[name].since < LIMIT
            assert not any(
                name in (one.parent, one.queue) and not (one.removed and one.since < LIMIT)
                for one in after.objects.values()
            )
        assert {line.object for line in after.lines if line.at < LIMIT} <= after.objects.keys()

    on_a_store(world, test)


@settings(max_examples=examples(60), deadline=None)
@given(worlds, st.integers(1, 7))
def test_the_past_is_told_as_it_was_or_not_at_all(world: Any, portion: int) -> None:
    async def told(store: Store) -> dict[tuple[str, int], PastState]:
        return {(name, at): await state_at(store.reader, key(name), at) for name in NAMES for at in range(0, 100, 7)}

    async def test(store: Store) -> None:
        before = await told(store)
        await prune(store, LIMIT, portion=portion)
        left = {name for name in NAMES if await store.reader.object(key(name)) is not None}
        for (name, at), past in (await told(store)).items():
            if name in left:
                assert past == before[name, at] or (at < LIMIT and past == PastState(None, known=False))

    on_a_store(world, test)


@settings(max_examples=examples(60), deadline=None)
@given(worlds, st.integers(1, 7))
def test_a_dry_run_says_what_will_go_and_a_second_run_finds_nothing(world: Any, portion: int) -> None:
    async def test(store: Store) -> None:
        before = await looked(store, len(world[1]))
        said = await prune(store, LIMIT, dry=True, portion=portion)
        assert await looked(store, len(world[1])) == before
        assert await store.reader.object(HISTORY_KEY) is None
        assert await prune(store, LIMIT, portion=portion) == said
        assert await prune(store, LIMIT, portion=portion) == Pruned()

    on_a_store(world, test)


@settings(max_examples=examples(50), deadline=None)
@given(worlds)
def test_whatever_lines_are_missing_lie_behind_the_horizon(world: Any) -> None:
    async def test(store: Store) -> None:
        before = await looked(store, len(world[1]))
        await prune(store, LIMIT, portion=3)
        kept = await horizon(store.reader)
        missing = {line.seq for line in before.lines} - {line.seq for line in (await looked(store, 0)).lines}
        assert max(missing, default=0) <= kept.seq
        assert kept.seq in {0, *missing}

    on_a_store(world, test)
