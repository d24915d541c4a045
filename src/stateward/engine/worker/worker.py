"""The worker: claims work, runs its handlers, reports, and keeps its lease.

Any number of workers, in any processes, share all work. A worker that is not seen for its lease is taken for dead, and
others continue what it held; should it wake up again, its old claims no longer count. A worker that cannot reach the
store for that long therefore stops by itself what it does.
"""

import asyncio
import logging
import math
import os
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from contextvars import copy_context
from random import Random
from typing import TypeVar

from msgspec.structs import replace

from stateward.aio.backoff import GrowingIntervals
from stateward.aio.supervise import cancel_tasks, supervise
from stateward.engine.accept.accept import Verdict, accepting
from stateward.engine.accept.eager_claims import EagerClaims
from stateward.engine.finish.claim_reports import ClaimReport, Ending, Interrupted, NotStarted, Retry
from stateward.engine.finish.completion import record_claim_reports
from stateward.engine.handlers import Fenced, Handler, Job, Permanent, WaitingForChildren
from stateward.engine.kinds import Kinds
from stateward.engine.recovery import reap_dead_workers, release_worker_claims
from stateward.engine.requests import Request
from stateward.engine.transaction_batcher import TransactionBatcher
from stateward.engine.troubles import is_worth_telling
from stateward.engine.worker.attempt import Attempt, RunningOperation, request_stop, stop_if_superseded
from stateward.engine.worker.claims import ClaimResult, claim, throttle
from stateward.engine.worker.job_store import JobStore
from stateward.engine.worker.lease import heartbeat, reconcile_owned_work
from stateward.engine.worker.prefetch import PREFETCH_WINDOW_S, PrefetchBuffer, PrefetchPlan
from stateward.engine.worker.scheduler import DueScheduler
from stateward.errors import StatewardError
from stateward.store import records
from stateward.store.errors import DatabaseReplaced, StoreError
from stateward.store.port import Store, Tx, TxFunction
from stateward.store.records import Claim, Key, Operation
from stateward.store.topics import Topic

T = TypeVar("T")

log = logging.getLogger("stateward.worker")

LEASE_S = 15.0
"""How many seconds a worker may be silent before others take it for dead."""

CLAIM_GATHER_S = 0.005
"""How many seconds lie between two claims of several operations: where much comes in, more of it is claimed at once."""


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
        lease: float = LEASE_S,
        grace: float = 10.0,
        ahead: float = PREFETCH_WINDOW_S,
    ) -> None:
        self.name = name
        self._process = name.split("/")[0]  # workers of one process share what stands before the stroke
        self._store = store
        self._kinds = kinds
        self._chance = chance
        self._slots = slots
        self._lease = lease
        self._grace = grace
        self._record = records.WorkerRecord(name, lease, 0.0, socket.gethostname(), os.getpid())
        self._running: dict[Key, RunningOperation] = {}
        self._spares = PrefetchBuffer(ahead)
        self._returns: set[asyncio.Task[None]] = set()
        self._reports: TransactionBatcher[ClaimReport, bool] = TransactionBatcher(self._report, chance, timeout_s=lease)
        self._claim_lock = asyncio.Lock()  # between a claim's commit and its start, it looks like a stray
        self._claimable, self._recheck_claims = asyncio.Event(), asyncio.Event()
        self._time = DueScheduler(store, kinds, new_id, name, self._retry_on_store_error, self._claimable.set)
        self._told = GrowingIntervals(lambda: asyncio.get_running_loop().time())
        self._notes = JobStore(store, kinds, name, self._reports, self._told)
        self._claim_tasks: list[asyncio.Task[None]] = []
        self._lease_tasks: list[asyncio.Task[None]] = []
        self._unsubscribe: Callable[[], None] = lambda: None
        self._seen = 0.0
        self._context = copy_context()
        self._accepting: Collection[Key] = frozenset()  # what is being accepted, and may be ours from then on
        self._last_claim_size = 0  # how many operations the last claim brought
        self._claimed = 0.0  # when that was
        self._full = False  # no slot was free when there was something to claim

    # --- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Come to life; alone on the database, what was held before a crash is freed at once."""
        self._context = copy_context()
        if await self._store.is_sole_user():
            for former in await self._store.reader.workers():
                if former.id.split("/")[0] != self._process:
                    await self._release_predecessor(former.id)
        await self._renew_lease()
        self._unsubscribe = self._store.subscribe(self._on_topics)
        self._claim_tasks = [self._supervise(loop) for loop in (self._claim_loop, self._time.run)]
        keepers = (self._heartbeat_loop, self._lease_expiry_loop, self._claim_reconcile_loop)
        self._lease_tasks = [self._supervise(loop) for loop in keepers]
        self._on_topics(Topic.WORK | Topic.TIMER)

    async def stop(self) -> None:
        """Claim nothing more, let what runs end within the grace time, give the rest back."""
        self._unsubscribe()
        self._slots = 0
        await cancel_tasks(self._claim_tasks)
        self._return_later(self._spares.release_all())
        if self._running:
            await asyncio.wait(self._tasks(), timeout=self._grace)
        await cancel_tasks(self._tasks())
        await asyncio.gather(*self._returns)
        await self._reports.drain()
        await cancel_tasks(self._lease_tasks)  # only now: what still ran needed the lease
        try:
            await self._release_predecessor(self.name)
        except StoreError as error:
            log.warning("worker %s could not say goodbye: %s", self.name, error)

    @property
    def busy(self) -> int:
        """How many operations it works on."""
        return len(self._running)

    def _supervise(self, loop: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Start a loop that restarts if it fails: a worker that keeps its lease and does nothing would be the worst."""
        name = f"worker {self.name} {loop.__name__}"
        return asyncio.create_task(supervise(name, loop, log), name=name)

    async def _release_predecessor(self, name: str) -> None:
        await self._store.transact(lambda tx: release_worker_claims(tx, [name]))

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [one.task for one in self._running.values() if one.task is not None]

    def _on_topics(self, topics: Topic) -> None:
        if topics & Topic.WORK:
            self._claimable.set()
        if topics & (Topic.TIMER | Topic.WORK):
            self._time.due_changed.set()
        if topics & Topic.FENCE:
            self._recheck_claims.set()

    # --- claiming and running ----------------------------------------------------------------------------------------

    async def _claim_loop(self) -> None:
        while True:
            await self._claimable.wait()
            if self._last_claim_size > 1:
                await asyncio.sleep(self._claimed + CLAIM_GATHER_S - asyncio.get_running_loop().time())
            self._last_claim_size = 0
            self._claimable.clear()
            self._return_later(self._spares.unneeded(asyncio.get_running_loop().time()))
            room, pace = max(0, self._slots - len(self._running)), self._spares.plan()
            self._full = room == 0
            if (room or pace.wanted) and self._lease_left_s > 0 and await self._claim(room, pace):
                self._claimable.set()

    async def _claim(self, room: int, pace: PrefetchPlan) -> bool:
        """Claim work and begin it; tells whether there may be more of it."""
        async with self._claim_lock:
            return self._take(await self._retry_on_store_error(lambda tx: claim(tx, self._record, room, pace)))

    def _take(self, catch: ClaimResult) -> bool:
        now = asyncio.get_running_loop().time()
        self._last_claim_size, self._claimed = len(catch.claims) + len(catch.prefetched), now
        if not self._begin_all(catch.claims, catch.at):
            return False
        self._spares.hold(catch.prefetched, catch.at, now)
        return catch.more

    def _begin_all(self, claims: Sequence[Claim], at: float) -> bool:
        if self._lease_left_s <= 0:  # the answer took too long: it may have been taken over already
            self._recheck_claims.set()
            return False
        for one in claims:
            self._begin(one, at)
        return True

    async def accept(self, requests: Sequence[Request]) -> Sequence[Verdict]:
        """Accept requests, and take in the same transaction what can begin at once: one commit less before it does."""
        room = self._slots - len(self._running) if self._lease_left_s > 0 else 0
        hands = EagerClaims(self._record, room)
        program = accepting(self._kinds, requests, hands)
        self._accepting = {Key(one.ns, one.op) for one in requests}
        try:
            if not self._store.serializes_writes or room <= 0 or self._claim_lock.locked():
                verdicts = await self._store.transact(program)
            else:
                verdicts = await self._accept_with_claims(program, hands, room)
            self._begin_all(hands.claims, hands.at)
        except BaseException:
            self._recheck_claims.set()  # what was taken, and the answer to it lost, is a stray
            raise
        finally:
            self._accepting = frozenset()
        return verdicts

    async def _accept_with_claims(self, program: TxFunction[T], hands: EagerClaims, room: int) -> T:
        """Run a program, and claim in the same transaction what hands could not take.

        Only where transactions take turns anyway: elsewhere, what the program has locked would be held for longer.
        """
        pace = self._spares.plan()

        async def both(tx: Tx) -> tuple[T, ClaimResult]:
            answer = await program(tx)
            left = room - len(hands.claims) if hands.left else 0
            if left <= 0:
                return answer, ClaimResult(tx.now, [], [], more=False)
            return answer, await claim(tx, self._record, left, pace)

        async with self._claim_lock:
            answer, catch = await self._store.transact(both)
            if self._take(catch):
                self._claimable.set()
        return answer

    def _begin(self, one: Claim, now: float, before: tuple[Key, ...] = ()) -> RunningOperation:
        former = self._running.get(one.work.key)
        if former is not None:  # it was taken from us, and has come back
            request_stop(former, "lost")
        running = self._running[one.work.key] = RunningOperation(one, before)
        self._spares.began(one.work)
        conduct = Attempt(self._handler(one.operation), self._chance)
        # In the worker's own context: whoever asked for it, and happens to be the one who claims, is not its parent.
        running.task = asyncio.create_task(self._run_safely(running, conduct, now), context=self._context.copy())
        running.task.add_done_callback(lambda _: self._done(running))
        return running

    def _handler(self, operation: Operation) -> Handler:
        try:
            return self._kinds[operation.kind].handlers[operation.action]
        except (StatewardError, KeyError):
            return Handler(_no_handler)

    async def _run_safely(self, running: RunningOperation, conduct: Attempt, now: float) -> None:
        try:
            await self._run(running, conduct, now)
        except WaitingForChildren:
            log.debug("operation %s waits for its children", running.claim.operation.id)
        except (Fenced, StoreError) as error:
            log.warning("operation %s is left to others: %s", running.claim.operation.id, error)
            running.orphaned = True
        except Exception:
            log.exception("operation %s is put back: the worker itself failed", running.claim.operation.id)
            running.orphaned = True

    def _done(self, running: RunningOperation) -> None:
        """Forget what has ended, be it that it was stopped before it began."""
        if self._running.get(running.claim.work.key) is running:
            del self._running[running.claim.work.key]
        self._release_slot(running)
        if running.orphaned or (running.task is not None and running.task.cancelled()):
            self._recheck_claims.set()  # now that it does not run here any more, it is seen to be a stray
        if self._full:  # otherwise whatever there was to claim has been claimed
            self._claimable.set()

    async def _run(self, running: RunningOperation, conduct: Attempt, now: float) -> None:
        work, begun = running.claim.work, asyncio.get_running_loop().time()
        job = Job(running.claim, self._notes)
        remaining = (work.deadline or now) - now
        try:
            if work.cancelled:
                says: Ending | Retry | Interrupted = await conduct.resolve_cancelled(job)
            else:
                says = await (conduct.run(job, remaining) if remaining > 0 else conduct.resolve_overdue(job))
        except asyncio.CancelledError:
            if running.stop_reason == "lost":
                return
            says = await conduct.resolve_cancelled(job) if running.stop_reason == "cancelled" else Interrupted()
        if isinstance(says, Retry) and says.after is not None:  # to wait for a move is no trouble
            says = self._with_listeners(running.claim, says, says.after)
        self._release_slot(running, asyncio.get_running_loop().time() - begun)
        if conduct.throttled is not None:
            self._return_later(self._spares.release_lane(work.lane))
            await self._back_off(work.lane, conduct.throttled)
            await self._send_report(running.claim, says)
        elif (successor := self._successor(running)) is None:
            await self._send_report(running.claim, says)
        elif await self._send_report(running.claim, says, successor.claim) and not running.predecessors:
            successor.predecessors = ()
        else:
            self._recheck_claims.set()  # the place may be another's by now, or still that of one before

    def _with_listeners(self, one: Claim, retry: Retry, after: float) -> Retry:
        """Return a retry that says who is to be told of its error; the log tells of each error once for a lane."""
        if not is_worth_telling(one.work.attempts):
            return retry
        operation, lane = one.operation, one.work.lane
        if self._told.is_due((lane, retry.error)):
            at, what = lane or "(default)", (operation.id, operation.action, operation.object)
            log.warning(
                "operation %s (%s of %s) in lane %s is tried again in %.0f s: %s", *what, at, after, retry.error
            )
        parent_told = operation.parent is not None and self._told.is_due((operation.ns, operation.parent))
        return replace(retry, tells_waiter=True, tells_parent=parent_told)

    def _release_slot(self, running: RunningOperation, seconds: float | None = None) -> None:
        """Note that something has left its place in its lane, once."""
        if not running.slot_released:
            running.slot_released = True
            self._spares.ended(running.claim.work, seconds)
            if self._spares.idle(running.claim.work.lane):
                self._claimable.set()

    def _successor(self, running: RunningOperation) -> RunningOperation | None:
        """Begin a spare in the place of something that is done, if there is one."""
        work, now = running.claim.work, asyncio.get_running_loop().time()
        held = self._spares.take_next(work.lane, now) if self._slots and self._lease_left_s > 0 else None
        if held is None:
            return None
        spare, at = held.claim, held.at + now - held.since
        begun = replace(spare, work=replace(spare.work, deadline=at + spare.operation.within))
        return self._begin(begun, at, before=(work.key, *running.predecessors))

    def _return_later(self, spares: Sequence[Claim]) -> None:
        if spares:
            task = asyncio.create_task(self._return_prefetched(spares))
            self._returns.add(task)
            task.add_done_callback(self._returns.discard)

    async def _return_prefetched(self, spares: Sequence[Claim]) -> None:
        told = [self._send_report(one, NotStarted()) for one in spares]
        answers = await asyncio.gather(*told, return_exceptions=True)
        self._spares.forget(spares)
        if any(isinstance(answer, BaseException) for answer in answers):
            self._recheck_claims.set()  # what could not be given back is a stray now

    async def _back_off(self, lane: str, after: float) -> None:
        with suppress(StoreError):
            pause = await self._store.transact(lambda tx: throttle(tx, lane, after))
            asyncio.get_running_loop().call_later(pause, self._claimable.set)

    def _send_report(
        self, one: Claim, says: Ending | Retry | Interrupted | NotStarted, successor: Claim | None = None
    ) -> asyncio.Future[bool]:
        return self._reports.submit(ClaimReport(one.operation, self.name, one.work.epoch, says, successor))

    async def _report(self, reports: Sequence[ClaimReport]) -> Sequence[bool | StatewardError]:
        return await self._store.transact(lambda tx: record_claim_reports(tx, self._kinds, reports))

    # --- the lease ---------------------------------------------------------------------------------------------------

    async def _heartbeat_loop(self) -> None:
        pause = self._lease / 3
        while True:
            await asyncio.sleep(pause)
            try:
                await self._renew_lease()
                pause = self._lease / 3
                await self._store.transact(lambda tx: reap_dead_workers(tx, self.name))
                self._recheck_claims.set()
            except StoreError as error:
                log.warning("worker %s cannot renew its lease: %s", self.name, error)
                pause = min(1.0, self._lease / 15)
            self._claimable.set()

    @property
    def _lease_left_s(self) -> float:
        """How many seconds the lease still holds, as far as this worker knows."""
        return self._seen + self._lease - asyncio.get_running_loop().time()

    async def _renew_lease(self) -> None:
        begun = asyncio.get_running_loop().time()
        self._record = await self._store.transact(lambda tx: heartbeat(tx, self._record))
        self._seen = begun

    async def _lease_expiry_loop(self) -> None:
        """Stop everything when the lease has passed, be the store down or silent: by then others may take over."""
        while True:
            left = self._lease_left_s
            if left <= 0:
                self._stop_running()
            await asyncio.sleep(left if left > 0 else self._lease / 3)

    def _stop_running(self) -> None:
        self._spares.forget(self._spares.release_all())
        for running in self._running.values():
            request_stop(running, "lost")

    async def _claim_reconcile_loop(self) -> None:
        while True:
            await self._recheck_claims.wait()
            self._recheck_claims.clear()
            async with self._claim_lock:
                await self._reconcile_claims()

    async def _reconcile_claims(self) -> None:
        """Compare what runs here with what the store says is ours."""
        running = dict(self._running)
        held = await self._retry_on_store_error(
            lambda tx: reconcile_owned_work(tx, self.name, self._is_known, self._started_prefetch)
        )
        owned = {work.key: work for work in held}
        for key, one in running.items():
            work = owned.get(key)
            if (
                work is not None
                and work.is_prefetched
                and work.epoch == one.claim.work.epoch
                and self._started_prefetch(key) is one
            ):
                request_stop(one, "fenced")  # its place was taken from us, and another may have it
            else:
                stop_if_superseded(one, work)
        for spare in list(self._spares):
            if owned.get(spare.work.key) != spare.work:  # whoever claims it next knows more
                self._return_later(self._spares.release_lane(spare.work.lane))

    def _is_known(self, key: Key) -> bool:
        """Tell whether a claim is no stray: it runs or is to run, or it comes with an answer that is on its way."""
        return key in self._running or key in self._spares or key in self._accepting

    def _started_prefetch(self, key: Key) -> RunningOperation | None:
        """Return a spare that was begun, if all are gone who were there before it, and so tell nobody any more."""
        running = self._running.get(key)
        if running is None or not running.predecessors or any(one in self._running for one in running.predecessors):
            return None
        return running

    # --- patience -----------------------------------------------------------------------------------------------------

    async def _retry_on_store_error(self, program: Callable[[Tx], Awaitable[T]]) -> T:
        """Run a program, waiting for as long as the store is out of reach."""
        while True:
            try:
                return await self._store.transact(program)
            except DatabaseReplaced:  # another process may work on the file that is there now
                self._seen = -math.inf
                self._stop_running()
                await asyncio.Event().wait()
            except StoreError as error:
                log.warning("worker %s waits for the store: %s", self.name, error)
                self._recheck_claims.set()  # a claim whose answer was lost is a stray
                await asyncio.sleep(0.2 + self._chance.random())


async def _no_handler(job: Job) -> None:
    raise Permanent(f"no handler here for {job.action!r} of {job.claim.operation.kind}")
