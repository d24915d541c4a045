"""Faults of the database: the engine reports a clear error or retries, and never does half of an action."""

# real time: leases expire while the store fails; work that is begun again because of it is allowed
import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncpg
import pytest

from stateward.engine import Engine
from stateward.store.errors import ReadOnly, StoreFull, StoreTimeout, Unavailable
from stateward.store.port import Store
from stateward.store.postgres import PostgresStore
from stateward.store.postgres.listener import Listener
from stateward.store.sqlite import SqliteStore
from tests.chaos.aftermath import misreplayed, query, restless, stored
from tests.chaos.conftest import NewSite
from tests.chaos.crane_kind import CraneHandlers
from tests.chaos.crane_yard import asking, count, open_yard, raise_cranes, statuses, until, witnessed
from tests.chaos.ledger import Ledger, What
from tests.chaos.processes import Site
from tests.seeds import chance
from tests.servers import PostgresServer

EVEN = range(0, 16, 2)
MEBIBYTE = 2**20


@asynccontextmanager
async def at_work(site: Site, store: Store, lease: float = 1.0, patience: float = 0.3) -> AsyncIterator[Engine]:
    """Run an engine with its own worker, and callers that are told soon."""
    handlers = CraneHandlers(Ledger(site.ledger_path, "worker"), chance("worker"), 0.02)
    async with Engine(store, handlers.kinds(), lease_s=lease) as engine:
        engine._requests._timeout_s = patience
        yield engine


async def assert_sound(site: Site, engine: Engine) -> None:
    """See that everything accepted has ended, is at rest, and is what the journal says."""
    await until(lambda: _nothing_left(site))
    found = await stored(site.store, engine.store.reader)
    assert [*restless(found), *misreplayed(found)] == []
    assert {status for status, _, _ in found.operations.values()} == {"succeeded"}


async def _nothing_left(site: Site) -> bool:
    return await count(site, "work") == 0


# --- full ------------------------------------------------------------------------------------------------------------


async def fill(engine: Engine) -> list[str]:
    """Ask until there is no more room; returns what was accepted."""
    accepted: list[str] = []
    for number in range(0, 100_000, 100):
        try:
            accepted += await raise_cranes(engine, range(number, number + 100, 2))
        except StoreTimeout:
            continue  # the last attempt was cut off by the patience, and nobody knows what it has done
        except StoreFull:
            return accepted
    raise AssertionError("there was room for everything")


async def test_a_full_database_denies_and_keeps_what_it_accepted_until_there_is_room(new_site: NewSite) -> None:
    site = new_site("sqlite", 1.0)
    await open_yard(site.store)
    async with at_work(site, SqliteStore(site.store, max_bytes=MEBIBYTE)) as engine:
        accepted = await fill(engine)
    assert await count(site, "operations") >= len(accepted) > 0
    async with at_work(site, SqliteStore(site.store)) as engine:
        await assert_sound(site, engine)
    assert set(accepted) <= {row[0] for row in await query(site.store, "SELECT id FROM operations")}


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a test a disk of its own that is soon full, where that is allowed."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]).returncode:
        pytest.skip("only root may mount a disk")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


async def test_a_full_disk_denies_and_keeps_what_it_accepted_until_there_is_room(tiny_disk: Path) -> None:
    site = Site(str(tiny_disk / "chaos.db"), tiny_disk.parent, 1.0)
    await open_yard(site.store)
    async with at_work(site, SqliteStore(site.store)) as engine:
        accepted = await fill(engine)
        subprocess.run(["mount", "-o", "remount,size=64m", tiny_disk], check=True)
        await assert_sound(site, engine)
    assert set(accepted) <= {row[0] for row in await query(site.store, "SELECT id FROM operations")}


# --- held by another -------------------------------------------------------------------------------------------------

HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


async def test_a_database_that_another_process_holds_for_long_delays_work_and_doubles_none(
    new_site: NewSite, caplog: pytest.LogCaptureFixture
) -> None:
    site = new_site("sqlite", 0.5)
    await open_yard(site.store)
    async with at_work(site, SqliteStore(site.store, busy_timeout_s=0.1), lease=0.5, patience=60) as engine:
        with subprocess.Popen(
            [sys.executable, "-c", HOLD, site.store], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as holder:
            assert holder.stdout is not None
            assert await asyncio.to_thread(holder.stdout.readline) == b"held\n"
            asked = asyncio.create_task(raise_cranes(engine, EVEN))
            await until(lambda: caplog.text.count("cannot renew its lease: the database is locked") >= 8)
            assert not asked.done()
            holder.communicate()
        assert len(await asked) == len(EVEN)
        await assert_sound(site, engine)


# --- read-only -------------------------------------------------------------------------------------------------------


async def make_read_only(dsn: str, how: str) -> None:
    """Turn a database read-only, or back, for whoever connects from now on; and cut everybody else."""
    connection = await asyncpg.connect(dsn, server_settings={"default_transaction_read_only": "off"})
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {how}")
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await connection.close()


async def test_a_database_that_turns_read_only_denies_at_once_and_work_goes_on_when_that_is_over(
    new_site: NewSite, caplog: pytest.LogCaptureFixture
) -> None:
    site = new_site("postgres", 1.0)
    await open_yard(site.store)
    async with at_work(site, PostgresStore(site.store)) as engine:
        await raise_cranes(engine, EVEN)
        await make_read_only(site.store, "on")
        with pytest.raises(ReadOnly):
            await until(lambda: _asked(engine))
        await until(lambda: "the database is read-only" in caplog.text)
        await make_read_only(site.store, "off")
        await assert_sound(site, engine)


async def _asked(engine: Engine) -> bool:
    with suppress(Unavailable):  # the connection was cut in mid-air
        await raise_cranes(engine, [1000])
    return False


# --- not there, or not ours ------------------------------------------------------------------------------------------


async def test_a_worker_waits_for_a_server_that_is_down_and_says_why(
    new_site: NewSite, postgres_server: PostgresServer
) -> None:
    site = new_site("postgres", 1.0)
    await open_yard(site.store)
    async with asking(site.store) as engine:
        await raise_cranes(engine, EVEN)
    postgres_server.control("stop", "-m", "fast", "-w")
    try:
        with pytest.raises(Unavailable):
            await asking(site.store).__aenter__()
        worker = await site.start("worker", "early", str(site.ledger_path), "--pace", "0.02")
        await until(lambda: "the database is not available" in site.log_of("early"))
    finally:
        postgres_server.restart()
    await worker.ready()
    await until(lambda: _nothing_left(site))
    assert await worker.finish() == 0
    assert await statuses(site) == ["succeeded"] * len(EVEN)


NEWER = {"sqlite": "PRAGMA user_version = 999", "postgres": "INSERT INTO schema_versions VALUES (999, 'later')"}


@pytest.mark.parametrize("sort", ["sqlite", "postgres"])
async def test_a_worker_ends_with_a_reason_where_the_schema_is_newer_than_it(new_site: NewSite, sort: str) -> None:
    site = new_site(sort, 1.0)
    await open_yard(site.store)
    await query(site.store, NEWER[sort])
    worker = await site.start("worker", "old", str(site.ledger_path))
    assert await asyncio.wait_for(worker.process.wait(), 60) != 0
    assert "version 999" in site.log_of("old")
    assert witnessed(site, What.BEGIN) == []


async def test_an_engine_that_cannot_start_leaves_nothing_open(new_site: NewSite) -> None:
    site = new_site("sqlite", 1.0)
    await open_yard(site.store)
    store = SqliteStore(site.store)

    async def broken() -> bool:
        raise Unavailable("for a test")

    store.is_sole_user = broken  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        async with at_work(site, store):
            pass
    async with at_work(site, SqliteStore(site.store)) as engine:
        assert await engine.store.is_sole_user()


async def test_an_engine_whose_end_is_cut_short_leaves_nothing_open(new_site: NewSite) -> None:
    site, ending = new_site("sqlite", 1.0), asyncio.Event()
    await open_yard(site.store)

    async def never() -> None:
        ending.set()
        await asyncio.Event().wait()

    async def live() -> None:
        async with at_work(site, SqliteStore(site.store)) as engine:
            engine._external_reports.drain = never  # type: ignore[method-assign]

    life = asyncio.create_task(live())
    await ending.wait()
    life.cancel()
    with pytest.raises(asyncio.CancelledError):
        await life
    async with at_work(site, SqliteStore(site.store)) as engine:
        assert await engine.store.is_sole_user()


@pytest.mark.parametrize("ticks", range(4))
async def test_a_store_that_loses_its_connection_while_it_is_closed_is_closed_all_the_same(
    new_site: NewSite, ticks: int
) -> None:
    store = PostgresStore(new_site("postgres", 1.0).store, migrate=True)
    await store.open()
    assert isinstance(store._listener, Listener)
    async with asyncio.timeout(30):
        while not store._listener._lost._waiters:
            await asyncio.sleep(0)
    store._listener._lost.set()
    for _ in range(ticks):
        await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await store.close()
