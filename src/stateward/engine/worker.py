"""The worker: claims work, runs its handlers, reports, and keeps its lease.

Any number of workers, in any processes, share all work. A worker that is not seen for its lease is taken for dead, and
others continue what it held; should it wake up again, its old claims no longer count. A worker that cannot reach the
store for that long therefore stops by itself what it does.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, Literal, TypeVar

import msgspec

from stateward.engine.batching import Batcher
from stateward.engine.claiming import claim, throttle
from stateward.engine.conduct import Conduct
from stateward.engine.endings import report
from stateward.engine.handlers import Job
from stateward.engine.healer import bury, settle_overdue
from stateward.engine.holding import Fenced, keep, review
from stateward.engine.kinds import Kinds
from stateward.engine.outcomes import Ending, Report, Stopped
from stateward.engine.timers import fire
from stateward.errors import StatewardError
from stateward.store import records
from stateward.store.errors import StoreError
from stateward.store.port import Store, Topic, Tx
from stateward.store.records import Claim, Key, Progress

T = TypeVar("T")

log = logging.getLogger("stateward.worker")

LEASE = 15.0
"""How many seconds a worker may be silent before others take it for dead."""

SAFETY = 5.0
"""How many seconds pass at most between two looks around, should every wake-up call be lost."""


Why = Literal["", "fenced", "cancelled", "lost"]


class Running:
    """An operation in work: its claim, its task, and why the task was told to stop, if it was."""

    __slots__ = ("claim", "task", "why")

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.task: asyncio.Task[None] | None = None
        self.why: Why = ""


class Worker:
    """Works for all kinds, on up to `slots` operations at once."""

    def __init__(
        self,
        store: Store,
        kinds: Kinds,
        name: str,
        new_id: Callable[[], str],
        chance: Random,
        *,
        slots: int = 500,
        lease: float = LEASE,
        grace: float = 10.0,
    ) -> None:
        self.name = name
        self._process = name.split("/")[0]  # workers of one process share what stands before the stroke
        self._store = store
        self._kinds = kinds
        self._new_id = new_id
        self._chance = chance
        self._slots = slots
        self._lease = lease
        self._grace = grace
        self._record = records.Worker(name, lease, 0.0, socket.gethostname(), os.getpid())
        self._running: dict[Key, Running] = {}
        self._reports: Batcher[Report, bool] = Batcher(self._report, chance, patience=lease)
        self._claim_lock = asyncio.Lock()  # between a claim's commit and its start, it looks like a stray
        self._hungry, self._restless, self._fences = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._unsubscribe: Callable[[], None] = lambda: None
        self._seen = 0.0

    # --- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Come to life; alone on the database, what was held before a crash is freed at once."""
        if await self._store.alone():
            for former in await self._store.reader.workers():
                if not former.id.startswith(self._process):
                    await self._freed(former.id)
        await self._renew()
        self._unsubscribe = self._store.subscribe(self._woken)
        loops = (self._claiming, self._keeping_the_lease, self._keeping_time, self._watching_fences)
        self._loops = [asyncio.create_task(loop(), name=f"{self.name} {loop.__name__}") for loop in loops]
        self._woken(Topic.WORK | Topic.TIMER)

    async def stop(self) -> None:
        """Claim nothing more, let what runs end within the grace time, give the rest back."""
        self._unsubscribe()
        await _cancelled(self._loops)
        if self._running:
            await asyncio.wait(self._tasks(), timeout=self._grace)
        await _cancelled(self._tasks())
        await self._reports.drain()
        try:
            await self._freed(self.name)
        except StoreError as error:
            log.warning("worker %s could not say goodbye: %s", self.name, error)

    @property
    def busy(self) -> int:
        """How many operations it works on."""
        return len(self._running)

    async def _freed(self, name: str) -> None:
        await self._store.transact(lambda tx: bury(tx, name))

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [one.task for one in self._running.values() if one.task is not None]

    def _woken(self, topics: Topic) -> None:
        if topics & Topic.WORK:
            self._hungry.set()
        if topics & (Topic.TIMER | Topic.WORK):
            self._restless.set()
        if topics & Topic.FENCE:
            self._fences.set()

    # --- claiming and running ----------------------------------------------------------------------------------------

    async def _claiming(self) -> None:
        while True:
            await self._hungry.wait()
            self._hungry.clear()
            room = self._slots - len(self._running)
            if room > 0 and await self._claim(room):
                self._hungry.set()

    async def _claim(self, room: int) -> bool:
        async with self._claim_lock:
            now, claims = await self._patiently(lambda tx: claim(tx, self.name, room))
            for one in claims:
                self._begin(one, self._run, now)
        return bool(claims)

    def _begin(self, one: Claim, how: Callable[[Running, Conduct, float], Awaitable[None]], now: float) -> None:
        running = self._running[one.work.key] = Running(one)
        handler = self._kinds[one.operation.kind].handlers[one.operation.action]
        running.task = asyncio.create_task(self._guarded(running, how(running, Conduct(handler, self._chance), now)))

    async def _guarded(self, running: Running, work: Awaitable[None]) -> None:
        try:
            await work
        except (Fenced, StoreError) as error:
            log.warning("operation %s is left to others: %s", running.claim.operation.id, error)
        except Exception:
            log.exception("operation %s is put back: the worker itself failed", running.claim.operation.id)
            self._fences.set()
        finally:
            self._running.pop(running.claim.work.key, None)
            self._hungry.set()

    async def _run(self, running: Running, conduct: Conduct, now: float) -> None:
        work = running.claim.work
        job = Job(running.claim, self)
        try:
            says: Ending | Stopped | Any = await conduct.run(job, (work.deadline or now) - now)
        except asyncio.CancelledError:
            if running.why == "lost":
                return
            says = await conduct.cancel(job) if running.why == "cancelled" else Stopped()
        if conduct.throttled is not None:
            await self._store.transact(lambda tx: throttle(tx, work.lane, conduct.throttled))
        await self._tell(running.claim, says)

    async def _settle(self, running: Running, conduct: Conduct, _: float) -> None:
        await self._tell(running.claim, await conduct.settle(Job(running.claim, self)))

    async def _tell(self, one: Claim, says: Any) -> None:  # noqa: ANN401 - an ending, a retry or a stop
        await self._reports.submit(Report(one.operation, self.name, one.work.epoch, says))

    async def _report(self, reports: Sequence[Report]) -> Sequence[bool | StatewardError]:
        return await self._store.transact(lambda tx: report(tx, self._kinds, reports))

    # --- the lease ---------------------------------------------------------------------------------------------------

    async def _keeping_the_lease(self) -> None:
        while True:
            await asyncio.sleep(self._lease / 3)
            try:
                await self._renew()
                await self._store.transact(bury)
                self._fences.set()
            except StoreError as error:
                log.warning("worker %s cannot renew its lease: %s", self.name, error)
                self._give_up_if_lost()
            self._hungry.set()

    async def _renew(self) -> None:
        begun = asyncio.get_running_loop().time()
        await self._store.transact(lambda tx: tx.worker_seen(self._record))
        self._seen = begun

    def _give_up_if_lost(self) -> None:
        """Stop everything when the lease has passed: by now others may have taken over."""
        if asyncio.get_running_loop().time() - self._seen > self._lease:
            for running in self._running.values():
                _tell_to_stop(running, "lost")

    async def _watching_fences(self) -> None:
        while True:
            await self._fences.wait()
            self._fences.clear()
            async with self._claim_lock:
                owned = await self._patiently(lambda tx: review(tx, self.name, self._running.keys()))
            for work in owned:
                running = self._running.get(work.key)
                if running is not None and work.epoch == running.claim.work.epoch:
                    if work.fenced:
                        _tell_to_stop(running, "fenced")
                    elif work.cancelled:
                        _tell_to_stop(running, "cancelled")

    # --- time --------------------------------------------------------------------------------------------------------

    async def _keeping_time(self) -> None:
        while True:
            while await self._patiently(lambda tx: fire(tx, self._kinds, self._new_id, 500)):
                pass
            async with self._claim_lock:
                for one in await self._patiently(lambda tx: settle_overdue(tx, self._kinds, self.name, 100)):
                    self._begin(one, self._settle, 0.0)
            await self._nap()
            self._hungry.set()

    async def _nap(self) -> None:
        """Sleep until something falls due, or somebody adds what may fall due earlier."""
        self._restless.clear()
        try:
            wake = await self._store.reader.next_wake()
            pause = SAFETY if wake is None else wake - await self._store.reader.time()
            async with asyncio.timeout(min(max(pause, 0.001), SAFETY)):
                await self._restless.wait()
        except (TimeoutError, StoreError):
            return

    # --- what jobs ask for -------------------------------------------------------------------------------------------

    async def progress(self, job: Job, text: str, done: int | None, total: int | None) -> None:
        """Keep a line of progress, if the job still belongs to this worker."""
        await self._store.transact(
            lambda tx: keep(tx, self.name, job, [Progress(job.ns, job.key.id, tx.now, text, done, total)])
        )

    async def checkpoint(self, job: Job, steps: dict[str, Any]) -> None:
        """Keep a job's steps, if it still belongs to this worker."""
        encoded = msgspec.json.encode(steps).decode()
        await self._store.transact(lambda tx: keep(tx, self.name, job, steps=encoded))

    async def phase(self, job: Job, ending: Ending) -> None:
        """Report the end of a phase, if the job still belongs to this worker."""
        if not await self._reports.submit(Report(job.claim.operation, self.name, job.epoch, ending)):
            raise Fenced(job.key.id)

    async def _patiently(self, program: Callable[[Tx], Awaitable[T]]) -> T:
        """Run a program, waiting for as long as the store is out of reach."""
        while True:
            try:
                return await self._store.transact(program)
            except StoreError as error:
                log.warning("worker %s waits for the store: %s", self.name, error)
                self._fences.set()  # a claim whose answer was lost is a stray
                await asyncio.sleep(0.2 + self._chance.random())


def _tell_to_stop(running: Running, why: Why) -> None:
    if running.task is not None and not running.why:
        running.why = why
        running.task.cancel()


async def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
