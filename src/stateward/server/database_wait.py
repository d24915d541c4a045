"""Waiting for PostgreSQL at the start of a process.

A host that boots, or a deployment that is started as a whole, starts servers and their database in any order.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from stateward.config import Config, masked
from stateward.store import Store
from stateward.store.errors import Unavailable

T = TypeVar("T")

log = logging.getLogger("stateward.server")

FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 5.0


async def wait_for_database(
    config: Config, store_of: Callable[[Config], Store], start: Callable[[], Awaitable[T]]
) -> T:
    """Start what uses the database, as soon as PostgreSQL accepts connections; returns the result of `start`.

    If the database goes away meanwhile, `start` must undo what it has done: it is called again. Raises `Unavailable`
    if nothing has started within the configured time. Call this before signals are handled, so that they end the wait.
    """
    if not config.database.startswith("postgres"):
        return await start()
    clock, pause_s = asyncio.get_running_loop().time, FIRST_PAUSE_S
    until = clock() + config.wait_for_database
    while True:
        probe = store_of(config)
        try:
            await probe.open()
            await probe.close()
            return await start()
        except Unavailable as error:
            if (left_s := until - clock()) <= 0:
                raise
            why = masked(str(error))
            log.warning("%s; trying again for up to %.0f s (setting wait_for_database)", why, left_s)
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
