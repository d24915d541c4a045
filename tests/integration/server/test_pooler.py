"""Servers on a PostgreSQL behind PgBouncer in transaction mode, as processes."""

from pathlib import Path

import msgspec
import pytest
from websockets.sync.client import ClientConnection, connect

from tests.integration.server.server_processes import PATIENT, run, served
from tests.integration.server.test_serve import created, settled
from tests.long_forms import in_long_form
from tests.poolers import PgBouncer
from tests.servers import PostgresServer


@pytest.fixture
def database(postgres_server: PostgresServer) -> str:
    return postgres_server.new_database()


def read_until_running(stream: ClientConnection, names: list[str]) -> None:
    """Read a stream until it has said of every object that it runs."""
    missing = {f"m.{name}" for name in names}
    while missing:
        said = msgspec.json.decode(stream.recv(PATIENT))
        missing -= {line["object"] for line in said.get("lines", ()) if line["target"] == "Running"}


@pytest.mark.parametrize("direct", in_long_form((True, False), short=(False,)), ids=["direct", "polling"])
def test_two_servers_stream_and_work_through_a_pooler_that_is_killed_and_comes_back(
    tmp_path: Path, database: str, pgbouncer: PgBouncer, direct: bool
) -> None:
    url = pgbouncer.url(database)
    migrated = run("migrate", "--database", url, environ={"STATEWARD_DIRECT_URL": database})
    assert migrated.returncode == 0, migrated.stderr
    flags = ("--database", url, "--pooler", "--lease", "3", *(("--direct-url", database) if direct else ()))
    first, second = [f"vm-{number}" for number in range(5)], [f"vm-{number}" for number in range(5, 10)]
    with (
        served(tmp_path / "one", *flags) as worker,
        served(tmp_path / "two", "--no-worker", *flags) as other,
        worker.client() as client,
        connect(
            other.url.replace("http", "ws") + "/api/v1/stream",
            additional_headers={"Authorization": f"Bearer {worker.token}"},
            proxy=None,
        ) as stream,
    ):
        stream.send("{}")
        assert {created(client, name).status_code for name in first} == {202}
        read_until_running(stream, first)
        pgbouncer.kill()
        assert client.get("/readyz").status_code == 503
        pgbouncer.start()
        assert {created(client, name).status_code for name in second} == {202}
        read_until_running(stream, second)
        assert set(settled(client, first + second).values()) == {"Running"}
        assert (other.stop(), worker.stop()) == (0, 0)
    assert "Traceback" not in worker.output + other.output
