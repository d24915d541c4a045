"""Opening SQLite: what every connection needs to be told."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

from stateward.store.errors import NotADatabase, Unavailable
from stateward.store.sqlite.faults import fault
from stateward.store.sqlite.settings import Settings
from stateward.store.sqlite.turns import retry_while_busy

PAGE_BYTES = 4096
STATEMENTS = 512  # prepared ones to keep: each way of writing has one for each size of batch
OLDEST = (3, 35, 0)


def open_writer(settings: Settings) -> sqlite3.Connection:
    """Open the connection that writes; the file is made if there is none."""
    _check_place(settings)
    return _prepared(_connect(settings, timeout=settings.busy_timeout), _prepare_writer, settings)


def open_reader(settings: Settings) -> sqlite3.Connection:
    """Open a connection that only reads; it may be lent from thread to thread."""
    connection = _connect(settings, timeout=settings.busy_timeout, shared=True)
    return _prepared(connection, _prepare_reader, settings)


def open_checkpointer(settings: Settings) -> sqlite3.Connection:
    """Open a connection that brings the log into the database."""
    return _prepared(_connect(settings, timeout=settings.busy_timeout), _prepare_checkpointer, settings)


def _connect(settings: Settings, *, timeout: float, shared: bool = False) -> sqlite3.Connection:
    try:
        return sqlite3.connect(
            settings.path,
            timeout=timeout,
            isolation_level=None,
            check_same_thread=not shared,
            cached_statements=STATEMENTS,
        )
    except sqlite3.Error as error:
        raise fault(error) from error


def _prepared(
    connection: sqlite3.Connection, prepare: Callable[[sqlite3.Connection, Settings], None], settings: Settings
) -> sqlite3.Connection:
    try:
        prepare(connection, settings)
    except sqlite3.Error as error:
        connection.close()
        raise fault(error) from error
    return connection


def _prepare_reader(connection: sqlite3.Connection, settings: Settings) -> None:
    connection.execute(f"PRAGMA cache_size = -{settings.cache_bytes // 4 // 1024}")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA query_only = ON")


def _prepare_checkpointer(connection: sqlite3.Connection, settings: Settings) -> None:
    connection.execute(f"PRAGMA synchronous = {settings.synchronous}")
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # until it has read, it knows of no log


def _prepare_writer(connection: sqlite3.Connection, settings: Settings) -> None:
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # here it shows whether it is a database
    # Of two that change the mode of a new file at once, SQLite refuses one without waiting.
    retry_while_busy(connection, "PRAGMA journal_mode = WAL", settings.busy_timeout)
    connection.execute(f"PRAGMA synchronous = {settings.synchronous}")
    connection.execute(f"PRAGMA cache_size = -{settings.cache_bytes // 1024}")
    connection.execute(f"PRAGMA cache_spill = {settings.spill_bytes // PAGE_BYTES}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {settings.log_bytes // PAGE_BYTES}").fetchone()
    connection.execute(f"PRAGMA journal_size_limit = {4 * settings.log_bytes}").fetchone()
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA secure_delete = OFF").fetchone()
    connection.execute("PRAGMA busy_timeout = 0").fetchone()  # from here on, whoever begins to write waits by itself
    if settings.max_bytes is not None:
        connection.execute(f"PRAGMA max_page_count = {settings.max_bytes // PAGE_BYTES}").fetchone()


def _check_place(settings: Settings) -> None:
    if sqlite3.sqlite_version_info < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise Unavailable(f"SQLite {needed} or newer is needed, and this is {sqlite3.sqlite_version}")
    path = Path(settings.path)
    if settings.in_memory:
        return
    if path.is_dir():
        raise NotADatabase(f"{path} is a folder")
    if not path.parent.is_dir():
        raise Unavailable(f"there is no folder {path.parent}")
