"""Databases to measure on, filled with lamps in bulk, not by the engine."""

import asyncio
from collections.abc import Iterable
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp

import asyncpg
from msgspec.structs import astuple

from bench.engine.lamps import Lamp, lamp
from stateward.store import Store
from stateward.store.postgres.store import PostgresStore
from stateward.store.records import Object
from stateward.store.sqlite.connections import SqliteSettings, open_writer
from stateward.store.sqlite.store import SqliteStore
from tests.servers import PostgresServer
from tools.reaper import make_run_folder, start_guard

SCHEMA = "stateward"
AT_ONCE = 20_000


@cache
def server() -> PostgresServer:
    """Return the server of this run, whose commits are durable; it ends with this process."""
    return PostgresServer(durable=True)


def new_file() -> str:
    """Return where an SQLite database can be made."""
    return str(new_folder() / "bench.db")


def new_folder() -> Path:
    """Return an empty folder, which is removed when this process ends."""
    return Path(mkdtemp(dir=_run_folder()))


@cache
def _run_folder() -> Path:
    folder = make_run_folder()
    start_guard(folder)
    return folder


def new_database() -> str:
    """Return an empty database of PostgreSQL."""
    return server().new_database()


def store_at(url: str) -> Store:
    """Return the store of a place."""
    return PostgresStore(url, migrate=True) if is_postgres(url) else SqliteStore(url)


def is_postgres(url: str) -> bool:
    """Tell the two sorts apart."""
    return url.startswith("postgres")


def filled(url: str, lamps: int) -> str:
    """Make the tables of a database, put lamps into it, and return it."""
    asyncio.run(_fill(url, lamps))
    return url


async def _fill(url: str, lamps: int) -> None:
    store = store_at(url)
    await store.open()
    await store.close()
    rows = (astuple(lamp(number)) for number in range(lamps))
    if is_postgres(url):
        await _fill_postgres(url, rows)
    else:
        _fill_sqlite(url, rows)


def _fill_sqlite(path: str, rows: Iterable[tuple[object, ...]]) -> None:
    columns = Object.__struct_fields__
    connection = open_writer(SqliteSettings(path))
    connection.execute("BEGIN")
    connection.executemany(f"INSERT INTO objects ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})", rows)
    connection.execute("COMMIT")
    connection.close()


async def _fill_postgres(dsn: str, rows: Iterable[tuple[object, ...]]) -> None:
    connection = await asyncpg.connect(dsn)
    rows = iter(rows)
    while batch := list(islice(rows, AT_ONCE)):
        await connection.copy_records_to_table(
            "objects", schema_name=SCHEMA, columns=Object.__struct_fields__, records=batch
        )
    await connection.execute("VACUUM ANALYZE")
    await connection.close()


OFF = (f"UPDATE objects SET state = '{Lamp.OFF.word}', op = NULL", "DELETE FROM work")


async def switch_off(url: str) -> None:
    """Switch all lamps off and take their work away, by force."""
    if not is_postgres(url):
        connection = open_writer(SqliteSettings(url))
        patience = "PRAGMA busy_timeout = 5000"  # the store may be bringing its log over
        for statement in (patience, *OFF, "PRAGMA wal_checkpoint(TRUNCATE)"):
            connection.execute(statement)
        connection.close()
        return
    connection = await asyncpg.connect(url, server_settings={"search_path": SCHEMA})
    for statement in (*OFF, "VACUUM ANALYZE"):
        await connection.execute(statement)
    await connection.close()
