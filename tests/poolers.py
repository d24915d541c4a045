"""A real PgBouncer in transaction mode before the tests' PostgreSQL; it listens on a Unix socket and nowhere else."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.servers import PostgresServer
from tools.reaper import make_run_folder, start_guard

PORT = 6432
PATIENT = 60.0
SETTINGS = """
[databases]
* = host={server} user={user}
[pgbouncer]
unix_socket_dir = {folder}
listen_addr =
listen_port = {port}
auth_type = any
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 200
server_check_delay = 0
query_wait_timeout = 20
"""


class PgBouncer:
    """A pooler with a few sessions for all of its clients."""

    def __init__(self, server: PostgresServer, size: int = 3) -> None:
        self._server = server
        self.folder = make_run_folder()
        start_guard(self.folder)
        self._size = size
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, dsn: str) -> str:
        """Return the URL by which a database is reached through the pooler; starts it with the first one."""
        parts = urlsplit(dsn)
        if self._process is None:
            self._configure(parse_qs(parts.query)["host"][0], parts.username or "postgres")
            self.start()
        return parts._replace(query=f"host={self.folder}&port={PORT}").geturl()

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        as_user = [] if os.geteuid() else ["-u", self._server.user or "nobody"]
        command = ["pgbouncer", "-q", *as_user, str(self.folder / "pgbouncer.ini")]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + PATIENT
        while not self._answers():
            assert self._process.poll() is None, f"pgbouncer has ended with {self._process.returncode}"
            assert time.monotonic() < end, "pgbouncer does not answer"
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENT)

    def stop(self) -> None:
        """Kill it and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder)

    def _configure(self, server: str, user: str) -> None:
        text = SETTINGS.format(server=server, user=user, folder=self.folder, port=PORT, size=self._size)
        (self.folder / "pgbouncer.ini").write_text(text)
        if self._server.user is not None:
            for path in (self.folder, self.folder / "pgbouncer.ini"):
                shutil.chown(path, self._server.user)
        self.folder.chmod(0o755)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as line:
            return line.connect_ex(str(self.folder / f".s.PGSQL.{PORT}")) == 0


@pytest.fixture(scope="session")
def pgbouncer(postgres_server: PostgresServer) -> Iterator[PgBouncer]:
    """Give the tests a pooler, where Debian's package is installed."""
    if shutil.which("pgbouncer") is None:
        pytest.skip("pgbouncer is not installed (apt-get install pgbouncer): poolers are NOT tested here")
    pooler = PgBouncer(postgres_server)
    yield pooler
    pooler.stop()
