import asyncio
import json
import sqlite3
import subprocess
from pathlib import Path

from stateward.engine import Engine, Kind
from stateward.lifecycle import NEW, STABLE, USER, State, declare, step
from stateward.store import open_store
from stateward.store.migrations import newest
from tests.integration.server.server_processes import run
from tests.servers import PostgresServer


def migrate(database: str, *more: str) -> subprocess.CompletedProcess[str]:
    return run("migrate", "--database", database, "--json", *more)


def test_an_embedded_database_is_made_and_migrating_again_changes_nothing(tmp_path: Path) -> None:
    for _ in range(2):
        done = migrate(str(tmp_path / "s.db"))
        assert (done.returncode, json.loads(done.stdout)) == (0, {"version": newest("sqlite")})


def test_a_postgresql_database_is_migrated(postgres_server: PostgresServer) -> None:
    dsn = postgres_server.new_database()
    for _ in range(2):
        done = migrate(dsn)
        assert (done.returncode, json.loads(done.stdout)) == (0, {"version": newest("postgres")})


def test_what_is_not_a_database_is_refused_with_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_text("certainly not a database, but long enough to look like one" * 100)
    done = migrate(str(tmp_path / "s.db"))
    assert done.returncode == 2
    assert "not a Stateward database" in json.loads(done.stdout)["message"]


def test_a_newer_database_than_the_program_is_refused(tmp_path: Path) -> None:
    migrate(str(tmp_path / "s.db"))
    with sqlite3.connect(tmp_path / "s.db") as connection:
        connection.execute("PRAGMA user_version = 9999")
    connection.close()
    done = migrate(str(tmp_path / "s.db"))
    assert done.returncode == 2
    assert "9999" in json.loads(done.stdout)["message"]


class OldVm(State):
    PAUSED = "Paused", STABLE


def leave_behind(path: Path) -> None:
    """Leave a VM behind in a state that there was once."""
    former = declare("mci.vm", OldVm, (step(NEW, "create", USER, OldVm.PAUSED),), USER)

    async def run() -> None:
        async with Engine(open_store(str(path)), [Kind(former)], works=False) as engine:
            await engine.create("ns", "vm", "mci.vm")

    asyncio.run(run())


def test_a_state_that_is_gone_is_refused_until_it_is_mapped(tmp_path: Path) -> None:
    leave_behind(tmp_path / "s.db")
    refused = migrate(str(tmp_path / "s.db"))
    assert refused.returncode != 0
    assert "1 in mci.vm:Paused" in json.loads(refused.stdout)["message"]
    done = migrate(str(tmp_path / "s.db"), "--map", "mci.vm:Paused=Suspended")
    moved = [{"kind": "mci.vm", "state": "Paused", "objects": 1}]
    assert (done.returncode, json.loads(done.stdout)["moved"]) == (0, moved)
    assert migrate(str(tmp_path / "s.db")).returncode == 0


def test_a_mapping_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    done = migrate(str(tmp_path / "s.db"), "--map", "mci.vm:Paused")
    assert done.returncode == 2
    assert "KIND:OLD=NEW" in json.loads(done.stdout)["message"]
