"""Waiting for PostgreSQL at the start of a process.

A host that boots, or a deployment that is started as a whole, starts servers and their database in any order.
"""

import asyncio
import logging
from collections.abc import Callable

from stateward.config import Config, masked
from stateward.store import Store
from stateward.store.errors import Unavailable

log = logging.getLogger("stateward.server")

FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 5.0


async def wait_for_database(config: Config, store_of: Callable[[Config], Store]) -> None:
    """Wait until PostgreSQL accepts connections; raises `Unavailable` if it doesn't within the configured time.

    Call this before signals are handled, so that they end the wait.
    """
    if not config.database.startswith("postgres"):
        return
    probe = store_of(config)
    clock, pause_s = asyncio.get_running_loop().time, FIRST_PAUSE_S
    until = clock() + config.wait_for_database
    while True:
        try:
            await probe.open()
        except Unavailable as error:
            if (left_s := until - clock()) <= 0:
                raise
            why = masked(str(error))
            log.warning("%s; trying again for up to %.0f s (setting wait_for_database)", why, left_s)
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
        else:
            await probe.close()
            return
