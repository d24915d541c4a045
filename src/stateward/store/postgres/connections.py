"""The connection pool, and the session settings of each kind of connection.

The driver's own pool resets a connection on the server at each return. Ours needs no reset: nothing stays behind but
prepared statements, which are worth keeping. The connection that was returned last is used first.

The plans of writers are fixed (`writer_settings`). All their statements go by key, and a generic plan without table
scans is right for any table size. By itself the planner plans each batch anew, or takes a new table for a small one and
scans it long after it has grown.

Behind a pooler in transaction mode (PgBouncer), no session setting outlives a transaction. There each transaction
begins with its own settings.
"""

from asyncio import Semaphore, timeout
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, TypeAlias

import asyncpg
from msgspec import Struct, field
from msgspec.structs import replace

from stateward.store.errors import StoreTimeout, Unavailable
from stateward.store.postgres.errors import DRIVER_ERRORS, is_lost, is_worth_reconnecting, translate_error
from stateward.store.postgres.failover import (
    DatabaseHost,
    PreferredHost,
    enable_keepalive,
    hosts_of,
    required_session_attrs,
)

BASE_SETTINGS: Mapping[str, str] = {"jit": "off"}

READER_SETTINGS: Mapping[str, str] = {**BASE_SETTINGS, "default_transaction_read_only": "on"}


def writer_settings(idle_timeout_s: float) -> Mapping[str, str]:
    """Return the settings of a writer; the server ends a transaction that is idle for longer than the limit."""
    return {
        **BASE_SETTINGS,
        "default_transaction_isolation": "read committed",
        "idle_in_transaction_session_timeout": str(round(idle_timeout_s * 1000)),
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
    }


def begin_statement(settings: Mapping[str, str], schema: str) -> str:
    """Return the SQL that begins a transaction with settings of its own, on a quoted schema."""
    local = (f"SET LOCAL {name.removeprefix('default_')} = '{value}'" for name, value in settings.items())
    return "; ".join(["BEGIN", *local, f"SET LOCAL search_path = {schema}"])


Row: TypeAlias = Sequence[Any]
SERVER_NAME = {"application_name": "stateward"}


class DriverConnection(Protocol):
    """The used part of the driver's connection."""

    async def execute(self, query: str, *args: object, timeout: float | None = None) -> str: ...

    async def fetch(self, query: str, *args: object) -> list[Row]: ...

    async def fetchrow(self, query: str, *args: object) -> Row | None: ...

    async def fetchval(self, query: str, *args: object) -> Any: ...  # noqa: ANN401 - one value of any type

    async def add_listener(self, channel: str, callback: object) -> None: ...

    def add_termination_listener(self, callback: object) -> None: ...

    def is_closed(self) -> bool: ...

    def terminate(self) -> None: ...

    async def close(self, *, timeout: float | None = None) -> None: ...


class DatabaseAddress(Struct, frozen=True):
    """The URL and schema of the database, its time limits, and whether the URL is that of a pooler."""

    dsn: str
    schema: str
    connect_timeout_s: float
    answer_timeout_s: float | None
    pooled: bool = False
    preferred_host: PreferredHost = field(default_factory=PreferredHost)

    async def connect(self, settings: Mapping[str, str]) -> DriverConnection:
        """Open a connection to the first suitable host; raises `Unavailable` if there is none."""
        return await self.preferred_host.connect_first(hosts_of(self.dsn), lambda host: self._dial(host, settings))

    async def _dial(self, host: DatabaseHost, settings: Mapping[str, str]) -> DriverConnection:
        try:
            connection: DriverConnection = await asyncpg.connect(
                host.dsn,
                timeout=self.connect_timeout_s,
                command_timeout=self.answer_timeout_s,
                statement_cache_size=0 if self.pooled else 1000,
                max_cached_statement_lifetime=0,
                max_cacheable_statement_size=0,
                server_settings=SERVER_NAME
                if self.pooled
                else {**settings, "search_path": quote_identifier(self.schema), **SERVER_NAME},
                target_session_attrs=required_session_attrs(host.dsn, settings),
            )
        except asyncpg.ProtocolViolationError as error:  # PgBouncer refuses settings that it cannot pass on
            raise Unavailable(f"{error} (a pooler in transaction mode needs the setting `pooler`)") from error
        except DRIVER_ERRORS as error:
            raise translate_error(error) from error
        try:
            enable_keepalive(connection)
        except OSError as error:  # no descriptor is free, or the server has closed it
            connection.terminate()
            raise translate_error(error) from error
        return connection

    def begin(self, settings: Mapping[str, str]) -> str:
        """Return the SQL that begins a transaction on a connection with these settings."""
        return begin_statement(settings, quote_identifier(self.schema)) if self.pooled else "BEGIN"


async def close_connection(connection: DriverConnection) -> None:
    """Close a connection; errors are ignored."""
    with suppress(*DRIVER_ERRORS):
        await connection.close(timeout=5)


def quote_identifier(name: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


@asynccontextmanager
async def time_limit(seconds: float | None) -> AsyncIterator[None]:
    """Limit the time of a block: waiting for a connection, connecting, all statements."""
    try:
        async with timeout(seconds):
            yield
    except TimeoutError as error:
        raise StoreTimeout(f"no answer within {seconds} seconds") from error


class ConnectionPool:
    """Up to `size` connections to a database, opened on demand.

    With `limits_all`, the borrower limits the time of all that it does, and statements have no limit of their own.
    """

    def __init__(
        self, address: DatabaseAddress, size: int, settings: Mapping[str, str], *, limits_all: bool = False
    ) -> None:
        self._address = replace(address, answer_timeout_s=None) if limits_all else address
        self._settings = settings
        self.begin = address.begin(settings)
        self.size = size
        self.answer_timeout_s = address.answer_timeout_s
        self._slots = Semaphore(size)
        self._idle: list[DriverConnection] = []
        self._closed = False
        self._abandoned = False  # returned connections are terminated

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[DriverConnection]:
        """Borrow a connection; a closed one does not return to the pool."""
        async with self._slots:
            connection = await self._next()
            try:
                yield connection
            finally:
                if self._abandoned:
                    connection.terminate()
                elif not connection.is_closed():
                    self._idle.append(connection)

    async def fetch(self, sql: str, *values: object) -> list[Row]:
        """Run one statement; retries on another connection if an idle one turns out to be lost."""
        if self._idle and not self._slots.locked():  # waits only for the answer, which has its own limit
            rows = await self._fetch_once(sql, values)
            if rows is not None:
                return rows
        async with time_limit(self.answer_timeout_s):
            for _ in range(self.size + 1):
                rows = await self._fetch_once(sql, values)
                if rows is not None:
                    return rows
        raise Unavailable("connections are lost as soon as they are made")

    async def _fetch_once(self, sql: str, values: Sequence[object]) -> list[Row] | None:
        async with self.borrow() as connection:
            try:
                return await self._fetch_from(connection, sql, values)
            except DRIVER_ERRORS as error:
                if is_lost(translated := translate_error(error)):
                    connection.terminate()
                if not is_worth_reconnecting(translated):
                    raise translated from error
            except BaseException:
                connection.terminate()  # its answer may still arrive
                raise
        return None

    async def _fetch_from(self, connection: DriverConnection, sql: str, values: Sequence[object]) -> list[Row]:
        """Run a statement; behind a pooler in a transaction, because each message may reach another session."""
        if not self._address.pooled:
            return await connection.fetch(sql, *values)
        try:
            await connection.execute(self.begin)
            rows = await connection.fetch(sql, *values)
            await connection.execute("COMMIT")
        except asyncpg.PostgresError:
            await connection.execute("ROLLBACK")
            raise
        return rows

    async def close(self) -> None:
        """Wait until all connections are returned, and close them; a cancellation leaves none open."""
        self._closed = True
        try:
            for _ in range(self.size):
                await self._slots.acquire()
            while self._idle:
                await close_connection(self._idle.pop())
        finally:
            self._abandoned = True
            while self._idle:
                self._idle.pop().terminate()
        for _ in range(self.size):
            self._slots.release()

    async def _next(self) -> DriverConnection:
        if self._closed:
            raise Unavailable("the store is closed")
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await self._address.connect(self._settings)
