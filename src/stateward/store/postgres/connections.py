"""Connections that are kept and lent out.

The driver's own pool asks the server to reset a connection each time it comes back; ours need no reset, as nothing is
ever left behind in them but prepared statements, which are what makes them worth keeping. The one that came back last
is lent first: its statements are the warmest.
"""

from asyncio import Semaphore, timeout
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, TypeAlias

import asyncpg
from msgspec import Struct, field
from msgspec.structs import replace

from stateward.store.errors import TimedOut, Unavailable
from stateward.store.postgres.errors import FAULTS, fault, is_lost, is_worth_another
from stateward.store.postgres.failover import Favourite, Host, hosts, notice_death, wanted

CALM: Mapping[str, str] = {"jit": "off"}

READING: Mapping[str, str] = {**CALM, "default_transaction_read_only": "on"}


def writing(idle_within: float) -> Mapping[str, str]:
    """Return the settings of a writer, whose transactions may stand still for only so long."""
    return {
        **CALM,
        "default_transaction_isolation": "read committed",
        "idle_in_transaction_session_timeout": str(round(idle_within * 1000)),
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
    }


def begin_with(settings: Mapping[str, str], schema: str) -> str:
    """Return the SQL that begins a transaction with settings of its own, on a schema that is spelled as SQL has it."""
    local = (f"SET LOCAL {name.removeprefix('default_')} = '{value}'" for name, value in settings.items())
    return "; ".join(["BEGIN", *local, f"SET LOCAL search_path = {schema}"])


Row: TypeAlias = Sequence[Any]
NAMED = {"application_name": "stateward"}


class Connection(Protocol):
    """What we use of the driver's connection."""

    async def execute(self, query: str, *args: object, timeout: float | None = None) -> str: ...

    async def fetch(self, query: str, *args: object) -> list[Row]: ...

    async def fetchrow(self, query: str, *args: object) -> Row | None: ...

    async def fetchval(self, query: str, *args: object) -> Any: ...  # noqa: ANN401 - one value of any type

    async def add_listener(self, channel: str, callback: object) -> None: ...

    def add_termination_listener(self, callback: object) -> None: ...

    def is_closed(self) -> bool: ...

    def terminate(self) -> None: ...

    async def close(self, *, timeout: float | None = None) -> None: ...


class Address(Struct, frozen=True):
    """Where the database is, how long we wait for it, and whether a pooler in transaction mode stands before it."""

    dsn: str
    schema: str
    connect_within: float
    answer_within: float | None
    pooled: bool = False
    favourite: Favourite = field(default_factory=Favourite)

    async def connect(self, settings: Mapping[str, str]) -> Connection:
        """Open a connection to the first host that is what we need, or raise `Unavailable` (or what else is wrong)."""
        return await self.favourite.reached(hosts(self.dsn), lambda host: self._dial(host, settings))

    async def _dial(self, host: Host, settings: Mapping[str, str]) -> Connection:
        try:
            connection: Connection = await asyncpg.connect(
                host.dsn,
                timeout=self.connect_within,
                command_timeout=self.answer_within,
                statement_cache_size=0 if self.pooled else 1000,
                max_cached_statement_lifetime=0,
                max_cacheable_statement_size=0,
                server_settings=NAMED if self.pooled else {**settings, "search_path": quoted(self.schema), **NAMED},
                target_session_attrs=wanted(host.dsn, settings),
            )
        except asyncpg.ProtocolViolationError as error:  # what PgBouncer says of settings that it cannot pass on
            raise Unavailable(f"{error} (a pooler in transaction mode needs the setting `pooler`)") from error
        except FAULTS as error:
            raise fault(error) from error
        notice_death(connection)
        return connection

    def begin(self, settings: Mapping[str, str]) -> str:
        """Return the SQL that begins a transaction on a connection with these settings."""
        return begin_with(settings, quoted(self.schema)) if self.pooled else "BEGIN"


async def let_go(connection: Connection) -> None:
    """Close a connection politely, if it can be done."""
    with suppress(*FAULTS):
        await connection.close(timeout=5)


def quoted(name: str) -> str:
    """Spell a name so that SQL takes it as it is."""
    return '"' + name.replace('"', '""') + '"'


@asynccontextmanager
async def within(seconds: float | None) -> AsyncIterator[None]:
    """Limit all that is waited for inside: the turn, the connection, each statement."""
    try:
        async with timeout(seconds):
            yield
    except TimeoutError as error:
        raise TimedOut(f"no answer within {seconds} seconds") from error


class Connections:
    """Up to `size` connections to one database, opened when needed and lent to one user at a time.

    Where `limits_all`, whoever is lent one limits all that it does with it, and single statements have no limit.
    """

    def __init__(self, address: Address, size: int, settings: Mapping[str, str], *, limits_all: bool = False) -> None:
        self._address = replace(address, answer_within=None) if limits_all else address
        self._settings = settings
        self.begin = address.begin(settings)
        self.size = size
        self.answer_within = address.answer_within
        self._turns = Semaphore(size)
        self._idle: list[Connection] = []
        self._closed = False
        self._over = False  # nobody waits any more for those that come back

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Connection]:
        """Lend a connection; one that was closed meanwhile is not taken back."""
        async with self._turns:
            connection = await self._next()
            try:
                yield connection
            finally:
                self._take_back(connection)

    async def fetch(self, sql: str, *values: object) -> list[Row]:
        """Run one statement by itself, on another connection if one turns out to be lost since it was last used."""
        if self._idle and not self._turns.locked():  # nothing to wait for but the answer: a second limit is not cheap
            rows = await self._fetch_once(sql, values)
            if rows is not None:
                return rows
        async with within(self.answer_within):
            for _ in range(self.size + 1):
                rows = await self._fetch_once(sql, values)
                if rows is not None:
                    return rows
        raise Unavailable("connections are lost as soon as they are made")

    async def _fetch_once(self, sql: str, values: Sequence[object]) -> list[Row] | None:
        async with self.lent() as connection:
            try:
                return await self._fetch_from(connection, sql, values)
            except FAULTS as error:
                if is_lost(found := fault(error)):
                    connection.terminate()
                if not is_worth_another(found):
                    raise found from error
            except BaseException:
                connection.terminate()  # its answer may be long in coming
                raise
        return None

    async def _fetch_from(self, connection: Connection, sql: str, values: Sequence[object]) -> list[Row]:
        """Run a statement; through a pooler in a transaction, because each of its messages may find another session."""
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
        """Wait until all connections have come back, and close them; who is cancelled meanwhile leaves none open."""
        self._closed = True
        try:
            for _ in range(self.size):
                await self._turns.acquire()
            while self._idle:
                await let_go(self._idle.pop())
        finally:
            self._over = True
            while self._idle:
                self._idle.pop().terminate()
        for _ in range(self.size):
            self._turns.release()

    async def _next(self) -> Connection:
        if self._closed:
            raise Unavailable("the store is closed")
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await self._address.connect(self._settings)

    def _take_back(self, connection: Connection) -> None:
        if self._over:
            connection.terminate()
        elif not connection.is_closed():
            self._idle.append(connection)
