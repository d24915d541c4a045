"""Databases of the version before are opened and continued, with the operations that were under way in them.

`sqlite.tar.gz` and `postgres.tar.gz` are data folders that `tests.stored.write` made with the version before 0.2.0: its
server and its agent were killed while operations of all five domains were under way.
"""

import asyncio
import sqlite3
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from typer.testing import CliRunner

from stateward.cli.main import app as command_line
from tests.integration.server.server_processes import Process, Served, served
from tests.servers import PostgresServer
from tests.stored.write import NS, agent_arguments

HERE = Path(__file__).parent
PATIENCE_S = 120.0
ENDED = ("succeeded", "failed", "cancelled")
LATEST = {
    "sqlite": "SELECT max(at) FROM journal",
    "postgres": "SELECT max(at) FROM stateward.journal",
}
TIMES = {
    "sqlite": "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c"
    " WHERE m.type = 'table' AND c.type = 'REAL'",
    "postgres": "SELECT 'stateward.' || table_name, column_name FROM information_schema.columns"
    " JOIN information_schema.tables USING (table_schema, table_name)"
    " WHERE table_schema = 'stateward' AND table_type = 'BASE TABLE' AND data_type = 'double precision'",
}
"""The columns that may have a time, which is a number of seconds since 1970."""


class Stored:
    """A database of the version before, in a folder of its own."""

    def __init__(self, store: str, folder: Path, database: str) -> None:
        self.store, self.folder, self.database = store, folder, database

    def query(self, sql: str) -> list[Any]:
        """Ask the database directly."""
        if self.database:
            return asyncio.run(self._fetch(sql))
        with closing(sqlite3.connect(self.folder / "stateward.db", timeout=PATIENCE_S)) as connection, connection:
            return connection.execute(sql).fetchall()

    async def _fetch(self, sql: str) -> list[Any]:
        connection = await asyncpg.connect(self.database)
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    def table(self, name: str) -> str:
        """Return what a table is called there."""
        return f"stateward.{name}" if self.database else name

    def move_to_now(self) -> None:
        """Let what was stored have happened just now: deadlines that have passed would end what is to go on."""
        age = time.time() - self.query(LATEST[self.store])[0][0]
        for table, column in self.query(TIMES[self.store]):
            self.query(f"UPDATE {table} SET {column} = {column} + {age} WHERE {column} > 1000000000")

    def open_operations(self) -> dict[str, str]:
        """Return the operations that have not ended, with their kinds."""
        found = self.query(f"SELECT id, kind FROM {self.table('operations')} WHERE status NOT IN {ENDED}")
        return {row[0]: row[1] for row in found}

    def journal(self) -> list[tuple[Any, ...]]:
        """Return the journal."""
        return self.query(f"SELECT seq, object, op, event, target, reason FROM {self.table('journal')} ORDER BY seq")

    @contextmanager
    def served(self) -> Iterator[Served]:
        """Serve it with the version of now, with the agent of its cloudlet."""
        environ = {"STATEWARD_DATABASE": self.database} if self.database else {}
        with served(self.folder, "--lease", "5", "--history", "0", environ=environ) as server:
            agent = Process(self.folder, *agent_arguments(server.url, self.folder))
            try:
                yield server
            finally:
                agent.stop()


@pytest.fixture(params=["sqlite", "postgres"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Stored:
    """Unpack a database."""
    return unpack(request.param, tmp_path / "data", request)


def unpack(store: str, folder: Path, request: pytest.FixtureRequest) -> Stored:
    """Unpack a database, as if it had been written just now, with the tables of this version."""
    database = ""
    with tarfile.open(HERE / f"{store}.tar.gz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2, of Debian 12, has none yet
        archive.extractall(folder)
    if store == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        database = server.new_database()
        server.load(database, (folder / "dump.sql").read_bytes())
    found = Stored(store, folder, database)
    found.move_to_now()
    if database:  # as docs/howto/upgrade.md says; an embedded database is migrated by the server
        done = CliRunner().invoke(command_line, ["migrate", "--database", database])
        assert done.exit_code == 0, done.output
    return found


def wait_until_ended(stored: Stored, operations: dict[str, str]) -> None:
    """Wait until operations have ended."""
    end = time.monotonic() + PATIENCE_S
    while left := stored.open_operations().keys() & operations:
        assert time.monotonic() < end, {one: operations[one] for one in left}
        time.sleep(0.1)


def test_what_was_under_way_in_every_domain_ends_well_and_once(stored: Stored) -> None:
    before, under_way = stored.journal(), stored.open_operations()
    assert {kind.partition(".")[0] for kind in under_way.values()} >= {"mci", "edge", "ovc", "systems"}
    with stored.served() as server, server.client() as client:
        wait_until_ended(stored, under_way)
        after = stored.journal()
        assert after[: len(before)] == before
        statuses = dict(stored.query(f"SELECT id, status FROM {stored.table('operations')}"))
        assert Counter(statuses[one] for one in under_way) == {"succeeded": len(under_way)}
        states = Counter(
            (one["kind"], one["state"]) for one in client.get(f"/api/v1/ns/{NS}/objects?limit=1000").json()["items"]
        )
        assert states["mci.vm", "Running"] == 15
        assert states["edge.clusterinst", "Ready"] == 1
        assert states["systems.service", "stable"] == 2
        again = client.post(
            f"/api/v1/ovc/{NS}/machines/{stopped(stored)}/stop", headers={"Idempotency-Key": "stop-a-machine"}
        )
        assert again.status_code == 202, again.text
        assert again.json()["operation"] in under_way


def stopped(stored: Stored) -> str:
    """Return the machine that was being stopped."""
    found: str = stored.query(f"SELECT object FROM {stored.table('operations')} WHERE action = 'stop'")[0][0]
    return found


def test_new_actions_are_accepted_and_carried_out_on_what_was_stored(stored: Stored) -> None:
    with stored.served() as server, server.client() as client:
        wait_until_ended(stored, stored.open_operations())
        assert client.get(f"/tumblebug/ns/{NS}/control/mci/fleet?action=suspend").status_code == 200
        wait_until_ended(stored, stored.open_operations())
        vms = client.get(f"/api/v1/ns/{NS}/objects?parent=fleet&limit=100").json()["items"]
        assert {one["state"] for one in vms if one["kind"] == "mci.vm"} == {"Suspended"}
        leases = client.get(f"/ns/{NS}/blazar/v1/leases").json()["leases"]
        assert {one["name"]: one["status"] for one in leases} == {"now": "ACTIVE", "later": "PENDING"}
        for one in leases:
            assert client.delete(f"/ns/{NS}/blazar/v1/leases/{one['id']}").status_code < 300
