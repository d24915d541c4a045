"""A database file that is removed or replaced while it is in use: nothing more is acknowledged."""

import asyncio
import logging
import os
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from itertools import count
from pathlib import Path

import pytest

from stateward.server.store_backup import back_up
from stateward.store import ALL_TOPICS, Changes, Selector, Topic, Tx
from stateward.store.errors import DatabaseReplaced, Unavailable
from stateward.store.sqlite import SqliteStore, writer
from stateward.store.sqlite.connections import SqliteSettings
from stateward.store.sqlite.readers import ReaderPool
from stateward.store.sqlite.shared_file import ExternalChanges, FileIdentity
from stateward.store.sqlite.writer import WriterThread
from tests.contract.samples import NS, an_object, key
from tests.contract.store_calls import TopicRecorder, stored, write

SUFFIXES = ("", "-wal", "-shm", ".lock")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give the place of a database, in a folder that can itself be renamed."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder / "stateward.db"


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    """Open a store and close it."""
    store = SqliteStore(path)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def beside(path: Path, suffix: str) -> Path:
    """Return one of the files of a database."""
    return path.with_name(path.name + suffix)


def remove(path: Path) -> None:
    path.unlink()


def rename_over(path: Path) -> None:
    shutil.copy(path, path.with_name("another"))
    path.with_name("another").rename(path)


def move_away(path: Path) -> None:
    path.rename(path.with_name("moved"))


def link_elsewhere(path: Path) -> None:
    shutil.copy(path, path.with_name("another"))
    path.unlink()
    path.symlink_to("another")


HARMS = (remove, rename_over, move_away, link_elsewhere)


@pytest.mark.parametrize("suffix", SUFFIXES, ids=lambda suffix: suffix or "database")
@pytest.mark.parametrize("harm", HARMS)
async def test_no_commit_is_acknowledged_after_a_file_was_replaced(
    path: Path, suffix: str, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path) as store:
        harm(beside(path, suffix))
        for name in ("first", "second"):
            with pytest.raises(DatabaseReplaced) as raised:
                await write(store, objects=[an_object(name)])
        assert not raised.value.retry
        assert beside(path, suffix).name in raised.value.detail
        with pytest.raises(DatabaseReplaced):
            await store.reader.object(key("before"))
        with pytest.raises(DatabaseReplaced):
            await store.reader.last_journal_seq()
    assert [one.levelno for one in caplog.records if one.name == "stateward.store"] == [logging.ERROR]
    assert "acknowledges nothing more" in caplog.text


async def test_a_file_replaced_between_begin_and_commit_is_noticed(path: Path) -> None:
    async def replacing(tx: Tx) -> None:
        await tx.apply(Changes(objects=[an_object("during")]))
        rename_over(path)

    async with opened(path) as store:
        with pytest.raises(DatabaseReplaced):
            await store.transact(replacing)


async def test_all_programs_of_a_group_are_refused(path: Path) -> None:
    async with opened(path) as store:
        remove(path)
        names = [f"o{number}" for number in range(20)]
        group = (write(store, objects=[an_object(name)]) for name in names)
        ends = await asyncio.gather(*group, return_exceptions=True)
        assert {type(end) for end in ends} == {DatabaseReplaced}


async def test_a_folder_that_was_replaced_is_noticed_and_a_store_on_the_new_one_is_left_alone(path: Path) -> None:
    first = SqliteStore(path)
    await first.open()
    await write(first, objects=[an_object("before")])
    path.parent.rename(path.parent.with_name("moved"))
    path.parent.mkdir()
    second = SqliteStore(path)
    await second.open()
    await write(second, objects=[an_object("elsewhere")])
    with pytest.raises(DatabaseReplaced):
        await write(first, objects=[an_object("lost")])
    await first.close()  # whoever closes a database last removes its log, by its name
    await write(second, objects=[an_object("after")])
    await second.close()
    async with opened(path) as third:
        assert (await stored(third, "after")).version == 1
    async with opened(path.parent.with_name("moved") / path.name) as former:
        assert await former.reader.object(key("elsewhere")) is None


async def test_a_second_store_in_the_place_of_removed_files_does_not_suffer_from_the_first(path: Path) -> None:
    first = SqliteStore(path)
    await first.open()
    await write(first, objects=[an_object("before")])
    for one in SUFFIXES:
        beside(path, one).unlink()
    second = SqliteStore(path)
    await second.open()
    await write(second, objects=[an_object("after")])
    with pytest.raises(DatabaseReplaced):
        await write(first, objects=[an_object("lost")])
    await first.close()
    await write(second, objects=[an_object("later")])
    await second.close()
    async with opened(path) as third:
        assert await third.reader.object(key("later")) is not None
        assert await third.reader.object(key("lost")) is None


async def test_a_store_at_rest_notices_by_itself_and_wakes_its_listeners(path: Path) -> None:
    async with opened(path) as store:
        ear = TopicRecorder(store)
        remove(path)
        await ear.hears(Topic.WORK)
        assert ALL_TOPICS in ear.heard
        with pytest.raises(DatabaseReplaced):
            await store.reader.object(key("before"))


async def test_a_database_that_is_overwritten_by_a_shorter_copy_is_noticed(path: Path) -> None:
    async with opened(path) as store:
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA wal_checkpoint")
        await write(store, objects=[an_object("seen")])
        path.write_bytes(path.read_bytes()[:8192])
        with pytest.raises(DatabaseReplaced, match="shrunk"):
            await write(store, objects=[an_object("lost")])
        assert path.stat().st_size == 8192, "nothing more is written into what somebody has put there"


async def test_a_copy_that_is_put_in_the_place_of_the_database_is_not_damaged_by_its_log(path: Path) -> None:
    async with opened(path) as store:
        await write(store, objects=[an_object("before")])
        back_up(path, path.with_name("copy"))
        await write(store, objects=[an_object(f"later-{number}", spec="x" * 500) for number in range(500)])
        path.with_name("copy").rename(path)
        with pytest.raises(DatabaseReplaced):
            await write(store, objects=[an_object("lost")])
    async with opened(path) as restarted:  # with the log of the other file still beside it
        assert await restarted.reader.count_states(Selector(NS)) == {("vm", "Running"): 1}
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_the_log_of_a_replaced_database_is_emptied_after_its_readers_have_ended(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "EMPTY_WAL_TIMEOUT_S", 60.0)
    async with opened(path) as store:
        await write(store, objects=[an_object("before")])
        with closing(_connected(path)) as reader, closing(_connected(path)) as other:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM objects").fetchone()
            ear = TopicRecorder(store)
            rename_over(path)
            noticed = asyncio.ensure_future(ear.hears(Topic.WORK))
            while not (noticed.done() or _is_locked(other)):
                await asyncio.sleep(0)
            reader.execute("ROLLBACK")
            await noticed
            with pytest.raises(DatabaseReplaced):
                await write(store, objects=[an_object("lost")])
        assert beside(path, "-wal").stat().st_size == 0


def _connected(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=0, isolation_level=None)


def _is_locked(connection: sqlite3.Connection) -> bool:
    """Return whether somebody writes, or waits for readers to end."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return True
    connection.execute("ROLLBACK")
    return False


async def test_a_database_that_is_moved_away_is_complete_without_its_log(path: Path) -> None:
    async with opened(path) as store:
        await write(store, objects=[an_object("before")])
        move_away(path)
        with pytest.raises(DatabaseReplaced):
            await write(store, objects=[an_object("perhaps")])
    async with opened(path.with_name("moved")) as found:
        assert await found.reader.object(key("before")) is not None


async def test_files_that_are_moved_away_and_back_are_the_same_files(path: Path) -> None:
    async with opened(path) as store:
        move_away(path)
        path.with_name("moved").rename(path)
        await write(store, objects=[an_object("after")])


async def test_a_store_that_is_opened_again_uses_the_file_that_is_there(path: Path) -> None:
    async with opened(path) as store:
        remove(path)
        with pytest.raises(DatabaseReplaced):
            await write(store, objects=[an_object("lost")])
    for suffix in SUFFIXES[1:]:
        beside(path, suffix).unlink(missing_ok=True)
    await store.open()
    await write(store, objects=[an_object("new")])
    assert await store.reader.time() > 0
    await store.close()


async def test_a_further_connection_is_not_made_to_another_file(path: Path) -> None:
    files = FileIdentity(SqliteSettings(str(path)))
    async with opened(path):
        files.remember()
        rename_over(path)
        pool = ReaderPool(SqliteSettings(str(path)), 1, files)
        with pytest.raises(DatabaseReplaced):  # though no writer has looked
            await pool.run(lambda connection: connection.execute("SELECT 1").fetchone())
        await pool.close()


def test_a_file_that_cannot_be_looked_at_is_unavailable_for_the_time_being(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "stateward.db"
    for suffix in SUFFIXES:
        beside(path, suffix).touch()
    files = FileIdentity(SqliteSettings(str(path)))
    files.remember()
    with monkeypatch.context() as broken:
        broken.setattr("os.stat", _fail)
        with pytest.raises(Unavailable):
            files.check()
    files.check()


def test_a_file_that_grows_while_two_threads_look_has_not_shrunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, looks = tmp_path / "stateward.db", count()
    for suffix in SUFFIXES:
        beside(path, suffix).touch()
    files, stat = FileIdentity(SqliteSettings(str(path))), os.stat
    files.remember()

    def look(name: str, **how: bool) -> os.stat_result:
        found = stat(name, **how)
        if next(looks) == 0:
            path.write_bytes(b"more")
            files.check()  # as another thread does
        return found

    monkeypatch.setattr("os.stat", look)
    files.check()
    assert next(looks) > 4


def _fail(_: object) -> None:
    raise PermissionError(13, "Permission denied")


async def test_the_log_is_emptied_also_when_another_thread_is_the_first_to_find_the_difference(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader may find it while the writer looks for what others have written."""
    found, emptied = threading.Event(), threading.Event()

    def find(others: ExternalChanges) -> bool:
        if not found.is_set():
            rename_over(path)
            with suppress(DatabaseReplaced):
                files.check()
            found.set()
        return bool(had_written(others))

    had_written = ExternalChanges.detect
    async with opened(path) as store:
        files = store._writer._files  # type: ignore[attr-defined]
        monkeypatch.setattr(WriterThread, "_empty_log", lambda _writer, _uow: emptied.set())
        monkeypatch.setattr(ExternalChanges, "detect", find)
        await asyncio.to_thread(found.wait, 30)
        assert await asyncio.to_thread(emptied.wait, 30)
