"""What reads cost, whatever the machine does beside: SQLite's own steps, and the blocks that PostgreSQL looks at."""

import json
import sqlite3
from collections.abc import Awaitable, Callable
from threading import Lock
from typing import Any, Protocol

import asyncpg
import pytest

from stateward.store.postgres.connections import READER_SETTINGS, ConnectionPool
from stateward.store.postgres.tx import PostgresTx
from stateward.store.sqlite import connections

STEPS = 20
"""How many steps of SQLite's machine are counted at once."""


class Meter(Protocol):
    """Counts what calls cost."""

    slack: int
    """The difference that means nothing: how full pages are, a tree that is a level deeper."""

    async def cost(self, call: Callable[[], Awaitable[object]]) -> int:
        """Make a call and return what it cost."""


class SqliteMeter:
    """Counts the steps of SQLite's machine in all connections of this process; each row takes some."""

    slack = 2_000

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._steps, self._lock = 0, Lock()
        connect = connections._connect

        def counted(*given: Any, **more: Any) -> sqlite3.Connection:
            connection = connect(*given, **more)
            connection.set_progress_handler(self._count, STEPS)
            return connection

        patch.setattr(connections, "_connect", counted)

    def _count(self) -> int:
        with self._lock:
            self._steps += STEPS
        return 0

    async def cost(self, call: Callable[[], Awaitable[object]]) -> int:
        before = self._steps
        await call()
        return self._steps - before


class PostgresMeter:
    """Runs the reads of a call, also in transactions, once more, explained, and counts the blocks that they look at."""

    slack = 100

    def __init__(self, patch: pytest.MonkeyPatch, dsn: str) -> None:
        self._dsn = dsn
        self._run: list[tuple[str, tuple[object, ...]]] = []
        fetch = ConnectionPool.fetch

        async def recorded(pool: ConnectionPool, sql: str, *values: object) -> list[Any]:
            self._run.append((sql, values))
            return await fetch(pool, sql, *values)

        execute = PostgresTx._execute

        async def recorded_in_tx(tx: PostgresTx, sql: str, *values: object) -> list[Any]:
            if sql.lstrip().startswith("SELECT"):
                self._run.append((sql, values))
            return await execute(tx, sql, *values)

        patch.setattr(ConnectionPool, "fetch", recorded)
        patch.setattr(PostgresTx, "_execute", recorded_in_tx)

    async def cost(self, call: Callable[[], Awaitable[object]]) -> int:
        self._run.clear()
        await call()
        settings = {**READER_SETTINGS, "search_path": "stateward", "default_transaction_read_only": "off"}
        connection = await asyncpg.connect(self._dsn, server_settings=settings)
        try:
            return sum([await _blocks(connection, sql, values) for sql, values in list(self._run)])
        finally:
            await connection.close()


async def _blocks(connection: "asyncpg.Connection[Any]", sql: str, values: tuple[object, ...]) -> int:
    explained = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {sql}", *values)
    plan = json.loads(explained)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
