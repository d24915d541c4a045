"""Set-up and inspection of a site, from the process that runs the test."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence

from stateward.engine import Engine
from stateward.engine.requests import Creation
from stateward.store import open_store
from tests.chaos.aftermath import query
from tests.chaos.crane_kind import CRANE, GROUPS, LIMITED, NS, YARD, YARD_NAME, unworked
from tests.chaos.ledger import Entry, What, entries
from tests.chaos.processes import Running, Site

PATIENCE = 60.0
"""How many seconds a test waits for what must come: a limit for the worst case, not an expectation."""


def asking(store: str) -> Engine:
    """Return an engine that only asks."""
    return Engine(open_store(store, migrate=True), unworked(), works=False)


async def open_yard(store: str) -> None:
    """Make the database, the limits, and the yard that all cranes belong to."""
    async with asking(store) as engine:
        await engine.set_limits(GROUPS, LIMITED)
        await engine.create(NS, YARD_NAME, YARD.kind, "open")


async def raise_cranes(engine: Engine, numbers: Sequence[int]) -> list[str]:
    """Ask for cranes, all at once; returns the operations."""
    birth = Creation(CRANE.kind, YARD_NAME)
    requests = [engine.request(NS, f"crane-{number}", "raise", creates=birth) for number in numbers]
    accepted = await asyncio.gather(*map(engine.submit, requests))
    return [one.op.id for one in accepted]


def witnessed(site: Site, what: What, worker: str | None = None) -> list[Entry]:
    """Return what was witnessed so far."""
    return [one for one in entries(site.ledger_path) if one.what is what and worker in (None, one.worker)]


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait until something has become true."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = condition()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.02)


async def stop_between_transactions(site: Site, running: Running) -> None:
    """Stop a process while it holds nothing: one that is stopped in mid-transaction holds up a whole SQLite file."""
    running.stop()
    while not _is_writable(site.store):
        running.wake()
        await asyncio.sleep(0.01)
        running.stop()


def _is_writable(store: str) -> bool:
    if "://" in store:
        return True  # the server cuts off a transaction that stands still
    connection = sqlite3.connect(store, timeout=0.2, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


async def count(site: Site, what: str) -> int:
    """Count rows."""
    found: int = (await query(site.store, f"SELECT count(*) FROM {what}"))[0][0]
    return found


async def statuses(site: Site) -> list[str]:
    """Return how many operations are how."""
    return [row[0] for row in await query(site.store, "SELECT status FROM operations ORDER BY id")]
