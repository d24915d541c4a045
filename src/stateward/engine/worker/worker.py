"""The worker: claims operations, runs their handlers, reports the outcomes, and keeps its lease.

Any number of workers, in any processes, share all work. If a worker sends no heartbeat for the length of its lease, the
others take over its claims; should it wake up again, its old claims no longer count (see `lease`).

The store and the worker can disagree about a claim, because the answer to a commit may be lost. Then `_recheck_claims`
is set: the worker compares its running operations with the claims that the store has for it, stops what it does not
own, and requeues what it does not know.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from contextvars import copy_context
from math import inf
from random import Random
from typing import TypeVar

from msgspec.structs import replace

from stateward.aio.backoff import GrowingIntervals, backoff_delay
from stateward.aio.supervise import cancel_tasks, supervise
from stateward.engine.accept.accept import Verdict, accept_function
from stateward.engine.accept.eager_claims import EagerClaims
from stateward.engine.finish.claim_reports import ClaimReport, Ending, Interrupted, NotStarted, Requeue
from stateward.engine.finish.completion import record_claim_reports
from stateward.engine.handlers import Handler
from stateward.engine.job import Job
from stateward.engine.kinds import Kinds
from stateward.engine.recovery import release_worker_claims
from stateward.engine.requests import Request
from stateward.engine.stored_texts import sanitize_text
from stateward.engine.transaction_batcher import TransactionBatcher
from stateward.engine.troubles import is_worth_reporting
from stateward.engine.work_errors import Fenced, Permanent, WaitingForChildren
from stateward.engine.worker.attempt import Attempt, Outcome, RunningOperation, request_stop, stop_if_superseded
from stateward.engine.worker.claims import ClaimResult, back_off_lane, claim
from stateward.engine.worker.job_store import JobStore
from stateward.engine.worker.lease import LEASE_S, WorkerLease, reconcile_owned_work
from stateward.engine.worker.loop_watchdog import LoopWatchdog
from stateward.engine.worker.prefetch import PREFETCH_WINDOW_S, PrefetchBuffer, PrefetchPlan
from stateward.engine.worker.scheduler import DueScheduler
from stateward.errors import StatewardError
from stateward.lifecycle import CLOCK, FAILED, TIMED_OUT, UNKNOWN
from stateward.store.errors import DatabaseReplaced, StoreError, Unavailable
from stateward.store.port import Store, Tx, TxFunction
from stateward.store.records import Claim, Key, Operation, WorkerRecord, to_json
from stateward.store.topics import Topic

T = TypeVar("T")

log = logging.getLogger("stateward.worker")

CLAIM_GATHER_S = 0.005
"""How many seconds pass between two claims of several operations: under load, each claim then gets more of them."""

SHUTDOWN_GRACE_S = 3.0
"""How many seconds running operations have to end when the worker stops; others go on elsewhere, or after a restart."""

STUBBORN_GRACE_S = 60.0
"""How many seconds after its deadline an operation ends although its handler, which was cancelled, does not."""


class Worker:
    """Runs operations of all kinds, up to `slots` of them at once."""

    def __init__(
        self,
        store: Store,
        kinds: Kinds,
        name: str,
        new_id: Callable[[], str],
        chance: Random,
        *,
        slots: int = 500,
        lease_s: float = LEASE_S,
        prefetch_window_s: float = PREFETCH_WINDOW_S,
    ) -> None:
        self.name = name
        self._process = name.split("/")[0]  # workers of one process have the same text before the slash
        self._store = store
        self._kinds = kinds
        self._chance = chance
        self._slots = slots
        record = WorkerRecord(name, lease_s, 0.0, socket.gethostname(), os.getpid())
        self._lease = WorkerLease(
            store, record, lease_s, lambda: to_json(kinds.filter or [kind.name for kind in kinds])
        )
        self._running: dict[Key, RunningOperation] = {}
        self._watchdog = LoopWatchdog(self._running.values())
        self._return_tasks: set[asyncio.Task[None]] = set()
        self._reports: TransactionBatcher[ClaimReport, bool] = TransactionBatcher(
            self._record_reports, chance, timeout_s=lease_s
        )
        self._claim_lock = asyncio.Lock()  # between a claim's commit and its start, the claim looks unknown
        self._accept_lock = asyncio.Lock()
        self._claimable, self._recheck_claims = asyncio.Event(), asyncio.Event()
        self._prefetched = PrefetchBuffer(self._claimable.set, prefetch_window_s)
        self._scheduler = DueScheduler(store, kinds, new_id, name, self._retry_on_store_error, self._claimable.set)
        self._report_intervals = GrowingIntervals(lambda: asyncio.get_running_loop().time())
        self._job_store = JobStore(store, kinds, name, self._reports, self._report_intervals)
        self._claim_tasks: list[asyncio.Task[None]] = []
        self._lease_tasks: list[asyncio.Task[None]] = []
        self._unsubscribe: Callable[[], None] = lambda: None
        self._context = copy_context()
        self._accepting: Collection[Key] = frozenset()  # operations being accepted, which may be claimed eagerly
        self._last_claim_size = 0
        self._last_claim_at = 0.0
        self._is_full = False  # no slot was free at the last attempt to claim
        self.is_draining = False

    # --- start and stop -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start; if no other process uses the store, release the claims of workers of an earlier process at once."""
        self._context = copy_context()
        if await self._store.is_sole_user():
            for former in await self._store.reader.workers():
                if former.id.split("/")[0] != self._process:
                    released = await self._release_claims_of(former.id)
                    log.info(
                        "worker %s takes over %d operations of worker %s, which is gone", self.name, released, former.id
                    )
        try:
            await self._lease.renew()
        except Unavailable as error:  # the database went away just now: the first heartbeat that it answers is enough
            self._lease.forfeit()
            log.warning("worker %s waits for the store: %s", self.name, error)
        log.info("worker %s has started", self.name)
        self._unsubscribe = self._store.subscribe(self._on_topics)
        self._claim_tasks = [self._supervise(loop) for loop in (self._claim_loop, self._scheduler.run)]
        lease_loops = (self._heartbeat_loop, self._lease_expiry_loop, self._claim_reconcile_loop)
        self._lease_tasks = [self._supervise(loop) for loop in lease_loops]
        self._watchdog.start()
        self._on_topics(Topic.WORK | Topic.TIMER)

    async def drain(self) -> None:
        """Claim nothing more, and let running operations end within the grace time; whoever cancels this ends it."""
        self.is_draining = True
        self._unsubscribe()
        self._slots = 0
        await cancel_tasks(self._claim_tasks)
        self._return_prefetched_soon(self._prefetched.release_all())
        if self._running:
            await asyncio.wait(self._operation_tasks(), timeout=SHUTDOWN_GRACE_S)

    async def stop(self) -> None:
        """Drain, unless that was done before, and requeue the operations that have not ended."""
        self._watchdog.stop()
        if not self.is_draining:
            await self.drain()
        async with self._accept_lock:
            pass  # a request that is being accepted may still claim
        await cancel_tasks(self._operation_tasks())
        await asyncio.gather(*self._return_tasks)
        await self._reports.drain()
        await cancel_tasks(self._lease_tasks)  # only now: the operations needed the lease
        try:
            await self._release_claims_of(self.name)
        except StoreError as error:
            log.warning(
                "worker %s could not release its claims; they wait for its lease to expire: %s", self.name, error
            )

    @property
    def busy(self) -> int:
        """How many operations are running."""
        return len(self._running)

    def _supervise(self, loop: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Start a loop that restarts if it fails: a worker that keeps its lease and does nothing would be the worst."""
        name = f"worker {self.name} {loop.__name__}"
        return asyncio.create_task(supervise(name, loop, log), name=name)

    async def _release_claims_of(self, name: str) -> int:
        return await self._store.transact(lambda tx: release_worker_claims(tx, [name]))

    def _operation_tasks(self) -> list[asyncio.Task[None]]:
        return [running.task for running in self._running.values() if running.task is not None]

    def _on_topics(self, topics: Topic) -> None:
        if topics & Topic.WORK:
            self._claimable.set()
        if topics & (Topic.TIMER | Topic.WORK):
            self._scheduler.due_changed.set()
        if topics & Topic.FENCE:
            self._recheck_claims.set()

    # --- claiming and running ----------------------------------------------------------------------------------------

    async def _claim_loop(self) -> None:
        while True:
            await self._claimable.wait()
            if self._last_claim_size > 1:
                await asyncio.sleep(self._last_claim_at + CLAIM_GATHER_S - asyncio.get_running_loop().time())
            self._last_claim_size = 0
            self._claimable.clear()
            self._return_prefetched_soon(self._prefetched.take_unneeded(asyncio.get_running_loop().time()))
            room, prefetch = max(0, self._slots - len(self._running)), self._prefetched.plan()
            self._is_full = room == 0
            if (room or prefetch.counts) and self._lease.left_s > 0 and await self._claim(room, prefetch):
                self._claimable.set()

    async def _claim(self, room: int, prefetch: PrefetchPlan) -> bool:
        """Claim operations and start them; tells whether there may be more."""
        clock = asyncio.get_running_loop().time
        async with self._claim_lock:
            began = clock()
            result = await self._retry_on_store_error(
                lambda tx: claim(tx, self._kinds, self._lease.record, room, prefetch)
            )
            has_more = self._start_claimed(result)
        if self._kinds.filter is not None:
            # It may have walked past 10,000 operations of unknown kinds, which takes tens of milliseconds: the store is
            # left to others for as long.
            await asyncio.sleep(clock() - began)
        return has_more

    def _start_claimed(self, result: ClaimResult) -> bool:
        now = asyncio.get_running_loop().time()
        self._last_claim_size, self._last_claim_at = len(result.claims) + len(result.prefetched), now
        if not self._start_all(result.claims, result.claimed_at):
            return False
        self._prefetched.add(result.prefetched, result.claimed_at, now)
        return result.has_more

    def _start_all(self, claims: Sequence[Claim], claimed_at: float) -> bool:
        if self._lease.left_s <= 0:  # the answer took too long: others may have taken over already
            self._recheck_claims.set()
            return False
        for taken in claims:
            self._start(RunningOperation(taken, claimed_at))
        return True

    async def accept(self, requests: Sequence[Request]) -> Sequence[Verdict]:
        """Accept requests, and claim in the same transaction what can start immediately, which saves a commit."""
        async with self._accept_lock:
            room = self._slots - len(self._running) if self._lease.left_s > 0 else 0
            eager = EagerClaims(self._lease.record, room)
            program = accept_function(self._kinds, requests, eager)
            self._accepting = {Key(request.ns, request.op) for request in requests}
            try:
                if not self._store.serializes_writes or room <= 0 or self._claim_lock.locked():
                    verdicts = await self._store.transact(program)
                else:
                    verdicts = await self._accept_with_claims(program, eager, room)
                self._start_all(eager.claims, eager.claimed_at)
            except BaseException:
                self._recheck_claims.set()  # it may have been committed, with claims that nobody here knows
                raise
            finally:
                self._accepting = frozenset()
            return verdicts

    async def _accept_with_claims(self, program: TxFunction[T], eager: EagerClaims, room: int) -> T:
        """Run an accepting transaction, and in it also claim operations that eager claims could not take.

        Only for stores that serialize writes anyway: in others, the rows that the program locks would be held longer.
        """
        prefetch = self._prefetched.plan()

        async def accept_and_claim(tx: Tx) -> tuple[T, ClaimResult]:
            verdicts = await program(tx)
            left = room - len(eager.claims) if eager.has_unclaimed else 0
            if left <= 0:
                return verdicts, ClaimResult(tx.now, [], [], has_more=False)
            return verdicts, await claim(tx, self._kinds, self._lease.record, left, prefetch)

        async with self._claim_lock:
            verdicts, result = await self._store.transact(accept_and_claim)
            if self._start_claimed(result):
                self._claimable.set()
        return verdicts

    def _start(self, running: RunningOperation) -> None:
        key = running.claim.work.key
        if key in self._running:  # it was requeued by others, and claimed here again
            request_stop(self._running[key], "lost")
        self._running[key] = running
        self._prefetched.enter_slot(running)
        # In the worker's own context: a request that claims eagerly must not become the parent of the trace.
        running.task = asyncio.create_task(self._run_safely(running), context=self._context.copy())
        running.task.add_done_callback(lambda _: self._on_task_done(key, running))

    def _handler(self, operation: Operation) -> Handler:
        try:
            return self._kinds[operation.kind].handlers[operation.action]
        except (StatewardError, KeyError):
            return Handler(_no_handler)

    async def _run_safely(self, running: RunningOperation) -> None:
        try:
            await self._run(running)
        except WaitingForChildren:
            log.debug("operation %s waits for its children", running.claim.operation.id)
        except (Fenced, StoreError) as error:
            log.warning("operation %s is left to other workers: %s", running.claim.operation.id, error)
            running.orphaned = True
        except Exception as error:
            log.debug("operation %s could not be ended", running.claim.operation.id, exc_info=True)
            await self._try_end_later(running, error)

    async def _try_end_later(self, running: RunningOperation, error: Exception) -> None:
        """Requeue an operation whose end could not be recorded, as an end hook failed: each time later than before."""
        claim = running.claim
        after = backoff_delay(claim.work.attempts, self._chance)
        text = f"its end cannot be recorded: its end hook failed ({type(error).__name__})"  # the text may have a secret
        if self._report_intervals.is_due((claim.operation.kind, text)):
            log.error("operation %s of kind %s: %s", claim.operation.id, claim.operation.kind, text, exc_info=error)
        try:
            await self._send_report(claim, self._with_recipients(claim, Requeue(after, text, observe=True), after))
        except Exception:
            log.exception("operation %s is requeued: the worker itself failed", claim.operation.id)
            running.orphaned = True

    def _on_task_done(self, key: Key, running: RunningOperation) -> None:
        """Forget an operation whose task has ended, also one that was cancelled before its first step."""
        if self._running.get(key) is running:
            del self._running[key]
        self._prefetched.leave_slot(running)
        if running.orphaned or (running.task is not None and running.task.cancelled()):
            self._recheck_claims.set()  # as it runs here no more, it will be requeued
        if self._is_full:  # otherwise the last claim has left nothing
            self._claimable.set()

    async def _run(self, running: RunningOperation) -> None:
        claim, started_at = running.claim, asyncio.get_running_loop().time()
        remaining_s = (claim.work.deadline or running.begun_at) - running.begun_at
        running.given_up_at = started_at + max(0.0, remaining_s) + STUBBORN_GRACE_S
        attempt = Attempt(self._handler(claim.operation), self._chance)
        job = Job(claim, self._job_store, remaining_s, self._kinds.types(claim.object.kind), running.begun_at)
        try:
            if claim.work.cancelled:
                outcome: Outcome | Interrupted = await attempt.resolve_cancelled(job)
            else:
                outcome = await (attempt.run(job, remaining_s) if remaining_s > 0 else attempt.resolve_overdue(job))
        except asyncio.CancelledError:
            if running.stop_reason == "lost":
                return
            outcome = await attempt.resolve_cancelled(job) if running.stop_reason == "cancelled" else Interrupted()
        running.given_up_at = inf
        outcome = _masked(job, outcome)
        if isinstance(outcome, Requeue) and outcome.after is not None:  # one that waits for a move has no error
            outcome = self._with_recipients(claim, outcome, outcome.after)
        ended_at = asyncio.get_running_loop().time()
        had_slot = self._prefetched.leave_slot(running, ended_at - started_at)
        successor = None
        if attempt.throttled is not None:
            await self._back_off_lane(claim.work.lane, attempt.throttled)
        elif had_slot and self._slots and self._lease.left_s > 0:
            successor = self._prefetched.take_successor(running, ended_at)
        if successor is None:
            await self._send_report(claim, outcome, steps=job.steps_with_calls)
            return
        self._start(successor)
        is_counted = await self._send_report(claim, outcome, successor.claim, job.steps_with_calls)
        if is_counted and not running.predecessors and self._running.get(successor.claim.work.key) is successor:
            successor.predecessors = ()
        else:
            # The slot may belong to another worker by now, or still to a predecessor; or the successor was stopped
            # before its report of the one that follows it counted.
            self._recheck_claims.set()

    async def _back_off_lane(self, lane: str, after: float) -> None:
        self._return_prefetched_soon(self._prefetched.release_lane(lane))
        with suppress(StoreError):
            pause = await self._store.transact(lambda tx: back_off_lane(tx, lane, after))
            asyncio.get_running_loop().call_later(pause, self._claimable.set)

    def _with_recipients(self, claim: Claim, retry: Requeue, after: float) -> Requeue:
        """Return a retry that says who learns of its error; the log has each error of a lane at growing intervals."""
        if not is_worth_reporting(retry.failures or claim.work.attempts):
            return retry
        operation, lane = claim.operation, claim.work.lane
        if self._report_intervals.is_due((lane, retry.error)):
            at, what = lane or "(default)", (operation.id, operation.action, operation.object)
            log.warning(
                "operation %s (%s of %s) in lane %s is tried again in %.0f s: %s", *what, at, after, retry.error
            )
        parent = operation.parent
        tells_parent = parent is not None and self._report_intervals.is_due((operation.ns, parent))
        return replace(retry, tells_waiter=True, tells_parent=tells_parent)

    def _return_prefetched_soon(self, claims: Sequence[Claim]) -> None:
        if claims:
            task = asyncio.create_task(self._return_prefetched(claims))
            self._return_tasks.add(task)
            task.add_done_callback(self._return_tasks.discard)

    async def _return_prefetched(self, claims: Sequence[Claim]) -> None:
        reports = [self._send_report(claim, NotStarted()) for claim in claims]
        answers = await asyncio.gather(*reports, return_exceptions=True)
        self._prefetched.forget(claims)
        if any(isinstance(answer, BaseException) for answer in answers):
            self._recheck_claims.set()  # claims that could not be returned are unknown here now

    def _send_report(
        self,
        claim: Claim,
        outcome: Outcome | Interrupted | NotStarted,
        successor: Claim | None = None,
        steps: str | None = None,
    ) -> asyncio.Future[bool]:
        return self._reports.submit(
            ClaimReport(claim.operation, self.name, claim.work.epoch, outcome, successor, steps)
        )

    async def _record_reports(self, reports: Sequence[ClaimReport]) -> Sequence[bool | StatewardError]:
        recorded = await self._store.transact(lambda tx: record_claim_reports(tx, self._kinds, reports))
        for report, counted in zip(reports, recorded, strict=True):
            if counted is True and isinstance(report.outcome, Ending) and report.outcome.event in FAILURES:
                operation, reason = report.operation, sanitize_text(report.outcome.error) or "no reason given"
                what = (operation.id, operation.action, operation.kind, operation.object, operation.ns)
                text = " ".join(reason.split())
                log.warning("operation %s (%s of %s %s in %s) %s: %s", *what, report.outcome.event, text)
        return recorded

    # --- the lease ---------------------------------------------------------------------------------------------------

    async def _heartbeat_loop(self) -> None:
        await self._lease.run_heartbeats(self._on_lease_renewed, self._claimable.set)

    async def _lease_expiry_loop(self) -> None:
        await self._lease.run_expiry(self._stop_running)

    def _on_lease_renewed(self) -> None:
        self._recheck_claims.set()
        now = asyncio.get_running_loop().time()
        for running in [candidate for candidate in self._running.values() if candidate.given_up_at <= now]:
            self._end_without_handler(running)

    def _end_without_handler(self, running: RunningOperation) -> None:
        """Report the time-out of an operation whose handler goes on after it was cancelled; its own report is late."""
        operation, running.given_up_at = running.claim.operation, inf
        error = f"not done {operation.within:g} s after it was begun, and its handler ignores that it is cancelled"
        what = (operation.id, operation.action, operation.kind, operation.object)
        log.error("operation %s (%s of %s %s) ends without its handler: %s", *what, error)
        self._prefetched.leave_slot(running)

        def try_again_if_failed(sent: "asyncio.Future[bool]") -> None:
            if sent.cancelled() or sent.exception() is not None:
                running.given_up_at = -inf

        report = self._send_report(running.claim, Ending(TIMED_OUT, CLOCK, error=error))
        report.add_done_callback(try_again_if_failed)

    def _stop_running(self) -> None:
        self._prefetched.forget(self._prefetched.release_all())
        for running in self._running.values():
            request_stop(running, "lost")

    async def _claim_reconcile_loop(self) -> None:
        while True:
            await self._recheck_claims.wait()
            self._recheck_claims.clear()
            async with self._claim_lock:
                await self._reconcile_claims()

    async def _reconcile_claims(self) -> None:
        """Compare the running and prefetched operations with the claims that the store has for this worker."""
        running = dict(self._running)
        held = await self._retry_on_store_error(
            lambda tx: reconcile_owned_work(tx, self.name, self._is_known, self._started_prefetch)
        )
        owned = {work.key: work for work in held}
        for key, operation in running.items():
            work = owned.get(key)
            if (
                work is not None
                and work.is_prefetched
                and work.epoch == operation.claim.work.epoch
                and self._started_prefetch(key) is operation
            ):
                self._prefetched.leave_slot(operation)  # in the store it has none, and another worker may have it
                request_stop(operation, "fenced")
            else:
                stop_if_superseded(operation, work)
        for prefetched in list(self._prefetched):
            if owned.get(prefetched.work.key) != prefetched.work:  # its row has changed, so it is out of date
                self._return_prefetched_soon(self._prefetched.release_lane(prefetched.work.lane))

    def _is_known(self, key: Key) -> bool:
        """Tell whether a claim is running, prefetched, or part of an accept whose result has not arrived."""
        return key in self._running or key in self._prefetched or key in self._accepting

    def _started_prefetch(self, key: Key) -> RunningOperation | None:
        """Return a started prefetched operation whose predecessors are all gone, so that none reports its start."""
        running = self._running.get(key)
        if running is None or not running.predecessors or any(other in self._running for other in running.predecessors):
            return None
        return running

    # --- store errors -------------------------------------------------------------------------------------------------

    async def _retry_on_store_error(self, program: Callable[[Tx], Awaitable[T]]) -> T:
        """Run a transaction function, and again until the store can be reached."""
        while True:
            try:
                return await self._store.transact(program)
            except DatabaseReplaced:  # another process may work on the new file
                self._lease.forfeit()
                self._stop_running()
                await asyncio.Event().wait()
            except StoreError as error:
                log.warning("worker %s waits for the store: %s", self.name, error)
                self._recheck_claims.set()  # a claim may be committed although its answer was lost
                await asyncio.sleep(0.2 + self._chance.random())


def _masked(job: Job, outcome: Outcome | Interrupted) -> Outcome | Interrupted:
    """Return an outcome with the secrets in its texts masked, and log the traceback of a handler's error."""
    if isinstance(outcome, Ending | Requeue) and outcome.error is not None:
        outcome = replace(outcome, error=job.mask_secrets(outcome.error))
    if isinstance(outcome, Ending) and outcome.result is not None:
        outcome = replace(outcome, result=job.mask_result(outcome.result))
    if isinstance(outcome, Ending) and outcome.traceback is not None:
        outcome = replace(outcome, traceback=job.mask_secrets(outcome.traceback))
        what = (job.key.id, job.action, job.claim.object.kind, job.object, job.ns, job.attempt)
        level = (
            logging.WARNING if outcome.event == UNKNOWN else logging.ERROR
        )  # a broken connection is no fault of ours
        log.log(level, "operation %s (%s of %s %s in %s) failed in attempt %d:\n%s", *what, outcome.traceback)
    return outcome


async def _no_handler(job: Job) -> None:
    raise Permanent(f"this process has no handler for {job.action!r} of {job.claim.operation.kind}")


FAILURES = frozenset({FAILED, TIMED_OUT})
