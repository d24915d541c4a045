"""Recovery (the healer): no operation outlives its deadline, and none waits for a dead worker.

The claims of a dead worker are requeued, and the next worker observes their outcome first. Overdue work of another
party is ended. Other overdue work goes first in its lane: the next worker observes its outcome and ends it. Nothing is
taken from a live worker, which keeps the deadlines of its own claims.
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
"""The priority of overdue work."""


async def reap_dead_workers(tx: Tx, by: str) -> int:
    """Requeue the work of workers whose lease expired; returns the count. The calling worker is never reaped."""
    return await release_worker_claims(tx, [one.id for one in await tx.dead_workers() if one.id != by])


async def release_worker_claims(tx: Tx, dead: Sequence[str]) -> int:
    """Requeue the claims of workers that are dead or have stopped, and remove the workers; returns how many claims."""
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
    """End overdue operations of other parties, and let all others go first in their lanes; returns how many.

    The calling worker keeps the deadlines of its own claims, even if its lease looks expired.
    """
    found = await tx.overdue(most, kinds.filter)
    overdue = [work for work in found if work.owner != worker and not _is_expedited(work)]
    if not overdue:
        return 0
    uow = UnitOfWork(tx)
    await uow.load({Key(work.ns, work.object) for work in overdue})
    kinds.pass_over_unknown(uow.objects[Key(work.ns, work.object)].kind for work in overdue)
    await time_out(uow, kinds, [work for work in overdue if work.remote])
    ours = [work for work in overdue if not work.remote]
    for work in ours:
        _expedite(uow, work)
    await promote_waiters(uow)
    await uow.apply()
    return len(overdue)


def _is_expedited(work: WorkItem) -> bool:
    return work.owner is None and work.priority == OVERDUE_PRIORITY


def _expedite(uow: UnitOfWork, work: WorkItem) -> None:
    """Requeue overdue work with the highest priority; its observation needs a slot of the lane like any attempt."""
    if work.fenced:
        uow.remove_work(work)
        return
    not_before = min(work.not_before, uow.now)
    uow.update_work(replace(work, owner=None, observe=True, priority=OVERDUE_PRIORITY, not_before=not_before))
