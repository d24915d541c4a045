"""The scheduler of due times: it fires timers and expedites overdue work when they are due.

Every worker runs one. It sleeps until the next due time that the store knows, so that nothing polls meanwhile. A timer
is fired and removed in one transaction, so that it fires exactly once, whatever crashes when.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from stateward.aio.supervise import wait_for_event
from stateward.engine import recovery
from stateward.engine.accept.accept import admit_all
from stateward.engine.errors import NotFound, Refused
from stateward.engine.kinds import Kinds
from stateward.engine.requests import Request
from stateward.engine.transitions import journal_rejection
from stateward.engine.unit_of_work import UnitOfWork, promote_waiters
from stateward.errors import StatewardError
from stateward.lifecycle import CLOCK, TRANSITIONAL
from stateward.store.errors import StoreError
from stateward.store.port import Store, Tx
from stateward.store.records import Key, Timer

log = logging.getLogger("stateward.worker")

DUE_POLL_MAX_S = 5.0
"""How many seconds pass at most between two checks, should every notification be lost."""

DUE_RETRY_S = 0.1
"""How many seconds pass before due work that could not be done is tried again."""

DUE_DEBOUNCE_S = 0.05
"""How many seconds the scheduler waits for further changes before it asks for the next due time again."""


MAX_DUE_TIMERS, MAX_OVERDUE = 500, 100
"""How many timers and overdue operations one transaction processes."""

REMEMBERED_FAILURES = 1_000


class DueScheduler:
    """Fires timers and expedites overdue work; calls `on_due` when there may be new work to claim."""

    def __init__(
        self,
        store: Store,
        kinds: Kinds,
        new_id: Callable[[], str],
        worker: str,
        run_tx: recovery.StoreRunner,
        on_due: Callable[[], None],
    ) -> None:
        self.due_changed = asyncio.Event()  # something may be due earlier than known
        self._store, self._kinds, self._new_id = store, kinds, new_id
        self._worker, self._run_tx, self._on_due = worker, run_tx, on_due
        self._failures: dict[Key, int] = {}  # of timers, since this process has started

    async def run(self) -> None:
        """Run forever."""
        while True:
            pause = await self._seconds_until_due()
            if pause <= 0 and not await self._run_due():
                pause = DUE_RETRY_S  # it waits for a slot in its lane, or for a free worker
            if await wait_for_event(self.due_changed, min(max(pause, 0.001), DUE_POLL_MAX_S)):
                await asyncio.sleep(DUE_DEBOUNCE_S)
            else:
                self._on_due()

    async def _seconds_until_due(self) -> float:
        """Return in how many seconds something is due; a change after the call sets `due_changed` again."""
        self.due_changed.clear()
        try:
            wake = await self._store.reader.next_due_time(self._kinds.filter)
            return DUE_POLL_MAX_S if wake is None else wake - await self._store.reader.time()
        except StoreError:
            return DUE_RETRY_S

    async def _run_due(self) -> int:
        fired = await recovery.run_isolated(
            self._run_tx,
            lambda tx, most: fire_due_timers(tx, self._kinds, self._new_id, most),
            self._postpone_timer,
            MAX_DUE_TIMERS,
        )
        late = await recovery.resolve_overdue(self._run_tx, self._kinds, self._worker, MAX_OVERDUE)
        self._on_due()
        return fired + late

    async def _postpone_timer(self, tx: Tx, failed: recovery.ItemFailed[Timer]) -> None:
        """Set a timer again whose guard or end hook failed: each time later. The first failure is logged and journaled.

        A plugin that is fixed starts with a new process, which begins with a short delay.
        """
        timer = failed.item
        if timer not in await tx.due_timers(1, self._kinds.filter):
            return  # another process was faster
        times = self._failures.pop(timer.key, 0) + 1
        self._failures[timer.key] = times
        if len(self._failures) > REMEMBERED_FAILURES:
            del self._failures[next(iter(self._failures))]
        uow = UnitOfWork(tx)
        delay_s = min(recovery.POSTPONED_MAX_S, recovery.POSTPONED_MIN_S * 2.0 ** min(times - 1, 16))
        uow.changes.timers.append(replace(timer, due=tx.now + delay_s))
        await uow.load([Key(timer.ns, timer.object)])
        if times == 1 and (record := uow.objects.get(Key(timer.ns, timer.object))) is not None:
            what = (timer.id, timer.event, record.kind, timer.object, timer.ns)
            log.error("timer %s (%s of %s %s in %s) is tried again later", *what, exc_info=failed.error)
            journal_rejection(uow, record, None, CLOCK, timer.id, timer.event, f"{failed.reason}; it is tried again")
        await uow.apply()


TIMER_RETRY_S = 1.0
"""How many seconds a timer waits whose object is in transition, unless the denial says how long (`after`)."""


async def fire_due_timers(tx: Tx, kinds: Kinds, new_id: Callable[[], str], most: int) -> int:
    """Fire due timers; each is an event by the clock. A timer whose object is in transition is set again."""
    timers = await tx.due_timers(most, kinds.filter)
    if not timers:
        return 0
    uow = UnitOfWork(tx)
    with recovery.naming_failed_item(timers):
        verdicts = await admit_all(uow, kinds, [_request(timer, new_id()) for timer in timers])
    of_timers = [uow.objects.get(Key(timer.ns, timer.object)) for timer in timers]
    kinds.pass_over_unknown_timers(
        (record, timer)
        for record, timer in zip(of_timers, timers, strict=True)
        if record is not None and not record.removed
    )
    for timer, verdict, record in zip(timers, verdicts, of_timers, strict=True):
        if _must_wait(verdict):
            uow.changes.timers.append(replace(timer, due=tx.now + getattr(verdict, "after", TIMER_RETRY_S)))
            continue
        uow.changes.timers_gone.append(timer.key)
        if isinstance(verdict, StatewardError) and record is not None:
            journal_rejection(uow, record, None, CLOCK, timer.id, timer.event, str(verdict))
    await promote_waiters(uow)
    await uow.apply()
    return len(timers)


def _request(timer: Timer, op: str) -> Request:
    facts = frozenset(msgspec.json.decode(timer.facts))
    return Request(timer.ns, timer.object, timer.event, op, CLOCK, timer.id, facts, timer.args)


def _must_wait(verdict: object) -> bool:
    if isinstance(verdict, Refused):
        return verdict.refusal.state_class is TRANSITIONAL
    return isinstance(verdict, StatewardError) and verdict.retry and not isinstance(verdict, NotFound)
