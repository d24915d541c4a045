"""The check whether a process can do its work, for every route that tells a supervisor or a client so.

The compatible APIs have such routes of their own. All of them give the same answer, also while the server stops.
"""

import asyncio

from stateward.engine import Engine
from stateward.errors import StatewardError
from stateward.store.errors import DatabaseReplaced, StoreError

STORE_TIMEOUT_S = 2.0
"""How many seconds the store may take to answer before the process is not ready."""


class NotReady(StatewardError, retry=True):
    """The server lacks a part that the request needs."""

    missing: str
    text = "{missing}"


async def check_readiness(engine: Engine) -> str:
    """Raise unless the store answers with a schema that fits and the worker renews its lease; returns its status."""
    try:
        async with asyncio.timeout(STORE_TIMEOUT_S):
            reader = engine.store.reader
            await reader.last_journal_seq()
            if engine.worker is None:
                return "none here"
            if engine.worker.is_draining:
                raise NotReady("it is about to stop")
            now = await reader.time()
            mine = [worker for worker in await reader.workers() if worker.id == engine.worker.name]
            if not any(worker.is_alive(now) for worker in mine):
                raise NotReady("the worker does not renew its lease")
            return "ok"
    except DatabaseReplaced as error:
        raise NotReady(error.what) from error
    except (StoreError, TimeoutError) as error:
        raise NotReady("the store does not answer") from error
