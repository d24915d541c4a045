"""The store on PostgreSQL, for any number of processes, and the migration of its schema."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import TypeVar

from msgspec.structs import replace

from stateward.aio.supervise import close_each
from stateward.config import masked
from stateward.store.errors import Unavailable, WriteConflict
from stateward.store.migrations import pending, require_current
from stateward.store.port import TxFunction
from stateward.store.postgres import connections
from stateward.store.postgres.errors import DRIVER_ERRORS, is_lost, is_worth_reconnecting, translate_error
from stateward.store.postgres.listener import Listener, Poller, SchemaNames
from stateward.store.postgres.queries import TX_START
from stateward.store.postgres.readers import PostgresReader
from stateward.store.postgres.retention import PostgresRetention
from stateward.store.postgres.tx import PostgresTx
from stateward.store.topics import NO_TOPICS, Topic

VERSIONS = """
CREATE TABLE IF NOT EXISTS schema_versions (
    version  integer PRIMARY KEY,
    name     text NOT NULL,
    applied  timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""


MIGRATION_ATTEMPTS = 10
"""The attempts of a migration that conflicts with running transactions."""


async def migrate_schema(connection: connections.DriverConnection, begin: str, schema: str, names: SchemaNames) -> None:
    """Apply the pending migrations in one transaction; a second process waits and finds them applied."""
    for attempt in range(1, MIGRATION_ATTEMPTS):
        try:
            return await _migrate_once(connection, begin, schema, names)
        except WriteConflict:
            await connection.execute("ROLLBACK")
            await asyncio.sleep(0.1 * attempt)
    return await _migrate_once(connection, begin, schema, names)


async def _migrate_once(connection: connections.DriverConnection, begin: str, schema: str, names: SchemaNames) -> None:
    try:
        await connection.execute(begin)
        await connection.execute("SELECT pg_advisory_xact_lock($1)", names.migration_lock)
        for migration in pending("postgres", await _version_of(connection)):
            if await connection.fetchval("SELECT to_regnamespace($1)", connections.quote_identifier(schema)) is None:
                await connection.execute(f"CREATE SCHEMA {connections.quote_identifier(schema)}")
            await connection.execute(VERSIONS)
            await connection.execute(migration.sql)
            await connection.execute("INSERT INTO schema_versions VALUES ($1, $2)", migration.version, migration.name)
        await connection.execute("COMMIT")
    except DRIVER_ERRORS as error:
        raise translate_error(error) from error


async def check_schema(connection: connections.DriverConnection, begin: str, url: str) -> None:
    """Raise `WrongSchema` if a migration is pending or the schema is newer."""
    try:
        await connection.execute(begin)
        version = await _version_of(connection)
        await connection.execute("COMMIT")
        require_current("postgres", version, url)
    except DRIVER_ERRORS as error:
        raise translate_error(error) from error


async def _version_of(connection: connections.DriverConnection) -> int:
    """Return the version of the schema; 0 if there is none."""
    if await connection.fetchval("SELECT to_regclass('schema_versions')") is None:
        return 0
    return int(await connection.fetchval("SELECT coalesce(max(version), 0) FROM schema_versions"))


T = TypeVar("T")

ATTEMPTS = 12
"""The attempts of a transaction function that raises `WriteConflict` each time."""

MIGRATION_TIMEOUT_S = 3600.0

ROLLBACK_TIMEOUT_S = 1.0
"""How long to wait for a rollback before the connection is closed, which rolls back as well."""


class PostgresStore:
    """A PostgreSQL database.

    With `migrate`, `open` migrates the schema; otherwise it refuses a schema of another version. `answer_timeout_s`
    limits a read or a transaction as a whole: waiting for a connection, connecting, all statements, all attempts.
    `idle_timeout_s` limits the idle time of a transaction: a process that is suspended in the middle of one must not
    block all others.

    `pooled` is for a pooler in transaction mode (PgBouncer): no setting, statement or lock outlives a transaction.
    Notifications and migrations need a session, so they use `direct`, a URL that bypasses the pooler. Without it, all
    topics are reported every `poll_interval_s` seconds.
    """

    serializes_writes = False

    def __init__(
        self,
        dsn: str,
        *,
        migrate: bool = False,
        pooled: bool = False,
        direct: str | None = None,
        schema: str = "stateward",
        writers: int = 8,
        readers: int = 4,
        connect_timeout_s: float = 10.0,
        answer_timeout_s: float = 30.0,
        idle_timeout_s: float = 5.0,
        ping_interval_s: float = 10.0,
        poll_interval_s: float = 1.0,
    ) -> None:
        self._address = connections.DatabaseAddress(dsn, schema, connect_timeout_s, answer_timeout_s, pooled)
        self._direct = (
            self._address
            if direct is None
            else connections.DatabaseAddress(direct, schema, connect_timeout_s, answer_timeout_s)
        )
        self._names = SchemaNames.of(schema)
        self._migrate = migrate
        self._random = Random()  # noqa: S311 - only spreads attempts
        self._writers = connections.ConnectionPool(
            self._address, writers, connections.writer_settings(idle_timeout_s), limits_all=True
        )
        self._readers = connections.ConnectionPool(self._address, readers, connections.READER_SETTINGS)
        self._listener: Listener | Poller
        if self._direct.pooled:
            self._listener = Poller(self._tell, poll_interval_s)
        else:
            self._listener = Listener(self._direct, self._names, self._tell, ping_interval_s)
        self._listeners: dict[object, Callable[[Topic], None]] = {}
        self.reader = PostgresReader(self._readers)
        self._pruners = connections.ConnectionPool(self._address, 1, connections.writer_settings(idle_timeout_s))
        self.retention = PostgresRetention(self._pruners)

    async def open(self) -> None:
        """Connect, migrate or check the schema, and begin to listen."""
        patient = replace(self._direct, answer_timeout_s=MIGRATION_TIMEOUT_S)
        connection, begin = await patient.connect(connections.BASE_SETTINGS), patient.begin(connections.BASE_SETTINGS)
        try:
            if self._migrate:
                await migrate_schema(connection, begin, self._address.schema, self._names)
            await check_schema(connection, begin, masked(self._direct.dsn))
        finally:
            await connections.close_connection(connection)
        await self._listener.open()

    async def close(self) -> None:
        """Finish transactions and close all connections, even if closing one fails."""
        await close_each(self._listener.close, self._writers.close, self._readers.close, self._pruners.close)

    async def transact(self, function: TxFunction[T]) -> T:
        """Run a transaction function as one durable transaction; retries after a conflict, within one time limit."""
        async with connections.time_limit(self._writers.answer_timeout_s):
            for attempt in range(1, ATTEMPTS):
                try:
                    return await self._once(function)
                except WriteConflict:
                    await asyncio.sleep(self._random.uniform(0, min(0.001 * 2**attempt, 0.25)))
            return await self._once(function)

    def subscribe(self, listener: Callable[[Topic], None]) -> Callable[[], None]:
        token = object()
        self._listeners[token] = listener

        def stop() -> None:
            self._listeners.pop(token, None)

        return stop

    async def is_sole_user(self) -> bool:
        """Return False: other processes may use the database."""
        return False

    async def _once(self, function: TxFunction[T]) -> T:
        for _ in range(self._writers.size + 1):
            async with self._writers.borrow() as connection:
                started = await _begin(connection, self._writers.begin)
                if started is not None:
                    return await self._run(PostgresTx(connection, self._names, *started), connection, function)
        raise Unavailable("connections are lost as soon as they are made")

    async def _run(self, tx: PostgresTx, connection: connections.DriverConnection, function: TxFunction[T]) -> T:
        topics = NO_TOPICS
        try:
            result = await function(tx)
            topics = tx.topics
            await tx.commit()
        except BaseException:
            await _roll_back(connection, tx)
            raise
        finally:  # also if only the answer to the commit was lost: the listener ignores our own notifications
            self._tell(topics)
        return result

    def _tell(self, topics: Topic) -> None:
        if topics:
            loop = asyncio.get_running_loop()
            for listener in self._listeners.values():
                loop.call_soon(listener, topics)


async def _begin(connection: connections.DriverConnection, begin: str) -> connections.Row | None:
    """Begin a transaction and return the time, and whether the default lane is unlimited.

    None if this connection was lost since it was last used.
    """
    try:
        await connection.execute(begin)
        return await connection.fetchrow(TX_START)
    except DRIVER_ERRORS as error:
        connection.terminate()
        if not is_worth_reconnecting(translated := translate_error(error)):
            raise translated from error
        return None
    except asyncio.CancelledError:
        connection.terminate()  # the transaction may or may not have begun
        raise


async def _roll_back(connection: connections.DriverConnection, tx: PostgresTx) -> None:
    """Roll back; if that fails, close the connection, and the server rolls back."""
    try:
        async with asyncio.timeout(ROLLBACK_TIMEOUT_S):
            await tx.wait_for_writes()
            if tx.failed is not None and is_lost(tx.failed):
                connection.terminate()
            else:
                await connection.execute("ROLLBACK")
    except DRIVER_ERRORS:
        connection.terminate()
    except BaseException:
        connection.terminate()
        raise
