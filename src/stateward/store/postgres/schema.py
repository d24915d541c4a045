"""Bringing a database up to this version's schema, by one process at a time."""

import asyncio

from stateward.store.errors import Conflict
from stateward.store.migrations import pending, require_current
from stateward.store.postgres.connections import Connection, quoted
from stateward.store.postgres.faults import FAULTS, fault
from stateward.store.postgres.names import Names

VERSIONS = """
CREATE TABLE IF NOT EXISTS schema_versions (
    version  integer PRIMARY KEY,
    name     text NOT NULL,
    applied  timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""


ATTEMPTS = 10
"""How often it is tried where those who are at work are in the way."""


async def migrate(connection: Connection, begin: str, schema: str, names: Names) -> None:
    """Apply what is pending, all of it or nothing; whoever comes at the same time waits and finds it done."""
    for attempt in range(1, ATTEMPTS):
        try:
            return await _migrate(connection, begin, schema, names)
        except Conflict:
            await connection.execute("ROLLBACK")
            await asyncio.sleep(0.1 * attempt)
    return await _migrate(connection, begin, schema, names)


async def _migrate(connection: Connection, begin: str, schema: str, names: Names) -> None:
    try:
        await connection.execute(begin)
        await connection.execute("SELECT pg_advisory_xact_lock($1)", names.migration_lock)
        for one in pending("postgres", await version_of(connection)):
            if await connection.fetchval("SELECT to_regnamespace($1)", quoted(schema)) is None:
                await connection.execute(f"CREATE SCHEMA {quoted(schema)}")
            await connection.execute(VERSIONS)
            await connection.execute(one.sql)
            await connection.execute("INSERT INTO schema_versions VALUES ($1, $2)", one.version, one.name)
        await connection.execute("COMMIT")
    except FAULTS as error:
        raise fault(error) from error


async def check(connection: Connection, begin: str) -> None:
    """Refuse a database whose schema is not this version's."""
    try:
        await connection.execute(begin)
        version = await version_of(connection)
        await connection.execute("COMMIT")
        require_current("postgres", version)
    except FAULTS as error:
        raise fault(error) from error


async def version_of(connection: Connection) -> int:
    """Return the version of the schema; 0 where there is none."""
    if await connection.fetchval("SELECT to_regclass('schema_versions')") is None:
        return 0
    return int(await connection.fetchval("SELECT coalesce(max(version), 0) FROM schema_versions"))
