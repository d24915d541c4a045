"""Timers: what is due is done once, in order, in the transaction that takes the timer away."""

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from stateward.engine.accept import admit_all
from stateward.engine.change import journal
from stateward.engine.desk import Desk
from stateward.engine.kinds import Kinds
from stateward.engine.promotion import bring_forward
from stateward.engine.requests import NotFound, Refused, Request
from stateward.errors import StatewardError
from stateward.lifecycle import CLOCK, TRANSITIONAL
from stateward.store.port import Tx
from stateward.store.records import Key, Timer

LATER = 1.0
"""How many seconds a timer waits that found its object in transition, unless the denial says it (`after`)."""


async def fire(tx: Tx, kinds: Kinds, new_id: Callable[[], str], most: int) -> int:
    """Do what is due: each timer is an event by the clock; one whose object is in transition waits."""
    timers = await tx.due_timers(most)
    if not timers:
        return 0
    desk = Desk(tx)
    verdicts = await admit_all(desk, kinds, [_request(timer, new_id()) for timer in timers])
    for timer, verdict in zip(timers, verdicts, strict=True):
        if _must_wait(verdict):
            desk.changes.timers.append(replace(timer, due=tx.now + getattr(verdict, "after", LATER)))
            continue
        desk.changes.timers_gone.append(timer.key)
        found = desk.objects.get(Key(timer.ns, timer.object))
        if isinstance(verdict, StatewardError) and found is not None:
            journal(desk, found, None, CLOCK, timer.id, f"rejected: {timer.event}", reason=str(verdict))
    await bring_forward(desk)
    await desk.apply()
    return len(timers)


def _request(timer: Timer, op: str) -> Request:
    facts = frozenset(msgspec.json.decode(timer.facts))
    return Request(timer.ns, timer.object, timer.event, op, CLOCK, timer.id, facts, timer.args)


def _must_wait(verdict: object) -> bool:
    if isinstance(verdict, Refused):
        return verdict.refusal.state_class is TRANSITIONAL
    return isinstance(verdict, StatewardError) and verdict.retry and not isinstance(verdict, NotFound)
