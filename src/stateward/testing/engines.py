"""Engines for tests: in virtual time on one SQLite database in memory, or in real time on PostgreSQL.

A test that waits for a deadline of an hour must not take an hour. In virtual time, the loop jumps to the next timer as
soon as nothing else is to be done, and the store's clock follows. A PostgreSQL server has a clock of its own, so tests
on it run in real time.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from stateward.engine import waiters
from stateward.engine.engine import Engine
from stateward.engine.worker import scheduler
from stateward.lifecycle import DAY
from stateward.store import open_store
from stateward.store.port import Store
from stateward.store.sqlite import SqliteStore
from stateward.testing.kind_sources import KindSource, runtime_of
from stateward.testing.virtual_loop import VirtualLoop

START_TIME = 1_767_225_600.0
"""The time of the store's clock when a test in virtual time begins: 2026-01-01, midnight UTC."""

TIME_LIMIT_S = 400 * DAY
"""The virtual time that a test may take: a test that waits for what never happens fails after that."""

VIRTUAL_LEASE_S = DAY
"""The lease of engines in virtual time: a long one, because each heartbeat takes real time, however little."""


@contextmanager
def open_loop(store: str) -> Iterator[asyncio.AbstractEventLoop]:
    """Return the event loop for a store; at the end, tasks that are left are cancelled."""
    loop = VirtualLoop(TIME_LIMIT_S) if store == "sqlite" else asyncio.new_event_loop()
    try:
        with rare_polls() if store == "sqlite" else nullcontext():
            yield loop
    finally:
        loop.run_until_complete(_cancel_all())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@contextmanager
def rare_polls() -> Iterator[None]:
    """Let the engine poll rarely: a poll replaces a lost notification, and in one process none is lost."""
    before = scheduler.DUE_POLL_MAX_S, waiters.WAITER_POLL_S
    scheduler.DUE_POLL_MAX_S = waiters.WAITER_POLL_S = VIRTUAL_LEASE_S
    try:
        yield
    finally:
        scheduler.DUE_POLL_MAX_S, waiters.WAITER_POLL_S = before


async def _cancel_all() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


class EngineFactory:
    """Makes engines over one empty database, as if each were a process of its own.

    Call it with a domain, kinds, or a function that returns them, and with options of `Engine`; use what it returns in
    `async with`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, postgres: str | None = None) -> None:
        self._loop = loop
        self._postgres = postgres
        self._sqlite = SqliteStore(":memory:", inline=True, clock=lambda: START_TIME + loop.time())

    def __enter__(self) -> "EngineFactory":
        self._loop.run_until_complete(self._sqlite.open())
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run_until_complete(self._sqlite.close())

    def __call__(self, kinds: KindSource, **options: Any) -> Engine:
        """Return an engine that is not started yet."""
        if self._postgres is None:
            options.setdefault("lease_s", VIRTUAL_LEASE_S)
        runtime = runtime_of(kinds)
        engine = Engine(self._open_store(), runtime.kinds, **options)
        runtime.bind_engine(engine)
        return engine

    def _open_store(self) -> Store:
        if self._postgres is not None:
            return open_store(self._postgres, migrate=True)
        return SharedStore(self._sqlite)


class SharedStore:
    """A store that several engines use: the end of one does not close it."""

    serializes_writes = True

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.reader = store.reader
        self.retention = store.retention
        self.transact = store.transact
        self.subscribe = store.subscribe

    async def open(self) -> None:
        """Do nothing: it is open."""

    async def close(self) -> None:
        """Do nothing: others use it."""

    async def is_sole_user(self) -> bool:
        """Return False: another engine of the test may use it."""
        return False
