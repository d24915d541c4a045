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

from stateward.engine.accept import Verdict, accepting
from stateward.engine.batching import Batcher
from stateward.engine.claiming import Catch, claim, throttle
from stateward.engine.conduct import Conduct
from stateward.engine.endings import report
from stateward.engine.handlers import Fenced, HandedOn, Handler, Job, Permanent
from stateward.engine.hands import Hands
from stateward.engine.healer import bury, bury_dead
from stateward.engine.holding import review, sign_of_life
from stateward.engine.kinds import Kinds
from stateward.engine.notes import Notes
from stateward.engine.outcomes import Ending, Report, Retry, Stopped, Untouched
from stateward.engine.requests import Request
from stateward.engine.running import Running, heed, tell_to_stop
from stateward.engine.spares import AHEAD, Pace, Spares
from stateward.engine.timekeeping import Timekeeper
from stateward.engine.troubles import Distances, is_worth_telling
from stateward.errors import StatewardError
from stateward.store import records
from stateward.store.errors import Replaced, StoreError
from stateward.store.port import Program, Store, Topic, Tx
from stateward.store.records import Claim, Key, Operation

T = TypeVar("T")

log = logging.getLogger("stateward.worker")

LEASE = 15.0
"""How many seconds a worker may be silent before others take it for dead."""

GATHER = 0.005
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
        lease: float = LEASE,
        grace: float = 10.0,
        ahead: float = AHEAD,
    ) -> None:
        self.name = name
        self._process = name.split("/")[0]  # workers of one process share what stands before the stroke
        self._store = store
        self._kinds = kinds
        self._chance = chance
        self._slots = slots
        self._lease = lease
        self._grace = grace
        self._record = records.Worker(name, lease, 0.0, socket.gethostname(), os.getpid())
        self._running: dict[Key, Running] = {}
        self._spares = Spares(ahead)
        self._returns: set[asyncio.Task[None]] = set()
        self._reports: Batcher[Report, bool] = Batcher(self._report, chance, patience=lease)
        self._claim_lock = asyncio.Lock()  # between a claim's commit and its start, it looks like a stray
        self._hungry, self._fences = asyncio.Event(), asyncio.Event()
        self._time = Timekeeper(store, kinds, new_id, name, self._patiently, self._hungry.set)
        self._told = Distances(lambda: asyncio.get_running_loop().time())
        self._notes = Notes(store, kinds, name, self._reports, self._told)
        self._seekers: list[asyncio.Task[None]] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._unsubscribe: Callable[[], None] = lambda: None
        self._seen = 0.0
        self._context = copy_context()
        self._coming: Collection[Key] = frozenset()  # what is being accepted, and may be ours from then on
        self._caught = 0  # how many operations the last claim brought
        self._claimed = 0.0  # when that was
        self._full = False  # no slot was free when there was something to claim

    # --- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Come to life; alone on the database, what was held before a crash is freed at once."""
        self._context = copy_context()
        if await self._store.alone():
            for former in await self._store.reader.workers():
                if former.id.split("/")[0] != self._process:
                    await self._freed(former.id)
        await self._renew()
        self._unsubscribe = self._store.subscribe(self._woken)
        self._seekers = [self._tireless(loop) for loop in (self._claiming, self._time.keep)]
        keepers = (self._keeping_the_lease, self._minding_the_lease, self._watching_fences)
        self._keepers = [self._tireless(loop) for loop in keepers]
        self._woken(Topic.WORK | Topic.TIMER)

    async def stop(self) -> None:
        """Claim nothing more, let what runs end within the grace time, give the rest back."""
        self._unsubscribe()
        self._slots = 0
        await _cancelled(self._seekers)
        self._give_back(self._spares.let_all_go())
        if self._running:
            await asyncio.wait(self._tasks(), timeout=self._grace)
        await _cancelled(self._tasks())
        await asyncio.gather(*self._returns)
        await self._reports.drain()
        await _cancelled(self._keepers)  # only now: what still ran needed the lease
        try:
            await self._freed(self.name)
        except StoreError as error:
            log.warning("worker %s could not say goodbye: %s", self.name, error)

    @property
    def busy(self) -> int:
        """How many operations it works on."""
        return len(self._running)

    def _tireless(self, loop: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Run a loop, and again should it fail: a worker that keeps its lease and does nothing would be the worst."""
        name = f"{self.name} {loop.__name__}"

        async def again() -> None:
            while True:
                try:
                    await loop()
                except Exception:
                    log.exception("worker %s has failed and goes on", name)
                    await asyncio.sleep(1.0)

        return asyncio.create_task(again(), name=name)

    async def _freed(self, name: str) -> None:
        await self._store.transact(lambda tx: bury(tx, [name]))

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [one.task for one in self._running.values() if one.task is not None]

    def _woken(self, topics: Topic) -> None:
        if topics & Topic.WORK:
            self._hungry.set()
        if topics & (Topic.TIMER | Topic.WORK):
            self._time.restless.set()
        if topics & Topic.FENCE:
            self._fences.set()

    # --- claiming and running ----------------------------------------------------------------------------------------

    async def _claiming(self) -> None:
        while True:
            await self._hungry.wait()
            if self._caught > 1:
                await asyncio.sleep(self._claimed + GATHER - asyncio.get_running_loop().time())
            self._caught = 0
            self._hungry.clear()
            self._give_back(self._spares.unneeded(asyncio.get_running_loop().time()))
            room, pace = max(0, self._slots - len(self._running)), self._spares.pace()
            self._full = room == 0
            if (room or pace.wanted) and self._left > 0 and await self._claim(room, pace):
                self._hungry.set()

    async def _claim(self, room: int, pace: Pace) -> bool:
        """Claim work and begin it; tells whether there may be more of it."""
        async with self._claim_lock:
            return self._take(await self._patiently(lambda tx: claim(tx, self._record, room, pace)))

    def _take(self, catch: Catch) -> bool:
        now = asyncio.get_running_loop().time()
        self._caught, self._claimed = len(catch.claims) + len(catch.spares), now
        if not self._begin_all(catch.claims, catch.at):
            return False
        self._spares.hold(catch.spares, catch.at, now)
        return catch.more

    def _begin_all(self, claims: Sequence[Claim], at: float) -> bool:
        if self._left <= 0:  # the answer took too long: it may have been taken over already
            self._fences.set()
            return False
        for one in claims:
            self._begin(one, at)
        return True

    async def accept(self, requests: Sequence[Request]) -> Sequence[Verdict]:
        """Accept requests, and take in the same transaction what can begin at once: one commit less before it does."""
        room = self._slots - len(self._running) if self._left > 0 else 0
        hands = Hands(self._record, room)
        program = accepting(self._kinds, requests, hands)
        self._coming = {Key(one.ns, one.op) for one in requests}
        try:
            if not self._store.takes_turns or room <= 0 or self._claim_lock.locked():
                verdicts = await self._store.transact(program)
            else:
                verdicts = await self._alongside(program, hands, room)
            self._begin_all(hands.claims, hands.at)
        except BaseException:
            self._fences.set()  # what was taken, and the answer to it lost, is a stray
            raise
        finally:
            self._coming = frozenset()
        return verdicts

    async def _alongside(self, program: Program[T], hands: Hands, room: int) -> T:
        """Run a program, and claim in the same transaction what hands could not take.

        Only where transactions take turns anyway: elsewhere, what the program has locked would be held for longer.
        """
        pace = self._spares.pace()

        async def both(tx: Tx) -> tuple[T, Catch]:
            answer = await program(tx)
            left = room - len(hands.claims) if hands.left else 0
            if left <= 0:
                return answer, Catch(tx.now, [], [], more=False)
            return answer, await claim(tx, self._record, left, pace)

        async with self._claim_lock:
            answer, catch = await self._store.transact(both)
            if self._take(catch):
                self._hungry.set()
        return answer

    def _begin(self, one: Claim, now: float, before: tuple[Key, ...] = ()) -> Running:
        former = self._running.get(one.work.key)
        if former is not None:  # it was taken from us, and has come back
            tell_to_stop(former, "lost")
        running = self._running[one.work.key] = Running(one, before)
        self._spares.began(one.work)
        conduct = Conduct(self._handler(one.operation), self._chance)
        # In the worker's own context: whoever asked for it, and happens to be the one who claims, is not its parent.
        running.task = asyncio.create_task(self._guarded(running, conduct, now), context=self._context.copy())
        running.task.add_done_callback(lambda _: self._done(running))
        return running

    def _handler(self, operation: Operation) -> Handler:
        try:
            return self._kinds[operation.kind].handlers[operation.action]
        except (StatewardError, KeyError):
            return Handler(_unknown)

    async def _guarded(self, running: Running, conduct: Conduct, now: float) -> None:
        try:
            await self._run(running, conduct, now)
        except HandedOn:
            log.debug("operation %s waits for its children", running.claim.operation.id)
        except (Fenced, StoreError) as error:
            log.warning("operation %s is left to others: %s", running.claim.operation.id, error)
            running.astray = True
        except Exception:
            log.exception("operation %s is put back: the worker itself failed", running.claim.operation.id)
            running.astray = True

    def _done(self, running: Running) -> None:
        """Forget what has ended, be it that it was stopped before it began."""
        if self._running.get(running.claim.work.key) is running:
            del self._running[running.claim.work.key]
        self._leave(running)
        if running.astray or (running.task is not None and running.task.cancelled()):
            self._fences.set()  # now that it does not run here any more, it is seen to be a stray
        if self._full:  # otherwise whatever there was to claim has been claimed
            self._hungry.set()

    async def _run(self, running: Running, conduct: Conduct, now: float) -> None:
        work, begun = running.claim.work, asyncio.get_running_loop().time()
        job = Job(running.claim, self._notes)
        remaining = (work.deadline or now) - now
        try:
            if work.cancelled:
                says: Ending | Retry | Stopped = await conduct.cancel(job)
            else:
                says = await (conduct.run(job, remaining) if remaining > 0 else conduct.settle(job))
        except asyncio.CancelledError:
            if running.why == "lost":
                return
            says = await conduct.cancel(job) if running.why == "cancelled" else Stopped()
        if isinstance(says, Retry) and says.after is not None:  # to wait for a move is no trouble
            says = self._telling(running.claim, says, says.after)
        self._leave(running, asyncio.get_running_loop().time() - begun)
        if conduct.throttled is not None:
            self._give_back(self._spares.let_go(work.lane))
            await self._back_off(work.lane, conduct.throttled)
            await self._tell(running.claim, says)
        elif (successor := self._successor(running)) is None:
            await self._tell(running.claim, says)
        elif await self._tell(running.claim, says, successor.claim) and not running.before:
            successor.before = ()
        else:
            self._fences.set()  # the place may be another's by now, or still that of one before

    def _telling(self, one: Claim, retry: Retry, after: float) -> Retry:
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
        return replace(retry, told=True, parent_told=parent_told)

    def _leave(self, running: Running, seconds: float | None = None) -> None:
        """Note that something has left its place in its lane, once."""
        if not running.over:
            running.over = True
            self._spares.ended(running.claim.work, seconds)
            if self._spares.idle(running.claim.work.lane):
                self._hungry.set()

    def _successor(self, running: Running) -> Running | None:
        """Begin a spare in the place of something that is done, if there is one."""
        work, now = running.claim.work, asyncio.get_running_loop().time()
        held = self._spares.next(work.lane, now) if self._slots and self._left > 0 else None
        if held is None:
            return None
        spare, at = held.claim, held.at + now - held.since
        begun = replace(spare, work=replace(spare.work, deadline=at + spare.operation.within))
        return self._begin(begun, at, before=(work.key, *running.before))

    def _give_back(self, spares: Sequence[Claim]) -> None:
        if spares:
            task = asyncio.create_task(self._return(spares))
            self._returns.add(task)
            task.add_done_callback(self._returns.discard)

    async def _return(self, spares: Sequence[Claim]) -> None:
        told = [self._tell(one, Untouched()) for one in spares]
        answers = await asyncio.gather(*told, return_exceptions=True)
        self._spares.forget(spares)
        if any(isinstance(answer, BaseException) for answer in answers):
            self._fences.set()  # what could not be given back is a stray now

    async def _back_off(self, lane: str, after: float) -> None:
        with suppress(StoreError):
            pause = await self._store.transact(lambda tx: throttle(tx, lane, after))
            asyncio.get_running_loop().call_later(pause, self._hungry.set)

    def _tell(
        self, one: Claim, says: Ending | Retry | Stopped | Untouched, successor: Claim | None = None
    ) -> asyncio.Future[bool]:
        return self._reports.submit(Report(one.operation, self.name, one.work.epoch, says, successor))

    async def _report(self, reports: Sequence[Report]) -> Sequence[bool | StatewardError]:
        return await self._store.transact(lambda tx: report(tx, self._kinds, reports))

    # --- the lease ---------------------------------------------------------------------------------------------------

    async def _keeping_the_lease(self) -> None:
        pause = self._lease / 3
        while True:
            await asyncio.sleep(pause)
            try:
                await self._renew()
                pause = self._lease / 3
                await self._store.transact(lambda tx: bury_dead(tx, self.name))
                self._fences.set()
            except StoreError as error:
                log.warning("worker %s cannot renew its lease: %s", self.name, error)
                pause = min(1.0, self._lease / 15)
            self._hungry.set()

    @property
    def _left(self) -> float:
        """How many seconds the lease still holds, as far as this worker knows."""
        return self._seen + self._lease - asyncio.get_running_loop().time()

    async def _renew(self) -> None:
        begun = asyncio.get_running_loop().time()
        self._record = await self._store.transact(lambda tx: sign_of_life(tx, self._record))
        self._seen = begun

    async def _minding_the_lease(self) -> None:
        """Stop everything when the lease has passed, be the store down or silent: by then others may take over."""
        while True:
            left = self._left
            if left <= 0:
                self._stop_running()
            await asyncio.sleep(left if left > 0 else self._lease / 3)

    def _stop_running(self) -> None:
        self._spares.forget(self._spares.let_all_go())
        for running in self._running.values():
            tell_to_stop(running, "lost")

    async def _watching_fences(self) -> None:
        while True:
            await self._fences.wait()
            self._fences.clear()
            async with self._claim_lock:
                await self._compare()

    async def _compare(self) -> None:
        """Compare what runs here with what the store says is ours."""
        running = dict(self._running)
        held = await self._patiently(lambda tx: review(tx, self.name, self._is_known, self._begun))
        owned = {work.key: work for work in held}
        for key, one in running.items():
            work = owned.get(key)
            if work is not None and work.spare and work.epoch == one.claim.work.epoch and self._begun(key) is one:
                tell_to_stop(one, "fenced")  # its place was taken from us, and another may have it
            else:
                heed(one, work)
        for spare in list(self._spares):
            if owned.get(spare.work.key) != spare.work:  # whoever claims it next knows more
                self._give_back(self._spares.let_go(spare.work.lane))

    def _is_known(self, key: Key) -> bool:
        """Tell whether a claim is no stray: it runs or is to run, or it comes with an answer that is on its way."""
        return key in self._running or key in self._spares or key in self._coming

    def _begun(self, key: Key) -> Running | None:
        """Return a spare that was begun, if all are gone who were there before it, and so tell nobody any more."""
        running = self._running.get(key)
        if running is None or not running.before or any(one in self._running for one in running.before):
            return None
        return running

    # --- patience -----------------------------------------------------------------------------------------------------

    async def _patiently(self, program: Callable[[Tx], Awaitable[T]]) -> T:
        """Run a program, waiting for as long as the store is out of reach."""
        while True:
            try:
                return await self._store.transact(program)
            except Replaced:  # another process may work on the file that is there now
                self._seen = -math.inf
                self._stop_running()
                await asyncio.Event().wait()
            except StoreError as error:
                log.warning("worker %s waits for the store: %s", self.name, error)
                self._fences.set()  # a claim whose answer was lost is a stray
                await asyncio.sleep(0.2 + self._chance.random())


async def _unknown(job: Job) -> None:
    raise Permanent(f"no handler here for {job.action!r} of {job.claim.operation.kind}")


async def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
