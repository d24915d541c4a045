"""The worker's lease: heartbeats, expiry, and the claims that the store has for a worker.

A worker that sends no heartbeat for the length of its lease counts as dead, and other workers take over its claims. So
a worker that cannot reach the store stops its operations by itself, and does so a while before.
"""

import asyncio
import logging
import math
from collections.abc import Callable

from msgspec.structs import replace

from stateward.engine.recovery import reap_dead_workers
from stateward.engine.unit_of_work import UnitOfWork, promote_waiters
from stateward.engine.worker.attempt import RunningOperation
from stateward.store.errors import StoreError
from stateward.store.port import Store, Tx
from stateward.store.records import Key, WorkerRecord, WorkItem

log = logging.getLogger("stateward.worker")

LEASE_S = 15.0
"""How many seconds a worker may send no heartbeat before it counts as dead."""

USABLE = 0.8
"""The part of a lease after which a worker stops by itself: it may get no processor just then, or stop slowly."""


class WorkerLease:
    """The lease of one worker, by the clock of its own event loop."""

    def __init__(self, store: Store, record: WorkerRecord, lease_s: float, known: Callable[[], str]) -> None:
        self.record = record
        self._known = known  # what the worker knows, which it learns as it claims
        self._store = store
        self._lease_s = lease_s
        self._renewed_at = 0.0

    @property
    def left_s(self) -> float:
        """How many seconds this worker may go on without a heartbeat."""
        return self._renewed_at + USABLE * self._lease_s - asyncio.get_running_loop().time()

    async def renew(self) -> None:
        """Send a heartbeat. The lease counts from the moment it was sent, because the answer may take long."""
        sent_at = asyncio.get_running_loop().time()
        record = replace(self.record, kinds=self._known())
        self.record = await self._store.transact(lambda tx: heartbeat(tx, record))
        self._renewed_at = sent_at

    def forfeit(self) -> None:
        """Consider the lease expired until it is renewed."""
        self._renewed_at = -math.inf

    async def run_heartbeats(self, on_renewed: Callable[[], None], on_attempt: Callable[[], None]) -> None:
        """Renew the lease three times per lease, and reap dead workers each time; after an error, try again soon."""
        pause_s = self._lease_s / 3
        while True:
            await asyncio.sleep(pause_s)
            try:
                await self.renew()
                pause_s = self._lease_s / 3
                released = await self._store.transact(lambda tx: reap_dead_workers(tx, self.record.id))
                if released:
                    log.warning("worker %s takes over %d operations of lost workers", self.record.id, released)
                on_renewed()
            except StoreError as error:
                log.warning("worker %s cannot renew its lease: %s", self.record.id, error)
                pause_s = min(1.0, self._lease_s / 15)
            on_attempt()

    async def run_expiry(self, on_expired: Callable[[], None]) -> None:
        """Call back when the lease has nearly expired, be the store down or silent: soon others may take over."""
        while True:
            left_s = self.left_s
            if left_s <= 0:
                on_expired()
            await asyncio.sleep(left_s if left_s > 0 else self._lease_s / 3)


async def heartbeat(tx: Tx, worker: WorkerRecord) -> WorkerRecord:
    """Renew a worker's lease; returns the worker's record with the store's time of the heartbeat."""
    await tx.heartbeat(worker)
    return replace(worker, seen=tx.now)


async def reconcile_owned_work(
    tx: Tx,
    owner: str,
    is_known: Callable[[Key], bool],
    started_prefetch: Callable[[Key], RunningOperation | None],
) -> list[WorkItem]:
    """Return the work that a worker owns, and requeue the work that it does not know because an answer was lost.

    A prefetched operation may have been started without a committed report of it. It gets the slot of one of its
    predecessors, if that slot is freed here. Otherwise the slot was taken from the worker before, and the operation
    stays prefetched.
    """
    owned = await tx.owned(owner)
    unknown = [work for work in owned if not is_known(work.key)]
    if not unknown:
        return owned
    uow = UnitOfWork(tx)
    await uow.load({Key(work.ns, work.object) for work in unknown})
    freed = {work.key for work in unknown if not work.is_prefetched}
    started = [running for work in owned if work.is_prefetched and (running := started_prefetch(work.key)) is not None]
    placed = {running.claim.work.key: running for running in started if not freed.isdisjoint(running.predecessors)}
    for running in placed.values():
        uow.start_prefetched(running.claim)
    for work in unknown:
        if work.fenced:
            uow.remove_work(work)
        else:
            uow.update_work(replace(work, owner=None, observe=True))
    await promote_waiters(uow)
    await uow.apply()
    return [placed[work.key].claim.work if work.key in placed else work for work in owned]
