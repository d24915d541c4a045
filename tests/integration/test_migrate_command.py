import json
import sqlite3
import subprocess
import sys
from pathlib import Path

from stateward.store.migrations import newest
from tests.servers import PostgresServer

STATEWARD = Path(sys.executable).parent / "stateward"


def migrate(database: str) -> subprocess.CompletedProcess[str]:
    command = [str(STATEWARD), "migrate", "--database", database, "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


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
