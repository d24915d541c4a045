"""The whole application as `stateward serve` runs it, with all domains, without a network; each caller has a role."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from stateward.config import Config
from stateward.server.run import open_application
from stateward.store import open_store
from tests.integration.engine.pump_kinds import Plant
from tests.integration.server.server_harness import Clock, ServerHarness, keys


@asynccontextmanager
async def open_full_server(folder: Path, database: str = "", *, worker: bool = True) -> AsyncIterator[ServerHarness]:
    """Open the whole application on a folder, with a database in it or elsewhere."""
    if database:
        store = open_store(database, migrate=True)
        await store.open()
        await store.close()
    async with open_application(
        Config(data=str(folder), database=database, rate=1_000_000, wrong_tokens=1_000_000, worker=worker)
    ) as parts:
        harness = ServerHarness(parts.engine, parts.app, Plant(), Clock(), await keys(parts.tokens))
        yield harness
        for client in harness.callers.values():
            await client.aclose()
