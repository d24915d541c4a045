"""SQLite connections: settings, pragmas, the start of transactions, and schema migration.

SQLite's own busy handler sleeps up to 100 ms, and a process that has just written begins again before a sleeper wakes:
with three busy processes one of them waits for seconds. `begin_write` retries about every half millisecond instead.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import uniform
from typing import Literal

from msgspec import Struct

from stateward.store.errors import NotADatabase, Unavailable
from stateward.store.migrations import pending
from stateward.store.sqlite.errors import translate_error

Synchronous = Literal["FULL", "NORMAL", "OFF"]

MEMORY = ":memory:"
LOG_BYTES = 16 * 2**20


class SqliteSettings(Struct, frozen=True):
    """The path, durability, busy timeout and size limits of a database."""

    path: str
    synchronous: Synchronous = "FULL"
    busy_timeout_s: float = 5.0
    max_bytes: int | None = None  # the maximum size of the database
    cache_bytes: int = 8 * 2**20  # the system caches the rest of the file; a larger cache makes commits slower
    spill_bytes: int = 64 * 2**20  # a transaction spills to the WAL before its commit above this size
    log_bytes: int = LOG_BYTES  # the size of the WAL at which a checkpoint begins

    @property
    def in_memory(self) -> bool:
        """Whether the database has no file."""
        return self.path == MEMORY

    @property
    def log_path(self) -> Path:
        """The WAL. SQLite puts it beside the file itself, not beside a symbolic link to the file."""
        return Path(f"{Path(self.path).resolve()}-wal")

    @property
    def lock_path(self) -> Path:
        """The lock file by which processes detect each other."""
        return Path(f"{self.path}.lock")


BUSY_PAUSE_MIN_S, BUSY_PAUSE_MAX_S = 0.0001, 0.001


def begin_write(connection: sqlite3.Connection, timeout_s: float) -> None:
    """Begin a write transaction; waits for other processes up to the timeout."""
    retry_while_busy(connection, "BEGIN IMMEDIATE", timeout_s)


def retry_while_busy(connection: sqlite3.Connection, statement: str, timeout_s: float) -> None:
    """Execute a statement that needs a file lock; retries up to the timeout while another process holds the lock."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            connection.execute(statement).fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
        else:
            return
        time.sleep(uniform(BUSY_PAUSE_MIN_S, BUSY_PAUSE_MAX_S))  # noqa: S311 - only spreads attempts


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Run several statements on one snapshot. Keep it short: the WAL cannot be reset meanwhile."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


PAGE_BYTES = 4096
CACHED_STATEMENTS = 512  # prepared ones to keep: each way of writing has one for each size of batch
MIN_SQLITE_VERSION = (3, 35, 0)


def open_writer(settings: SqliteSettings) -> sqlite3.Connection:
    """Open the writer connection; creates the file if it does not exist."""
    _check_place(settings)
    return _prepared(_connect(settings, timeout=settings.busy_timeout_s), _prepare_writer, settings)


def open_reader(settings: SqliteSettings) -> sqlite3.Connection:
    """Open a read-only connection that any thread may use."""
    connection = _connect(settings, timeout=settings.busy_timeout_s, shared=True)
    return _prepared(connection, _prepare_reader, settings)


def open_checkpointer(settings: SqliteSettings) -> sqlite3.Connection:
    """Open the connection that runs checkpoints."""
    return _prepared(_connect(settings, timeout=settings.busy_timeout_s), _prepare_checkpointer, settings)


def _connect(settings: SqliteSettings, *, timeout: float, shared: bool = False) -> sqlite3.Connection:
    try:
        return sqlite3.connect(
            settings.path,
            timeout=timeout,
            isolation_level=None,
            check_same_thread=not shared,
            cached_statements=CACHED_STATEMENTS,
        )
    except sqlite3.Error as error:
        raise translate_error(error) from error


def _prepared(
    connection: sqlite3.Connection,
    prepare: Callable[[sqlite3.Connection, SqliteSettings], None],
    settings: SqliteSettings,
) -> sqlite3.Connection:
    try:
        prepare(connection, settings)
    except sqlite3.Error as error:
        connection.close()
        raise translate_error(error) from error
    return connection


def _prepare_reader(connection: sqlite3.Connection, settings: SqliteSettings) -> None:
    connection.execute(f"PRAGMA cache_size = -{settings.cache_bytes // 4 // 1024}")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA query_only = ON")


def _prepare_checkpointer(connection: sqlite3.Connection, settings: SqliteSettings) -> None:
    connection.execute(f"PRAGMA synchronous = {settings.synchronous}")
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # SQLite opens the WAL on the first read


def _prepare_writer(connection: sqlite3.Connection, settings: SqliteSettings) -> None:
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # fails if the file is not a database
    # If two connections change the mode of a new file at once, SQLite fails one of them without waiting.
    retry_while_busy(connection, "PRAGMA journal_mode = WAL", settings.busy_timeout_s)
    connection.execute(f"PRAGMA synchronous = {settings.synchronous}")
    connection.execute(f"PRAGMA cache_size = -{settings.cache_bytes // 1024}")
    connection.execute(f"PRAGMA cache_spill = {settings.spill_bytes // PAGE_BYTES}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {settings.log_bytes // PAGE_BYTES}").fetchone()
    connection.execute(f"PRAGMA journal_size_limit = {4 * settings.log_bytes}").fetchone()
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA secure_delete = OFF").fetchone()
    connection.execute("PRAGMA busy_timeout = 0").fetchone()  # `begin_write` waits by itself
    if settings.max_bytes is not None:
        connection.execute(f"PRAGMA max_page_count = {settings.max_bytes // PAGE_BYTES}").fetchone()


def _check_place(settings: SqliteSettings) -> None:
    if sqlite3.sqlite_version_info < MIN_SQLITE_VERSION:
        needed = ".".join(map(str, MIN_SQLITE_VERSION))
        raise Unavailable(f"SQLite {needed} or newer is needed, and this is {sqlite3.sqlite_version}")
    path = Path(settings.path)
    if settings.in_memory:
        return
    if path.is_dir():
        raise NotADatabase(f"{path} is a folder")
    if not path.parent.is_dir():
        raise Unavailable(f"there is no folder {path.parent}")


APPLICATION = 0x53574444
"""Identifies the file as a Stateward database, in the header field that SQLite reserves for this."""


def migrate_schema(connection: sqlite3.Connection) -> None:
    """Apply the pending migrations within the open transaction; raises `WrongSchema` for a newer schema."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION and tables:
        raise NotADatabase("it is an SQLite database of another program")
    for migration in pending("sqlite", version):
        for statement in _statements(migration.sql):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {migration.version}")


@cache  # bounded by: the migrations
def _statements(script: str) -> tuple[str, ...]:
    """Split a script into statements, because `executescript` commits the open transaction first."""
    statements, statement = list[str](), ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            statements.append(statement)
            statement = ""
    return tuple(statements)
