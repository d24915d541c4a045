"""Helpers of the tests on PostgreSQL: run in a loop, open stores, observe the server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec

import asyncpg

from stateward.store.postgres import PostgresStore

P = ParamSpec("P")
OF_THE_STORE = "application_name = 'stateward' AND datname = current_database()"


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test in an event loop of its own, and never for as long as a minute."""

    @wraps(test)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        asyncio.run(_in_time(test(*arguments, **named)))

    return run


async def _in_time(test: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(45):
        await test


@asynccontextmanager
async def opened(dsn: str, **options: Any) -> AsyncIterator[PostgresStore]:
    """Open a store, migrating where needed."""
    store = PostgresStore(dsn, migrate=True, **options)
    await store.open()
    try:
        yield store
    except BaseException:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()  # or closing would wait for transactions that the failed test holds up
        raise
    finally:
        await store.close()


@asynccontextmanager
async def looking_at(dsn: str) -> AsyncIterator[Any]:
    """Open a connection of one's own."""
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "stateward", "application_name": "test"})
    try:
        yield connection
    finally:
        await connection.close()


async def until_somebody_waits(connection: Any, how_many: int = 1) -> None:
    """Return when so many transactions wait for a lock."""
    while await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted") < how_many:
        await asyncio.sleep(0)


async def kill(connection: Any, which: str) -> int:
    """End the server's side of connections of the store; return how many there were."""
    found = await connection.fetch(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OF_THE_STORE} AND {which}"
    )
    return len(found)
