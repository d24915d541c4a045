"""Removal of ended leases: a timer removes a lease some time after its end, or after it has failed.

The end hook sets the timer whenever a lease comes to rest in one of these statuses, and the guard compares the lease's
own times with the clock. Leases that ended before the setting was made get their timers when a process starts.
"""

import asyncio
from functools import partial

from stateward.domains.leases.lifecycle import LEASE, LeaseState
from stateward.domains.leases.model import Lease, read_lease, status_of
from stateward.engine import Engine
from stateward.engine.queries import list_all
from stateward.store.changes import Changes
from stateward.store.filters import Selector
from stateward.store.port import Tx
from stateward.store.records import Timer

ENDED = (LeaseState.TERMINATED, LeaseState.ERROR)
FORGET = "forget"
FORGET_RANK = 5
"""Rank of the timer among timers of the same instant: after all others of leases."""

SET_TOGETHER = 500
"""Timers that one transaction sets, at most."""


class EndedLeases:
    """The timers that remove ended leases `keep_s` seconds after their end; 0: none."""

    def __init__(self, keep_s: float) -> None:
        self.keep_s = keep_s

    def due(self, lease: Lease) -> float:
        """Return when an ended lease is removed; one that has failed is kept until its time is over."""
        return max(lease.object.since, lease.spec.end) + self.keep_s

    def timers(self, lease: Lease) -> list[Timer]:
        """Return the timer that removes a lease, if it has ended."""
        if not self.keep_s or lease.object.removed or status_of(lease.object) not in ENDED:
            return []
        key = lease.object.key
        return [Timer(key.ns, forget_timer_id(key.id), self.due(lease), FORGET_RANK, key.id, FORGET, "[]", "{}")]

    async def set_timers(self, engine: Engine) -> None:
        """Set the timers of all ended leases, for those that ended before there was a setting; then wait forever."""
        reader = engine.store.reader
        for ns in await reader.namespaces() if self.keep_s else ():
            timers: list[Timer] = []
            async for record in list_all(reader, Selector(ns, LEASE.kind, states=ENDED)):
                timers += self.timers(read_lease(record)) if record.seen != "{}" else []
                if len(timers) == SET_TOGETHER:
                    await engine.store.transact(partial(_set, timers=timers))
                    timers = []
            await engine.store.transact(partial(_set, timers=timers))
        await asyncio.Event().wait()


def forget_timer_id(lease: str) -> str:
    """Return the id of the timer that removes a lease."""
    return f"{lease}/{FORGET}"


async def _set(tx: Tx, timers: list[Timer]) -> None:
    await tx.apply(Changes(timers=timers))
