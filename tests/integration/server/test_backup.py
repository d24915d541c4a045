import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from stateward.engine import Engine
from stateward.server import store_backup
from stateward.server.store_backup import BackupError, BackupInfo, back_up, embedded_file, restore
from stateward.store import open_store
from stateward.store.errors import NotADatabase, StoreBusy, WrongSchema
from stateward.store.filters import JournalFilter, Page, Selector
from stateward.store.sqlite import SqliteStore
from tests.integration.server.server_processes import run, served
from tests.simulated_clouds import all_kinds

TABLES = ("objects", "operations", "work", "journal", "progress", "signals", "locks", "timers", "answers", "numbers")


def content(file: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return every row of a database."""
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    try:
        return {table: sorted(connection.execute(f"SELECT * FROM {table}"), key=str) for table in TABLES}
    finally:
        connection.close()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "stateward.db"


@pytest.fixture
async def engine(database: Path) -> AsyncIterator[Engine]:
    async with Engine(open_store(str(database)), all_kinds(), works=False) as opened:
        yield opened


async def define(engine: Engine, *names: str) -> None:
    await asyncio.gather(*(engine.create("a", name, "ovc.vm", "define") for name in names))


async def test_a_copy_made_while_much_is_written_is_one_consistent_state(
    engine: Engine, database: Path, tmp_path: Path
) -> None:
    async def writing() -> None:
        for number in range(2000):
            await engine.create("a", f"vm-{number}", "ovc.vm", "define")

    task = asyncio.create_task(writing())
    copies = [await asyncio.to_thread(back_up, database, tmp_path / f"copy-{number}.db") for number in range(5)]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    for one in copies:
        found = content(Path(one.file))
        assert len(found["objects"]) == len(found["journal"]) == one.objects == one.seq
    assert [one.seq for one in copies] == sorted(one.seq for one in copies)


async def test_what_is_restored_is_what_was_copied_and_goes_on(engine: Engine, database: Path, tmp_path: Path) -> None:
    await define(engine, *(f"vm-{number}" for number in range(50)))
    copy = tmp_path / "copy.db"
    back_up(database, copy)
    await define(engine, "later")
    elsewhere = tmp_path / "elsewhere" / "stateward.db"
    elsewhere.parent.mkdir()
    restore(copy, elsewhere, replace=False)
    assert content(elsewhere) == content(copy)
    async with Engine(open_store(str(elsewhere)), all_kinds(), works=False) as other:
        assert len(await other.store.reader.list_objects(Selector("a"), Page(limit=100))) == 50
        await define(other, "new")
        lines = await other.store.reader.journal(0, 100, JournalFilter())
        assert [line.seq for line in lines] == list(range(1, 52))


async def test_a_database_in_use_is_not_restored_into_and_loses_nothing(
    engine: Engine, database: Path, tmp_path: Path
) -> None:
    back_up(database, tmp_path / "empty.db")
    await define(engine, "vm")
    with pytest.raises(BackupError, match="is using it"):
        restore(tmp_path / "empty.db", database, replace=True)
    assert (await engine.record("a", "vm")).state == "VIRTUAL"


async def test_a_server_that_starts_during_a_restore_is_refused_and_lets_the_restore_continue(
    database: Path, tmp_path: Path
) -> None:
    async with Engine(open_store(str(database)), all_kinds(), works=False) as engine:
        await define(engine, "vm")
        back_up(database, tmp_path / "copy.db")
    with store_backup._exclusive_lock(database), closing(store_backup._connected(tmp_path / "copy.db", "ro")) as copy:
        starting = SqliteStore(database, busy_timeout_s=0.1)
        async with asyncio.timeout(60):
            with pytest.raises(StoreBusy, match="a restore"):  # it has the write lock, which the restore needs
                await starting.open()
        assert store_backup._overwrite(copy, database).objects == 1


async def test_a_restore_does_not_wait_for_a_server_that_is_starting(
    engine: Engine, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server has the write lock before it takes the servers' lock, and gives that up for a moment under it."""
    back_up(database, tmp_path / "copy.db")
    monkeypatch.setattr(store_backup, "WRITE_LOCK_TIMEOUT_S", 0.1)
    elsewhere = tmp_path / "elsewhere" / "stateward.db"
    elsewhere.parent.mkdir()
    restore(tmp_path / "copy.db", elsewhere, replace=False)
    with closing(sqlite3.connect(elsewhere, isolation_level=None)) as starting:
        starting.execute("BEGIN IMMEDIATE")
        with pytest.raises(BackupError, match="is using it"):
            restore(tmp_path / "copy.db", elsewhere, replace=True)


async def test_a_database_that_is_there_is_replaced_only_if_asked_to(database: Path, tmp_path: Path) -> None:
    async with Engine(open_store(str(database)), all_kinds(), works=False) as engine:
        await define(engine, "old")
        back_up(database, tmp_path / "copy.db")
        await define(engine, "new")
    with pytest.raises(BackupError, match="--replace"):
        restore(tmp_path / "copy.db", database, replace=False)
    restore(tmp_path / "copy.db", database, replace=True)
    assert content(database) == content(tmp_path / "copy.db")


async def test_a_copy_overwrites_nothing(engine: Engine, database: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("do not touch")
    with pytest.raises(BackupError, match="exists already"):
        back_up(database, tmp_path / "precious")
    assert (tmp_path / "precious").read_text() == "do not touch"


async def test_of_two_copies_to_one_name_the_later_one_is_refused(
    engine: Engine, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, check = tmp_path / "copy.db", store_backup._check_content

    def check_during_another_copy(connection: sqlite3.Connection, file: Path) -> BackupInfo:
        monkeypatch.setattr(store_backup, "_check_content", check)
        back_up(database, copy)
        return check(connection, file)

    monkeypatch.setattr(store_backup, "_check_content", check_during_another_copy)
    with pytest.raises(BackupError, match="the file exists already"):
        back_up(database, copy)
    assert sorted(one.name for one in tmp_path.iterdir() if "copy" in one.name) == ["copy.db"]


async def test_a_copy_is_one_file_that_only_its_owner_can_read(engine: Engine, database: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copies"
    folder.mkdir()
    back_up(database, folder / "copy.db")
    assert [file.name for file in folder.iterdir()] == ["copy.db"]
    assert (folder / "copy.db").stat().st_mode & 0o777 == 0o600


def foreign(file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE objects (x)")
    connection.commit()
    connection.close()


async def damaged(file: Path, tmp_path: Path) -> None:
    async with Engine(open_store(str(tmp_path / "whole.db")), all_kinds(), works=False) as engine:
        await define(engine, *(f"vm-{number}" for number in range(300)))
        back_up(tmp_path / "whole.db", file)
    data = bytearray(file.read_bytes())
    data[8192:40960] = b"\x55" * (40960 - 8192)
    file.write_bytes(data)


async def test_files_that_are_not_ours_are_refused_and_change_nothing(database: Path, tmp_path: Path) -> None:
    async with Engine(open_store(str(database)), all_kinds(), works=False) as engine:
        await define(engine, "vm")
    before = content(database)
    (tmp_path / "text").write_text("certainly not a database" * 100)
    foreign(tmp_path / "foreign")
    await damaged(tmp_path / "damaged", tmp_path)
    for name in ("text", "foreign", "damaged"):
        with pytest.raises((NotADatabase, BackupError)):
            restore(tmp_path / name, database, replace=True)
    with pytest.raises(BackupError, match="the file does not exist"):
        restore(tmp_path / "nowhere", database, replace=True)
    assert content(database) == before


async def test_a_copy_of_a_newer_program_is_refused(engine: Engine, database: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    back_up(database, copy)
    connection = sqlite3.connect(copy)
    connection.execute("PRAGMA user_version = 9999")
    connection.close()
    with pytest.raises(WrongSchema, match="9999"):
        restore(copy, tmp_path / "other.db", replace=False)


async def test_a_database_is_not_a_copy_of_itself(database: Path) -> None:
    async with Engine(open_store(str(database)), all_kinds(), works=False) as engine:
        await define(engine, "one")
    before = content(database)
    with pytest.raises(BackupError, match="the database itself"):
        restore(database, database, replace=True)
    assert content(database) == before


async def test_a_place_where_no_file_can_be_is_refused_with_the_reason(
    engine: Engine, database: Path, tmp_path: Path
) -> None:
    await define(engine, "one")
    for name in ("nowhere/copy.db", "x" * 255):
        with pytest.raises(BackupError, match=r"No such file|too long"):
            back_up(database, tmp_path / name)
    back_up(database, tmp_path / "copy.db")
    with pytest.raises(BackupError, match="No such file"):
        restore(tmp_path / "copy.db", tmp_path / "nowhere" / "stateward.db", replace=False)


async def test_what_is_restored_is_for_its_owner_alone(engine: Engine, database: Path, tmp_path: Path) -> None:
    await define(engine, "one")
    back_up(database, tmp_path / "copy.db")
    restore(tmp_path / "copy.db", tmp_path / "other.db", replace=False)
    assert (tmp_path / "other.db").stat().st_mode & 0o777 == 0o600


def test_nothing_is_copied_from_where_there_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="there is no database"):
        back_up(tmp_path / "nowhere.db", tmp_path / "copy.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "file"), [("x/stateward.db", "x/stateward.db"), ("sqlite:///x.db", "x.db"), ("sqlite:////x.db", "/x.db")]
)
def test_embedded_databases_are_known_by_their_file(url: str, file: str) -> None:
    assert embedded_file(url) == Path(file)


def test_a_database_on_postgresql_has_tools_of_its_own_and_its_password_stays_hidden() -> None:
    with pytest.raises(BackupError, match="pg_dump") as refused:
        embedded_file("postgresql://me:hunter2@host/db")
    assert "hunter2" not in str(refused.value) + str(refused.value.facts())


def test_a_running_server_is_copied_by_a_command_and_restored_elsewhere(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        with server.client() as client:
            for number in range(20):
                name = {"name": f"account-{number}"}
                body = {"id": f"account-{number}", "kind": "ovc.account", "spec": name, "labels": name}
                assert client.post("/api/v1/ns/a/objects", json=body).status_code == 202
        done = run("backup", str(tmp_path / "copy.db"), "--data", str(server.folder), "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["objects"] >= 21  # the accounts, the token, and what the domains need
        refused = run("restore", str(tmp_path / "copy.db"), "--data", str(server.folder), "--replace")
        assert (refused.returncode, "stop it first" in refused.stderr) == (2, True)
        token = server.token
    done = run("restore", str(tmp_path / "copy.db"), "--data", str(tmp_path / "other"))
    assert done.returncode == 0, done.stderr
    with served(tmp_path / "other") as server, server.client() as client:
        client.headers["Authorization"] = f"Bearer {token}"
        assert len(client.get("/api/v1/ns/a/objects").json()["items"]) == 20
