"""Keeping time: timers are fired, and what is overdue is seen to, when it is time; nobody looks at clocks meanwhile."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from stateward.aio.polling import wait_for_event
from stateward.engine.accept.accept import admit_all
from stateward.engine.errors import NotFound, Refused
from stateward.engine.kinds import Kinds
from stateward.engine.recovery import expedite_overdue
from stateward.engine.requests import Request
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork, promote_waiters
from stateward.errors import StatewardError
from stateward.lifecycle import CLOCK, TRANSITIONAL
from stateward.store.errors import StoreError
from stateward.store.port import Store, Tx, TxFunction
from stateward.store.records import Key, Timer

T = TypeVar("T")

DUE_POLL_MAX_S = 5.0
"""How many seconds pass at most between two looks around, should every wake-up call be lost."""

DUE_RETRY_S = 0.1
"""How many seconds pass before what is due, and could not be done, is tried again."""

DUE_DEBOUNCE_S = 0.05
"""How many seconds pass before the time of the next thing due is asked for again, after something has changed."""


class StoreRunner(Protocol):
    """Runs a program, waiting for as long as the store is out of reach."""

    async def __call__(self, program: TxFunction[T]) -> T: ...


class DueScheduler:
    """The part of a worker that knows when something falls due; what then can be claimed is told to the others."""

    def __init__(
        self,
        store: Store,
        kinds: Kinds,
        new_id: Callable[[], str],
        worker: str,
        run_tx: StoreRunner,
        on_due: Callable[[], None],
    ) -> None:
        self.due_changed = asyncio.Event()  # something may fall due earlier than was known
        self._store, self._kinds, self._new_id = store, kinds, new_id
        self._worker, self._run_tx, self._on_due = worker, run_tx, on_due

    async def run(self) -> None:
        """Keep time for ever."""
        while True:
            pause = await self._seconds_until_due()
            if pause <= 0 and not await self._run_due():
                pause = DUE_RETRY_S  # it waits for somebody: for room in its lane, or for a free worker
            await self._wait(pause)

    async def _seconds_until_due(self) -> float:
        """Return in how many seconds something falls due; news that come later are heard."""
        self.due_changed.clear()
        try:
            wake = await self._store.reader.next_due_time()
            return DUE_POLL_MAX_S if wake is None else wake - await self._store.reader.time()
        except StoreError:
            return DUE_RETRY_S

    async def _run_due(self) -> int:
        fired = await self._run_tx(lambda tx: fire_due_timers(tx, self._kinds, self._new_id, 500))
        late = await self._run_tx(lambda tx: expedite_overdue(tx, self._kinds, self._worker, 100))
        self._on_due()
        return fired + late

    async def _wait(self, pause: float) -> None:
        """Sleep, but not on when somebody may have added what falls due earlier; several such news are one."""
        if await wait_for_event(self.due_changed, min(max(pause, 0.001), DUE_POLL_MAX_S)):
            await asyncio.sleep(DUE_DEBOUNCE_S)
        else:
            self._on_due()


TIMER_RETRY_S = 1.0
"""How many seconds a timer waits that found its object in transition, unless the denial says it (`after`)."""


async def fire_due_timers(tx: Tx, kinds: Kinds, new_id: Callable[[], str], most: int) -> int:
    """Do what is due: each timer is an event by the clock; one whose object is in transition waits."""
    timers = await tx.due_timers(most)
    if not timers:
        return 0
    uow = UnitOfWork(tx)
    verdicts = await admit_all(uow, kinds, [_request(timer, new_id()) for timer in timers])
    for timer, verdict in zip(timers, verdicts, strict=True):
        if _must_wait(verdict):
            uow.changes.timers.append(replace(timer, due=tx.now + getattr(verdict, "after", TIMER_RETRY_S)))
            continue
        uow.changes.timers_gone.append(timer.key)
        found = uow.objects.get(Key(timer.ns, timer.object))
        if isinstance(verdict, StatewardError) and found is not None:
            journal(uow, found, None, CLOCK, timer.id, f"rejected: {timer.event}", reason=str(verdict))
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
