"""The healer: nothing outlives its deadline, and nothing waits for the dead.

What a dead worker held is put back, to be looked at first by whoever takes it over. What has passed its deadline is
ended if another party worked on it; otherwise it is fenced and handed to a living worker, to look at what is true and
to settle it. Nothing is taken from a worker that is alive and renewing: it keeps the deadline itself.
"""

from msgspec.structs import replace

from stateward.engine.change import journal
from stateward.engine.desk import Desk
from stateward.engine.endings import time_out
from stateward.engine.kinds import Kinds
from stateward.engine.promotion import bring_forward
from stateward.lifecycle import HEALER
from stateward.store.port import Tx
from stateward.store.records import Claim, Key, Work


async def bury(tx: Tx, worker: str | None = None) -> int:
    """Put back what dead workers held (or a certain one, known to be dead); returns how much it was."""
    dead = [worker] if worker is not None else [one.id for one in await tx.dead_workers()]
    held = [work for one in dead for work in await tx.owned(one)]
    desk = Desk(tx)
    await desk.load({Key(work.ns, work.object) for work in held})
    await desk.load_operations(work.key for work in held)
    trees = {Key(one.ns, one.tree) for one in desk.operations.values() if one.tree is not None}
    await desk.load_locks(trees)
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


async def settle_overdue(tx: Tx, kinds: Kinds, owner: str, most: int) -> list[Claim]:
    """End what other parties left undone, and claim the rest for settling: fenced, and to be looked at first."""
    overdue = await tx.overdue(most)
    if not overdue:
        return []
    desk = Desk(tx)
    await time_out(desk, kinds, [work for work in overdue if work.remote])
    ours = [work for work in overdue if not work.remote]
    await desk.load({Key(work.ns, work.object) for work in ours})
    await desk.load_operations(work.key for work in ours)
    claims = [_claimed(desk, work, owner) for work in ours]
    await bring_forward(desk)
    await desk.apply()
    return [one for one in claims if one is not None]


def _claimed(desk: Desk, work: Work, owner: str) -> Claim | None:
    if work.fenced:
        desk.drop(work)
        return None
    taken = replace(work, owner=owner, epoch=work.epoch + 1, observe=True)
    desk.change(taken)
    return Claim(taken, desk.operations[work.key], desk.objects[Key(work.ns, work.object)])
