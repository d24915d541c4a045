"""Early writes: changes that are written while a transaction function goes on are part of its transaction."""

import asyncio

import pytest

from stateward.store import Changes, Store, Topic, Tx
from stateward.store.errors import WriteConflict
from stateward.store.records import Object
from tests.contract.samples import an_entry, an_object, an_operation, key, moved, some_work
from tests.contract.store_calls import TopicRecorder, claim_names, stored, write


async def early(tx: Tx, changes: Changes) -> Changes:
    """Let the store write changes ahead; returns what is left of them, which is all if it gains nothing by it."""
    return Changes() if await tx.flush_early(changes) else changes


def begun(subject: Object) -> Changes:
    return Changes(objects=[moved(subject)], operations=[an_operation("op")], new_work=[some_work("op")])


async def test_what_is_written_ahead_is_there_with_the_rest_and_is_told(store: Store) -> None:
    one = an_object("a")
    await write(store, objects=[one])

    async def function(tx: Tx) -> None:
        left = await early(tx, begun(one))
        left.journal.append(an_entry())
        await tx.apply(left)

    ear = TopicRecorder(store)
    await store.transact(function)
    await ear.hears(Topic.WORK)
    await ear.hears(Topic.JOURNAL)
    assert (await stored(store, "a")).version == 2
    assert await claim_names(store) == ["op"]
    assert await store.reader.operation(key("op")) is not None


async def test_a_program_that_fails_has_written_nothing_ahead(store: Store) -> None:
    one = an_object("a")
    await write(store, objects=[one])

    async def function(tx: Tx) -> None:
        await early(tx, begun(one))
        raise LookupError

    with pytest.raises(LookupError):
        await store.transact(function)
    assert await stored(store, "a") == one
    assert await store.reader.operation(key("op")) is None
    assert await claim_names(store) == []


async def test_a_program_that_is_given_up_has_written_nothing_ahead(store: Store) -> None:
    one = an_object("a")
    await write(store, objects=[one])
    reached = asyncio.Event()

    async def function(tx: Tx) -> None:
        if await tx.flush_early(begun(one)):
            reached.set()
            await asyncio.Event().wait()
        reached.set()
        raise asyncio.CancelledError

    running = asyncio.create_task(store.transact(function))
    await reached.wait()
    running.cancel()
    await asyncio.wait([running])
    assert await stored(store, "a") == one
    await write(store, begun(one))
    assert await claim_names(store) == ["op"]


async def test_a_lost_race_is_found_ahead_too(store: Store) -> None:
    one = an_object("a")
    await write(store, objects=[one])
    await write(store, objects=[moved(one, state="Suspended")])

    async def function(tx: Tx) -> None:
        await tx.apply(await early(tx, begun(one)))

    with pytest.raises(WriteConflict):
        await store.transact(function)
    assert (await stored(store, "a")).state == "Suspended"
    assert await store.reader.operation(key("op")) is None


async def test_what_was_written_ahead_can_be_changed_in_the_same_program(store: Store) -> None:
    one = an_object("a")
    await write(store, objects=[one])

    async def function(tx: Tx) -> None:
        left = await early(tx, begun(one))
        if left == Changes():
            left.objects.append(moved(moved(one), state="Suspended"))
            left.work.append(some_work("op", priority=7))
        else:
            left.objects[:] = [moved(one, state="Suspended")]
            left.new_work[:] = [some_work("op", priority=7)]
        left.operations.append(an_operation("later"))
        left.new_work.append(some_work("later", priority=7))
        await tx.apply(left)

    await store.transact(function)
    assert (await stored(store, "a")).state == "Suspended"
    assert await claim_names(store) == ["op", "later"]


async def test_what_is_asked_next_finds_what_was_written_ahead(store: Store) -> None:
    async def function(tx: Tx) -> None:
        left = await early(tx, begun(an_object("a", version=0)))
        if left == Changes():
            assert [one.op for one in await tx.queues([key("a")])] == ["op"]
            assert (await tx.objects([key("a")]))[key("a")].version == 1
        await tx.apply(left)

    await store.transact(function)
    assert (await stored(store, "a")).version == 1


async def test_a_second_part_is_taken_when_the_first_is_written(store: Store) -> None:
    names = [f"o{number}" for number in range(3)]

    async def function(tx: Tx) -> None:
        waiting = Changes()
        for name in names:
            waiting.objects.append(an_object(name))
            while waiting.objects and await tx.flush_early(waiting):
                waiting = Changes()
        await tx.apply(waiting)

    await store.transact(function)
    assert [(await stored(store, name)).id for name in names] == names
