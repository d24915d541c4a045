"""PostgreSQL behind PgBouncer in transaction mode: nothing outlives a transaction."""

import asyncio
from functools import partial

import pytest

from stateward.store.changes import Changes
from stateward.store.errors import Unavailable, UnstorableValue
from stateward.store.port import Tx
from stateward.store.postgres import PostgresStore
from stateward.store.postgres.tx import PostgresTx
from stateward.store.records import Key
from stateward.store.topics import ALL_TOPICS, Topic
from tests.contract.samples import NS, an_entry, an_object
from tests.contract.store_calls import TopicRecorder
from tests.integration.postgres_helpers import in_loop, looking_at, opened
from tests.integration.postgres_samples import creates
from tests.integration.test_postgres_faults import names_of
from tests.poolers import PgBouncer
from tests.waiting import until

SETTINGS = (
    "transaction_isolation",
    "transaction_read_only",
    "plan_cache_mode",
    "enable_seqscan",
    "enable_hashjoin",
    "idle_in_transaction_session_timeout",
    "jit",
)


async def settings_of(tx: Tx) -> dict[str, str]:
    """Return what is in force in a transaction."""
    assert isinstance(tx, PostgresTx)
    found = {name: await tx._connection.fetchval(f"SHOW {name}") for name in SETTINGS}
    return {**found, "schema": await tx._connection.fetchval("SELECT current_schema()")}


@in_loop
async def test_many_transactions_and_reads_share_a_few_sessions(pgbouncer: PgBouncer, postgres_dsn: str) -> None:
    names = [f"{number:03}" for number in range(100)]
    async with opened(pgbouncer.url(postgres_dsn), pooled=True, direct=postgres_dsn) as store:
        await asyncio.gather(*(store.transact(creates(name)) for name in names))
        keys = [Key(NS, name) for name in names]
        found = await asyncio.gather(*(store.reader.object(key) for key in keys))
        assert [one and one.id for one in found] == names
        assert await store.transact(partial(names_of, set(keys))) == set(keys)
    async with looking_at(postgres_dsn) as connection:
        count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        assert await connection.fetchval(count) <= 3


@in_loop
async def test_a_transaction_has_the_settings_of_a_session_of_ours_and_leaves_none_behind(
    pgbouncer: PgBouncer, postgres_dsn: str
) -> None:
    url = pgbouncer.url(postgres_dsn)
    async with opened(url, pooled=True, direct=postgres_dsn) as pooled, opened(postgres_dsn) as plain:
        assert await pooled.transact(settings_of) == await plain.transact(settings_of)
        with pytest.raises(UnstorableValue):
            await pooled.reader.object(Key(NS, "a\0b"))
        assert await pooled.reader.object(Key(NS, "a")) is None
        async with looking_at(postgres_dsn) as connection:
            assert await connection.fetchval("SHOW plan_cache_mode") == "auto"
        async with pooled._writers.borrow() as connection:
            assert await connection.execute("SHOW search_path") == "SHOW"
            await connection.execute("BEGIN")
            assert await connection.fetchval("SHOW search_path") == '"$user", public'
            await connection.execute("ROLLBACK")


@in_loop
async def test_notifications_come_over_the_direct_url(pgbouncer: PgBouncer, postgres_dsn: str) -> None:
    url = pgbouncer.url(postgres_dsn)
    async with (
        opened(url, pooled=True, direct=postgres_dsn, poll_interval_s=3600) as first,
        opened(url, pooled=True, direct=postgres_dsn, poll_interval_s=3600) as second,
    ):
        ear = TopicRecorder(second)
        await first.transact(lambda tx: tx.apply(Changes(journal=[an_entry("a")])))
        await ear.hears(Topic.JOURNAL)


@in_loop
async def test_without_a_direct_url_everything_is_reported_again_and_again(
    pgbouncer: PgBouncer, postgres_dsn: str
) -> None:
    async with opened(pgbouncer.url(postgres_dsn), pooled=True, poll_interval_s=0.01) as store:
        ear = TopicRecorder(store)
        await ear.hears(Topic.WORK)
        assert ALL_TOPICS in ear.heard
        await store.transact(creates("a"))  # and the schema was migrated through the pooler


@in_loop
async def test_a_pooler_that_nobody_told_of_is_named_when_it_refuses(pgbouncer: PgBouncer, postgres_dsn: str) -> None:
    with pytest.raises(Unavailable, match="needs the setting `pooler`"):
        await PostgresStore(pgbouncer.url(postgres_dsn)).open()


@in_loop
async def test_a_pooler_that_is_killed_and_comes_back_loses_and_doubles_nothing(
    pgbouncer: PgBouncer, postgres_dsn: str
) -> None:
    names, refused = [f"{number:03}" for number in range(60)], 0

    async def write(store: PostgresStore, name: str) -> None:
        while await store.transact(partial(names_of, {Key(NS, name)})) == set():
            await store.transact(creates(name))

    async def persist(store: PostgresStore, name: str) -> None:
        nonlocal refused
        while True:
            try:
                return await write(store, name)
            except Unavailable:
                refused += 1
                await asyncio.sleep(0.02)

    async with opened(pgbouncer.url(postgres_dsn), pooled=True, direct=postgres_dsn) as store:
        await store.transact(creates("before"))
        pgbouncer.kill()
        writing = asyncio.gather(*(persist(store, name) for name in names))
        await until(lambda: refused)
        await asyncio.to_thread(pgbouncer.start)
        await writing
        keys = {Key(NS, name) for name in names}
        assert await store.transact(partial(names_of, keys)) == keys
        assert (await store.reader.object(Key(NS, "before"))) == an_object("before")
