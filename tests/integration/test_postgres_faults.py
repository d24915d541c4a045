"""Lost connections, restarted servers and suspended processes: a clear error or a retry."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from errno import EMFILE
from functools import partial
from unittest.mock import patch

import asyncpg
import pytest
from msgspec.structs import replace

from stateward.store.changes import Changes
from stateward.store.errors import (
    NotADatabase,
    ReadOnly,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreTimeout,
    Unavailable,
    UnstorableValue,
    WriteConflict,
)
from stateward.store.port import Tx
from stateward.store.postgres import PostgresStore, connections
from stateward.store.postgres.errors import translate_error
from stateward.store.postgres.tx import PostgresTx
from stateward.store.records import Key, Object
from stateward.store.topics import ALL_TOPICS, Topic
from tests.contract.samples import NS, an_entry, an_object
from tests.contract.store_calls import TopicRecorder
from tests.integration.postgres_helpers import in_loop, kill, looking_at, opened, until_somebody_waits
from tests.integration.postgres_samples import creates
from tests.servers import PostgresServer
from tests.waiting import until

IN_TRANSACTION = "state = 'idle in transaction'"
AT_REST = "state = 'idle'"
OURS = """
SELECT count(*) FROM pg_stat_activity WHERE application_name = 'stateward' AND datname = current_database()
"""


@in_loop
async def test_a_connection_cut_in_mid_transaction_is_unavailable_and_leaves_nothing(postgres_dsn: str) -> None:
    async with opened(postgres_dsn) as store, looking_at(postgres_dsn) as connection:

        async def cut(tx: Tx) -> None:
            await tx.apply(Changes(objects=[an_object("a")], journal=[an_entry("a")]))
            assert await kill(connection, IN_TRANSACTION) == 1

        with pytest.raises(Unavailable):
            await store.transact(cut)
        assert await store.reader.object(Key(NS, "a")) is None
        await store.transact(creates("a"))
        assert await store.reader.object(Key(NS, "a")) is not None


@in_loop
async def test_connections_cut_at_rest_are_replaced_unnoticed(postgres_dsn: str) -> None:
    async with opened(postgres_dsn) as store, looking_at(postgres_dsn) as connection:
        await asyncio.gather(*(store.transact(creates(name)) for name in "abcd"))
        await asyncio.gather(*(store.reader.last_journal_seq() for _ in range(4)))
        assert await kill(connection, AT_REST) > 2
        await asyncio.gather(*(store.transact(creates(name)) for name in "efgh"))
        assert await store.reader.object(Key(NS, "h")) is not None


@pytest.mark.parametrize("mode", ["fast", "immediate"])
@in_loop
async def test_a_restart_under_load_loses_and_doubles_nothing(
    postgres_server: PostgresServer, postgres_dsn: str, mode: str
) -> None:
    writers, first, restarted = 4, 20, asyncio.Event()

    async def write(store: PostgresStore, writer: int) -> int:
        number = 0
        while number < first or not restarted.is_set():
            try:
                await store.transact(creates(f"{writer}.{number}"))
            except Unavailable:
                continue  # whether it was committed is found out by trying again
            except WriteConflict:
                pass  # it was
            number += 1
        return number

    async def restart() -> None:
        try:
            await asyncio.to_thread(postgres_server.restart, mode)  # type: ignore[arg-type]
        finally:
            restarted.set()

    async with opened(postgres_dsn) as store:
        *made, _ = await asyncio.gather(*(write(store, writer) for writer in range(writers)), restart())
        keys = {Key(NS, f"{writer}.{number}") for writer in range(writers) for number in range(made[writer] or 0)}
        await store.transact(creates("after"))
        assert await store.transact(partial(names_of, keys)) == keys


async def names_of(keys: set[Key], tx: Tx) -> set[Key]:
    return set(await tx.objects(keys))


@in_loop
async def test_a_process_that_stands_still_in_a_transaction_is_cut_off(postgres_dsn: str) -> None:
    holding, other_is_done = asyncio.Event(), asyncio.Event()

    async def stand_still(tx: Tx) -> None:
        await tx.objects([Key(NS, "a")])
        holding.set()
        await other_is_done.wait()

    async with opened(postgres_dsn) as store, opened(postgres_dsn, idle_timeout_s=1.0) as still:
        await store.transact(creates("a"))
        standing = asyncio.create_task(still.transact(stand_still))
        await holding.wait()
        assert await store.transact(partial(names_of, {Key(NS, "a")}))
        other_is_done.set()
        with pytest.raises(Unavailable):
            await standing


@in_loop
async def test_a_deadlock_is_resolved_by_running_one_of_them_again(postgres_dsn: str) -> None:
    keys = [Key(NS, "a"), Key(NS, "b")]
    holding = [asyncio.Event(), asyncio.Event()]

    async def cross(me: int, tx: Tx) -> None:
        mine = (await tx.objects([keys[me]]))[keys[me]]
        holding[me].set()
        await holding[1 - me].wait()
        theirs = (await tx.objects([keys[1 - me]]))[keys[1 - me]]
        await tx.apply(Changes(objects=[moved(mine), moved(theirs)]))

    async with opened(postgres_dsn) as store:
        await store.transact(creates("a", "b"))
        await asyncio.gather(store.transact(partial(cross, 0)), store.transact(partial(cross, 1)))
        assert [one.version for one in [await store.reader.object(key) for key in keys] if one] == [3, 3]


def moved(one: Object) -> Object:
    return replace(one, version=one.version + 1)


@in_loop
async def test_a_cancelled_transaction_leaves_nothing_and_the_connection_is_kept(postgres_dsn: str) -> None:
    holding, never = asyncio.Event(), asyncio.Event()

    async def hold(tx: Tx) -> None:
        await tx.apply(Changes(objects=[an_object("a")]))
        holding.set()
        await never.wait()

    async with opened(postgres_dsn, writers=1) as store:
        task = asyncio.create_task(store.transact(hold))
        await holding.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await store.transact(creates("a"))


@in_loop
async def test_a_transaction_cancelled_while_it_waits_lets_go(postgres_dsn: str) -> None:
    holding, may_go = asyncio.Event(), asyncio.Event()

    async def hold(tx: Tx) -> None:
        await tx.objects([Key(NS, "a")])
        holding.set()
        await may_go.wait()

    async with opened(postgres_dsn, writers=2) as store, looking_at(postgres_dsn) as connection:
        await store.transact(creates("a"))
        holder = asyncio.create_task(store.transact(hold))
        await holding.wait()
        waiter = asyncio.create_task(store.transact(partial(names_of, {Key(NS, "a")})))
        await until_somebody_waits(connection)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert await store.transact(partial(names_of, {Key(NS, "b")})) == set()
        may_go.set()
        await holder


@in_loop
async def test_an_error_of_the_program_undoes_everything_and_is_passed_on(postgres_dsn: str) -> None:
    async def fail(tx: Tx) -> None:
        await tx.apply(Changes(objects=[an_object("a")]))
        raise LookupError("mine")

    async with opened(postgres_dsn) as store:
        with pytest.raises(LookupError, match="mine"):
            await store.transact(fail)
        assert await store.reader.object(Key(NS, "a")) is None


@in_loop
async def test_a_database_made_read_only_says_so(postgres_dsn: str) -> None:
    async with opened(postgres_dsn), looking_at(postgres_dsn) as connection:
        name = await connection.fetchval("SELECT current_database()")
        await connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        store = PostgresStore(postgres_dsn)
        await store.open()
        with pytest.raises(ReadOnly):
            await store.transact(creates("a"))
        await store.close()


@contextmanager
def hasty(store: PostgresStore) -> Iterator[None]:
    """Let calls of a store wait for a second only."""
    with pytest.MonkeyPatch.context() as patch:
        for connections in (store._writers, store._readers):
            patch.setattr(connections, "answer_timeout_s", 1.0)
        yield


@in_loop
async def test_an_answer_that_never_comes_is_unavailable(postgres_dsn: str) -> None:
    holding, may_go = asyncio.Event(), asyncio.Event()

    async def hold(tx: Tx) -> None:
        await tx.objects([Key(NS, "a")])
        holding.set()
        await may_go.wait()

    async with opened(postgres_dsn) as store, opened(postgres_dsn) as other:
        await store.transact(creates("a"))
        holder = asyncio.create_task(store.transact(hold))
        await holding.wait()
        with hasty(other), pytest.raises(StoreTimeout):
            await other.transact(partial(names_of, {Key(NS, "a")}))
        may_go.set()
        await holder
        assert await other.transact(partial(names_of, {Key(NS, "a")}))


@in_loop
async def test_a_transaction_of_many_short_statements_has_one_limit(postgres_dsn: str) -> None:
    async def never_end(tx: Tx) -> None:
        while True:
            await tx.count_open_operations(NS, 1)

    async with opened(postgres_dsn) as store:
        with hasty(store), pytest.raises(StoreTimeout, match=r"within 1\.0 seconds"):
            await store.transact(never_end)
        assert await store.transact(partial(names_of, {Key(NS, "a")})) == set()


@in_loop
async def test_waiting_for_a_connection_counts_towards_the_limit(postgres_dsn: str) -> None:
    async with opened(postgres_dsn, writers=1, readers=1) as store:
        async with store._writers.borrow(), store._readers.borrow():
            with hasty(store), pytest.raises(StoreTimeout):
                await store.transact(creates("a"))
            with hasty(store), pytest.raises(StoreTimeout):
                await store.reader.last_journal_seq()
        await store.transact(creates("a"))
        assert await store.reader.object(Key(NS, "a")) is not None


@pytest.mark.parametrize(("setting", "expected"), [("statement_timeout", StoreTimeout), ("lock_timeout", StoreBusy)])
@in_loop
async def test_a_time_out_of_a_statement_is_told_apart_from_one_of_a_lock(
    postgres_dsn: str, setting: str, expected: type[StoreError]
) -> None:
    async with opened(postgres_dsn, writers=1) as limited, looking_at(postgres_dsn) as connection:
        await limited.transact(creates("a"))
        async with limited._writers.borrow() as its:
            await its.execute(f"SET {setting} = '200ms'")
        async with connection.transaction():
            await connection.execute("SELECT 1 FROM objects FOR UPDATE")
            with pytest.raises(expected) as raised:
                await limited.transact(partial(names_of, {Key(NS, "a")}))
            assert type(raised.value) is expected
            assert raised.value.retry
            assert setting.split("_")[0] in raised.value.detail
            assert ("locked" in raised.value.what) is (expected is StoreBusy)


@in_loop
async def test_a_text_that_it_cannot_hold_is_told_as_such_and_the_connection_is_kept(postgres_dsn: str) -> None:
    async with opened(postgres_dsn) as store:
        with pytest.raises(UnstorableValue):
            await store.reader.object(Key(NS, "a\0b"))
        with pytest.raises(UnstorableValue):
            await store.transact(partial(names_of, {Key(NS, "a\0b")}))
        assert await store.reader.object(Key(NS, "a")) is None


@in_loop
async def test_what_it_cannot_hold_is_not_repeated_as_it_may_be_secret(postgres_dsn: str) -> None:
    async with opened(postgres_dsn) as store:
        with pytest.raises(UnstorableValue) as raised:
            await store.reader.object(Key(NS, "hush \ud800"))
        assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (asyncpg.DiskFullError("no room"), StoreFull),
        (asyncpg.DeadlockDetectedError("circle"), WriteConflict),
        (asyncpg.SerializationError("race"), WriteConflict),
        (asyncpg.LockNotAvailableError("wait"), StoreBusy),
        (asyncpg.TooManyConnectionsError("many"), Unavailable),
        (asyncpg.CannotConnectNowError("starting"), Unavailable),
        (asyncpg.AdminShutdownError("stopping"), Unavailable),
        (asyncpg.DataCorruptedError("damaged"), NotADatabase),
        (asyncpg.DataError("no number"), UnstorableValue),
        (asyncpg.CharacterNotInRepertoireError("no text"), UnstorableValue),
        (asyncpg.FeatureNotSupportedError("migrated"), WriteConflict),
        (asyncpg.PostgresError("whatever"), StoreError),
        (ConnectionResetError("gone"), Unavailable),
        (TimeoutError(), StoreTimeout),
        (asyncpg.QueryCanceledError("statement timeout"), StoreTimeout),
    ],
)
def test_what_the_driver_says_is_told_apart(error: Exception, expected: type[StoreError]) -> None:
    translated = translate_error(error)
    assert type(translated) is expected
    assert translated.detail


@pytest.mark.parametrize("ticks", range(1, 7))
@in_loop
async def test_a_store_whose_closing_is_cut_short_leaves_no_connection_open(postgres_dsn: str, ticks: int) -> None:
    holding = asyncio.Event()

    async def hold(tx: Tx) -> None:
        await tx.objects([Key(NS, "a")])
        holding.set()
        await asyncio.sleep(0.05)  # real time: closing is cut short while it holds, or it waits for nobody

    store = PostgresStore(postgres_dsn, migrate=True)
    await store.open()
    await asyncio.gather(store.transact(creates("a")), store.reader.last_journal_seq())
    holder = asyncio.create_task(store.transact(hold))
    await holding.wait()
    closing = asyncio.create_task(store.close())
    for _ in range(ticks):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, holder, return_exceptions=True)
    async with looking_at(postgres_dsn) as connection, asyncio.timeout(30):
        await until(lambda: connection.fetchval(OURS), lambda value: not value)


def journals(name: str) -> Callable[[Tx], Awaitable[None]]:
    """Make a program that appends to the journal."""
    return lambda tx: tx.apply(Changes(journal=[an_entry(name)]))


@in_loop
async def test_a_full_descriptor_table_ends_neither_the_store_nor_its_listener(postgres_dsn: str) -> None:
    """The kernel's keepalive needs a descriptor for each new connection, and there is none for a while."""
    asked = asyncio.Event()

    def fail(_: object) -> None:
        asked.set()
        raise OSError(EMFILE, "Too many open files")

    async with opened(postgres_dsn) as store, opened(postgres_dsn) as other, looking_at(postgres_dsn) as connection:
        heard = TopicRecorder(store)
        before = await connection.fetchval(OURS)
        with patch.object(connections, "enable_keepalive", fail):
            with pytest.raises(Unavailable):
                await store.transact(journals("a"))
            asked.clear()
            await kill(connection, "query LIKE 'LISTEN%'")
            await asked.wait()
        await heard.hears(ALL_TOPICS)  # it listens again
        heard.heard.clear()
        await other.transact(journals("b"))
        await heard.hears(Topic.JOURNAL)
        assert await connection.fetchval(OURS) <= before + 1  # refused connections are closed


@in_loop
async def test_a_commit_whose_answer_is_lost_wakes_the_listeners_of_its_own_process(postgres_dsn: str) -> None:
    async with opened(postgres_dsn) as store:
        heard = TopicRecorder(store)
        commit = PostgresTx.commit

        async def commit_and_lose_the_answer(tx: PostgresTx) -> None:
            await commit(tx)
            raise StoreTimeout("no answer")

        with patch.object(PostgresTx, "commit", commit_and_lose_the_answer), pytest.raises(StoreTimeout):
            await store.transact(journals("a"))
        await heard.hears(Topic.JOURNAL)
