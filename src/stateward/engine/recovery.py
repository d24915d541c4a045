"""The healer: nothing outlives its deadline, and nothing waits for the dead.

What a dead worker held is put back, to be looked at first by whoever takes it over. What has passed its deadline is
ended if another party worked on it; otherwise it is handed to a living worker, to look at what is true and to settle
it. Nothing is taken from a worker that is alive and renewing: it keeps the deadline itself.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from stateward.engine.finish.completion import time_out
from stateward.engine.kinds import Kinds
from stateward.engine.transitions import REQUEUED_EVENT, journal
from stateward.engine.unit_of_work import UnitOfWork, promote_waiters
from stateward.lifecycle import HEALER
from stateward.store.port import Tx
from stateward.store.records import Key, WorkItem

OVERDUE_PRIORITY = 2**31 - 1
"""The priority of what is overdue."""


async def reap_dead_workers(tx: Tx, by: str) -> int:
    """Put back what dead workers held; returns how much it was. Whoever asks is not dead, whatever the clock says."""
    return await release_worker_claims(tx, [one.id for one in await tx.dead_workers() if one.id != by])


async def release_worker_claims(tx: Tx, dead: Sequence[str]) -> int:
    """Put back what workers held that are known to be dead, or to have stopped."""
    held = [work for one in dead for work in await tx.owned(one)]
    uow = UnitOfWork(tx)
    await uow.load({Key(work.ns, work.object) for work in held})
    for work in held:
        _requeue(uow, work)
    for one in dead:
        await tx.remove_worker(one)
    await promote_waiters(uow)
    await uow.apply()
    return len(held)


def _requeue(uow: UnitOfWork, work: WorkItem) -> None:
    if work.fenced:
        uow.remove_work(work)
        return
    found = uow.objects[Key(work.ns, work.object)]
    journal(uow, found, work.op, HEALER, "", REQUEUED_EVENT, reason=f"worker {work.owner} is gone")
    uow.update_work(replace(work, owner=None, observe=True))


async def expedite_overdue(tx: Tx, kinds: Kinds, worker: str, most: int) -> int:
    """End what other parties left undone; the rest goes first in its lane, to be looked at and settled by a worker.

    What the asking worker owns is its own business, even if the store has not heard of it for too long.
    """
    overdue = [work for work in await tx.overdue(most) if work.owner != worker and not _is_expedited(work)]
    if not overdue:
        return 0
    uow = UnitOfWork(tx)
    await time_out(uow, kinds, [work for work in overdue if work.remote])
    ours = [work for work in overdue if not work.remote]
    await uow.load({Key(work.ns, work.object) for work in ours})
    for work in ours:
        _expedite(uow, work)
    await promote_waiters(uow)
    await uow.apply()
    return len(overdue)


def _is_expedited(work: WorkItem) -> bool:
    return work.owner is None and work.priority == OVERDUE_PRIORITY


def _expedite(uow: UnitOfWork, work: WorkItem) -> None:
    """Hand overdue work to the next worker that has room: by the usual way, so that the limits hold for looking too."""
    if work.fenced:
        uow.remove_work(work)
        return
    first = min(work.not_before, uow.now)
    uow.update_work(replace(work, owner=None, observe=True, priority=OVERDUE_PRIORITY, not_before=first))
