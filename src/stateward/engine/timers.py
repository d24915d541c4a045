"""Timers: what is due is done once, in order, in the transaction that takes the timer away."""

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from stateward.engine.accept import admit_all
from stateward.engine.kinds import Kinds
from stateward.engine.promotion import promote_waiters
from stateward.engine.requests import NotFound, Refused, Request
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import StatewardError
from stateward.lifecycle import CLOCK, TRANSITIONAL
from stateward.store.port import Tx
from stateward.store.records import Key, Timer

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
