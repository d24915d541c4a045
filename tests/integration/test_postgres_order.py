"""Races that depend on the order of commits: the journal's numbers, and the promotion of queues."""

import asyncio
from functools import partial

import pytest
from msgspec.structs import replace

from stateward.store.changes import Changes
from stateward.store.errors import WriteConflict
from stateward.store.filters import JournalFilter
from stateward.store.port import Tx
from stateward.store.postgres import PostgresStore
from stateward.store.records import Claim, IdempotencyRecord, JournalEntry, Key
from tests.contract.samples import NS, an_entry, an_object, some_work
from tests.integration.postgres_helpers import in_loop, looking_at, opened, until_somebody_waits
from tests.integration.postgres_samples import accepted, accepts, creates, finished

EVERY_LINE = JournalFilter()


async def journal(lines: list[JournalEntry], tx: Tx) -> None:
    await tx.apply(Changes(journal=lines))


@in_loop
async def test_a_line_waits_for_the_commit_of_the_one_before(postgres_dsn: str) -> None:
    written, may_commit = asyncio.Event(), asyncio.Event()

    async def slow(tx: Tx) -> None:
        await tx.apply(Changes(journal=[an_entry("a", event="first")]))
        written.set()
        await may_commit.wait()

    async def quick(tx: Tx) -> None:
        await tx.apply(Changes(journal=[an_entry("b", event="second")]))

    async with opened(postgres_dsn) as store, looking_at(postgres_dsn) as connection:
        first = asyncio.create_task(store.transact(slow))
        await written.wait()
        second = asyncio.create_task(store.transact(quick))
        await until_somebody_waits(connection)
        assert await store.reader.last_journal_seq() == 0
        may_commit.set()
        await asyncio.gather(first, second)
        lines = await store.reader.journal(0, 10, EVERY_LINE)
        assert [line.event for line in lines] == ["first", "second"]


@in_loop
async def test_a_reader_that_follows_the_journal_misses_nothing(postgres_dsn: str) -> None:
    writers, rounds = 6, 25

    async def write(store: PostgresStore, writer: int) -> None:
        for number in range(rounds):
            lines = [an_entry(f"{writer}", event=f"{writer}.{number}.{part}") for part in range(number % 3 + 1)]

            await store.transact(partial(journal, lines))

    async def follow(store: PostgresStore, done: asyncio.Event) -> list[str]:
        seen, events = 0, []
        while True:
            ended = done.is_set()
            lines = await store.reader.journal(seen, 7, EVERY_LINE)
            events += [line.event for line in lines]
            seen = lines[-1].seq if lines else seen
            if ended and not lines:
                return events

    async with opened(postgres_dsn) as one, opened(postgres_dsn) as other:
        done = asyncio.Event()
        following = asyncio.create_task(follow(one, done))
        await asyncio.gather(*(write((one, other)[writer % 2], writer) for writer in range(writers)))
        done.set()
        events = await following
    expected = [f"{w}.{n}.{p}" for w in range(writers) for n in range(rounds) for p in range(n % 3 + 1)]
    assert sorted(events) == sorted(expected)
    for writer in range(writers):
        mine = [event for event in events if event.startswith(f"{writer}.")]
        assert mine == [event for event in expected if event.startswith(f"{writer}.")]


@in_loop
async def test_what_is_appended_while_the_one_before_finishes_becomes_the_head(postgres_dsn: str) -> None:
    holding, may_finish = asyncio.Event(), asyncio.Event()
    key = Key(NS, "a")

    async def finish(tx: Tx) -> None:
        await tx.objects([key])
        holding.set()
        await may_finish.wait()
        (first,) = await tx.queues([key])
        await tx.apply(finished(first, tx.now))

    async with opened(postgres_dsn) as store, looking_at(postgres_dsn) as connection:
        await store.transact(creates("a"))
        await store.transact(accepts("o1", "a"))
        finishing = asyncio.create_task(store.transact(finish))
        await holding.wait()
        appending = asyncio.create_task(store.transact(accepts("o2", "a")))
        await until_somebody_waits(connection)
        may_finish.set()
        await asyncio.gather(finishing, appending)
        assert [(work.op, work.ready) for work in await store.reader.queue_of(key)] == [("o2", True)]


@in_loop
async def test_a_finish_sees_what_was_appended_while_it_waited(postgres_dsn: str) -> None:
    holding, may_append = asyncio.Event(), asyncio.Event()
    key = Key(NS, "a")

    async def append(tx: Tx) -> None:
        await tx.objects([key])
        holding.set()
        await may_append.wait()
        await tx.apply(accepted("o2", "a", ready=False))

    async def finish(tx: Tx) -> list[str]:
        queue = await tx.queues([key])  # without having asked for the object: the queue's lock comes with it
        return [work.op for work in queue]

    async with opened(postgres_dsn) as store, looking_at(postgres_dsn) as connection:
        await store.transact(creates("a"))
        await store.transact(accepts("o1", "a"))
        appending = asyncio.create_task(store.transact(append))
        await holding.wait()
        finishing = asyncio.create_task(store.transact(finish))
        await until_somebody_waits(connection)
        may_append.set()
        await appending
        assert await finishing == ["o1", "o2"]


async def claim_one(tx: Tx) -> list[Claim]:
    return await tx.claim({"": 1}, "w")


async def finish(claim: Claim, tx: Tx) -> None:
    """Finish what was claimed and promote the next in its queue."""
    key = claim.object.key
    await tx.objects([key])
    queue = await tx.queues([key])
    changes = finished(queue[0], tx.now)
    changes.work = [replace(waiting, ready=True) for waiting in queue[1:2]]
    await tx.apply(changes)


@in_loop
async def test_no_queue_is_ever_left_without_a_promoter(postgres_dsn: str) -> None:
    appenders, rounds, left = 4, 25, 4 * 25

    async def append(store: PostgresStore, appender: int) -> None:
        for number in range(rounds):
            await store.transact(accepts(f"{appender}.{number}", "ab"[number % 2]))

    async def work(store: PostgresStore) -> None:
        nonlocal left
        while left > 0:
            for claim in await store.transact(claim_one):
                await store.transact(partial(finish, claim))
                left -= 1

    async with opened(postgres_dsn) as store, opened(postgres_dsn) as other:
        await store.transact(creates("a", "b"))
        jobs = [append((store, other)[number % 2], number) for number in range(appenders)]
        await asyncio.gather(*jobs, work(store), work(other), work(store))
        assert await store.reader.queue_of(Key(NS, "a")) == await store.reader.queue_of(Key(NS, "b")) == []


@in_loop
async def test_of_two_who_answer_the_same_key_the_later_one_reads_the_answer(postgres_dsn: str) -> None:
    read = [asyncio.Event(), asyncio.Event()]
    key = Key(NS, "k")

    async def answer(tx: Tx, me: int) -> str | None:
        known = await tx.idempotency_records([key])
        if known:
            return known[key].op
        read[me].set()
        await read[1 - me].wait()
        await tx.apply(Changes(idempotency_records=[IdempotencyRecord(NS, "k", "f", f"o{me}", "a", tx.now)]))
        return f"o{me}"

    async with opened(postgres_dsn) as store:
        one, other = await asyncio.gather(
            store.transact(lambda tx: answer(tx, 0)), store.transact(lambda tx: answer(tx, 1))
        )
    assert one == other


@in_loop
async def test_a_conflict_that_a_program_hides_is_still_rolled_back(postgres_dsn: str) -> None:
    async def hide(tx: Tx) -> None:
        try:
            await tx.apply(Changes(work=[some_work("none", "a")], journal=[an_entry("a")]))
        except WriteConflict:
            return

    async with opened(postgres_dsn) as store:
        with pytest.raises(WriteConflict):
            await store.transact(hide)
        assert await store.reader.last_journal_seq() == 0


TREES = "SELECT id FROM trees ORDER BY id"


async def locks_of(tree: str, tx: Tx) -> None:
    await tx.locks([Key(NS, tree)])


@in_loop
async def test_what_a_tree_was_locked_by_goes_with_the_object(postgres_dsn: str) -> None:
    async with opened(postgres_dsn) as store, looking_at(postgres_dsn) as connection:
        gone = replace(an_object("gone"), removed=True, since=1.0)
        await store.transact(lambda tx: tx.apply(Changes(objects=[gone, an_object("here")])))
        for tree in ("gone", "here"):
            await store.transact(partial(locks_of, tree))
        assert await store.retention.drop_objects([gone.key, Key(NS, "here")], 2.0) == 1
        assert [row[0] for row in await connection.fetch(TREES)] == ["here"]


@in_loop
async def test_a_tree_that_is_pruned_while_somebody_waits_for_it_is_locked_all_the_same(postgres_dsn: str) -> None:
    async with (
        opened(postgres_dsn) as store,
        looking_at(postgres_dsn) as pruner,
        looking_at(postgres_dsn) as connection,
    ):
        await store.transact(partial(locks_of, "a"))
        await pruner.execute("BEGIN; DELETE FROM trees")
        waiting = asyncio.create_task(store.transact(partial(locks_of, "a")))
        await until_somebody_waits(connection)
        await pruner.execute("COMMIT")
        await waiting
        assert [row[0] for row in await connection.fetch(TREES)] == ["a"]
