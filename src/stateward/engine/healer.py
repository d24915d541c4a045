"""The healer: nothing outlives its deadline, and nothing waits for the dead.

What a dead worker held is put back, to be looked at first by whoever takes it over. What has passed its deadline is
ended if another party worked on it; otherwise it is handed to a living worker, to look at what is true and to settle
it. Nothing is taken from a worker that is alive and renewing: it keeps the deadline itself.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from stateward.engine.change import journal
from stateward.engine.desk import Desk
from stateward.engine.endings import time_out
from stateward.engine.kinds import Kinds
from stateward.engine.promotion import bring_forward
from stateward.lifecycle import HEALER
from stateward.store.port import Tx
from stateward.store.records import Key, Work

URGENT = 2**31 - 1
"""The priority of what is overdue."""


async def bury_dead(tx: Tx, by: str) -> int:
    """Put back what dead workers held; returns how much it was. Whoever asks is not dead, whatever the clock says."""
    return await bury(tx, [one.id for one in await tx.dead_workers() if one.id != by])


async def bury(tx: Tx, dead: Sequence[str]) -> int:
    """Put back what workers held that are known to be dead, or to have stopped."""
    held = [work for one in dead for work in await tx.owned(one)]
    desk = Desk(tx)
    await desk.load({Key(work.ns, work.object) for work in held})
    for work in held:
        _free(desk, work)
    for one in dead:
        await tx.worker_gone(one)
    await bring_forward(desk)
    await desk.apply()
    return len(held)


def _free(desk: Desk, work: Work) -> None:
    if work.fenced:
        desk.drop(work)
        return
    found = desk.objects[Key(work.ns, work.object)]
    journal(desk, found, work.op, HEALER, "", "put back", reason=f"worker {work.owner} is gone")
    desk.change(replace(work, owner=None, observe=True))


async def settle_overdue(tx: Tx, kinds: Kinds, worker: str, most: int) -> int:
    """End what other parties left undone; the rest goes first in its lane, to be looked at and settled by a worker.

    What the asking worker owns is its own business, even if the store has not heard of it for too long.
    """
    overdue = [work for work in await tx.overdue(most) if work.owner != worker and not _hurried(work)]
    if not overdue:
        return 0
    desk = Desk(tx)
    await time_out(desk, kinds, [work for work in overdue if work.remote])
    ours = [work for work in overdue if not work.remote]
    await desk.load({Key(work.ns, work.object) for work in ours})
    for work in ours:
        _hurry(desk, work)
    await bring_forward(desk)
    await desk.apply()
    return len(overdue)


def _hurried(work: Work) -> bool:
    return work.owner is None and work.priority == URGENT


def _hurry(desk: Desk, work: Work) -> None:
    """Hand overdue work to the next worker that has room: by the usual way, so that the limits hold for looking too."""
    if work.fenced:
        desk.drop(work)
        return
    first = min(work.not_before, desk.now)
    desk.change(replace(work, owner=None, observe=True, priority=URGENT, not_before=first))
