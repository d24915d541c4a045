"""A worker's lease in virtual time: the worker stops by itself before others may take it for dead."""

import asyncio
from typing import Any, cast

from stateward.engine.worker.lease import WorkerLease
from stateward.store.errors import Unavailable
from stateward.store.port import Store
from stateward.store.records import WorkerRecord
from stateward.testing.virtual_loop import VirtualLoop

LEASE_S = 15.0
STALL_S = 2.9
"""How long a worker may get no processor, and still have stopped in time."""


class Database:
    """Answers the first heartbeat, and is down from then on."""

    def __init__(self) -> None:
        self.heartbeats = 0

    async def transact(self, _: object) -> Any:
        self.heartbeats += 1
        if self.heartbeats > 1:
            raise Unavailable("down")
        return WorkerRecord("w", LEASE_S, 0.0, "here", 1)


def test_a_worker_without_heartbeats_stops_in_time_even_if_it_stalls_then() -> None:
    stopped: list[float] = []

    async def live() -> None:
        lease = WorkerLease(cast("Store", Database()), WorkerRecord("w", LEASE_S, 0.0, "here", 1), LEASE_S, str)
        await lease.renew()
        loops = [
            lease.run_heartbeats(lambda: None, lambda: None),
            lease.run_expiry(lambda: stopped.append(loop.time())),
        ]
        tasks = [asyncio.create_task(one) for one in loops]
        await asyncio.sleep(LEASE_S - STALL_S)
        for task in tasks:
            task.cancel()

    loop = VirtualLoop()
    try:
        loop.run_until_complete(live())
    finally:
        loop.close()
    assert stopped
