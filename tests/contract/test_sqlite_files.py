"""Faulty database files, and the error of each."""

import asyncio
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from stateward.store import Changes, Selector, Tx
from stateward.store.errors import NotADatabase, ReadOnly, StoreBusy, StoreError, StoreFull, Unavailable, WrongSchema
from stateward.store.sqlite import SqliteStore
from tests.contract.samples import NS, an_object, key, moved
from tests.contract.store_calls import stored, write

NOBODY = 65534
ROOMY = 300 * 4096


@asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[SqliteStore]:
    """Open a store and close it."""
    store = SqliteStore(path, **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def failure(path: Path, **options: Any) -> StoreError:
    """Return what opening a store raises."""
    with pytest.raises(StoreError) as raised:
        await SqliteStore(path, **options).open()
    return raised.value


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """Give a folder that everybody can look into."""
    folder = Path(mkdtemp(prefix="stateward-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give the place of a database."""
    return tmp_path / "stateward.db"


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    error = await failure(tmp_path / "nowhere" / "x.db")
    assert isinstance(error, Unavailable)
    assert f"there is no folder {tmp_path / 'nowhere'}" in str(error)


async def test_a_folder_is_not_a_database(tmp_path: Path) -> None:
    error = await failure(tmp_path)
    assert isinstance(error, NotADatabase)
    assert "is a folder" in str(error)


@pytest.mark.parametrize("inline", [False, True])
async def test_another_kind_of_file_is_refused_and_left_alone(path: Path, inline: bool) -> None:
    path.write_text("shopping list\n" * 1000)
    assert isinstance(await failure(path, inline=inline), NotADatabase)
    assert path.read_text().startswith("shopping list")
    assert list(path.parent.iterdir()) == [path]


async def test_the_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE objects (id)")
    error = await failure(path)
    assert isinstance(error, NotADatabase)
    assert "another program" in str(error)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("objects",)]


async def test_a_damaged_database_is_called_so(path: Path) -> None:
    async with opened(path) as store:
        await write(store, objects=[an_object("a")])
    content = path.read_bytes()
    path.write_bytes(content[:100] + bytes(byte ^ 0x5A for byte in content[100:]))
    assert isinstance(await failure(path), NotADatabase)


async def test_an_empty_file_becomes_a_database(path: Path) -> None:
    path.touch()
    async with opened(path) as store:
        await write(store, objects=[an_object("a")])


async def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    async with opened(path):
        pass
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 999")
    error = await failure(path)
    assert isinstance(error, WrongSchema)
    assert "version 999" in str(error)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA user_version").fetchone() == (999,)


async def test_several_may_make_the_database_at_the_same_time(path: Path) -> None:
    stores = [SqliteStore(path) for _ in range(5)]
    await asyncio.gather(*(store.open() for store in stores))
    await asyncio.gather(*(write(store, objects=[an_object(f"o{number}")]) for number, store in enumerate(stores)))
    assert sum((await stores[0].reader.count_states(Selector(NS))).values()) == 5
    await asyncio.gather(*(store.close() for store in stores))


async def test_whoever_finds_a_new_file_locked_by_its_maker_waits(path: Path) -> None:
    maker = sqlite3.connect(path, isolation_level=None)
    maker.execute("BEGIN IMMEDIATE")  # SQLite itself refuses to change the mode of such a file at once
    store = SqliteStore(path)
    opening = asyncio.create_task(store.open())
    await asyncio.sleep(0.1)  # real time: whenever it comes to the file, it is opened
    maker.execute("ROLLBACK")
    maker.close()
    await opening
    await store.close()


async def test_a_lock_file_that_cannot_be_had_is_named(path: Path) -> None:
    path.with_name("stateward.db.lock").mkdir()
    error = await failure(path)
    assert isinstance(error, Unavailable)
    assert "stateward.db.lock" in str(error)


@pytest.mark.parametrize("what", ["file", "folder"])
async def test_a_database_that_cannot_be_written_is_read_only(open_to_all: Path, what: str) -> None:
    path = open_to_all / "stateward.db"
    async with opened(path):
        pass
    path.chmod(0o444 if what == "file" else 0o666)
    path.with_name("stateward.db.lock").chmod(0o666)
    open_to_all.chmod(0o777 if what == "file" else 0o555)
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        error = await failure(path)
    finally:
        os.seteuid(before)
    assert isinstance(error, ReadOnly if what == "file" else ReadOnly | Unavailable), error


async def test_a_database_that_another_process_holds_is_busy_for_a_while(path: Path) -> None:
    async with opened(path, busy_timeout_s=0.02) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusy) as raised:
                await write(store, objects=[an_object("a")])
            assert raised.value.retry
            assert await store.reader.object(key("a")) is None
            other.execute("ROLLBACK")
        await write(store, objects=[an_object("a")])


async def test_a_database_that_is_held_cannot_be_opened(path: Path) -> None:
    async with opened(path):
        pass
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert isinstance(await failure(path, busy_timeout_s=0.02), StoreBusy)


async def test_a_full_disk_undoes_the_program_and_nothing_else(path: Path) -> None:
    async with opened(path, max_bytes=ROOMY) as store:
        first = an_object("first", spec="x" * 100)
        await write(store, objects=[first])
        with pytest.raises(StoreFull) as raised:
            await write(store, objects=[moved(first), *(an_object(f"o{n}", spec="x" * 5000) for n in range(1000))])
        assert raised.value.retry
        assert await stored(store, "first") == first
        assert await store.reader.count_states(Selector(NS)) == {("vm", "Running"): 1}
        await write(store, objects=[moved(first, state="Suspended")])
        assert (await stored(store, "first")).state == "Suspended"


async def test_a_program_that_does_not_fit_harms_nobody_in_its_group(path: Path) -> None:
    def adding(name: str, size: int) -> Any:
        async def function(tx: Tx) -> str:
            await tx.apply(Changes(objects=[an_object(name, spec="x" * size)]))
            return name

        return function

    async with opened(path, max_bytes=ROOMY) as store:
        programs = [adding(f"o{n}", 100 * ROOMY if n == 5 else 10) for n in range(10)]
        ends = await asyncio.gather(*map(store.transact, programs), return_exceptions=True)
        assert isinstance(ends[5], StoreFull)
        assert [end for end in ends if isinstance(end, str)] == [f"o{n}" for n in range(10) if n != 5]
        assert await store.reader.count_states(Selector(NS)) == {("vm", "Running"): 9}
