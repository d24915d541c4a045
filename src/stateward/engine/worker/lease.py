"""What the holder of a claim does with it besides ending it: keep notes, and make sure that it still holds it."""

from collections.abc import Callable

from msgspec.structs import replace

from stateward.engine.unit_of_work import UnitOfWork, promote_waiters
from stateward.engine.worker.attempt import RunningOperation
from stateward.store.port import Tx
from stateward.store.records import Key, WorkerRecord, WorkItem


async def heartbeat(tx: Tx, worker: WorkerRecord) -> WorkerRecord:
    """Renew a worker's lease; returns the worker with the time of that."""
    await tx.heartbeat(worker)
    return replace(worker, seen=tx.now)


async def reconcile_owned_work(
    tx: Tx, owner: str, is_known: Callable[[Key], bool], begun: Callable[[Key], RunningOperation | None]
) -> list[WorkItem]:
    """Return what a worker owns; what it owns without knowing of it (an answer was lost) is put back.

    A spare that was begun, and nobody has told so, runs from now on in the place that is freed here. If there is none,
    that place was taken from the worker before, and it is still a spare.
    """
    owned = await tx.owned(owner)
    strays = [work for work in owned if not is_known(work.key)]
    if not strays:
        return owned
    uow = UnitOfWork(tx)
    await uow.load({Key(work.ns, work.object) for work in strays})
    freed = {work.key for work in strays if not work.is_prefetched}
    started = [running for work in owned if work.is_prefetched and (running := begun(work.key)) is not None]
    placed = {running.claim.work.key: running for running in started if not freed.isdisjoint(running.predecessors)}
    for running in placed.values():
        uow.start_prefetched(running.claim)
    for work in strays:
        if work.fenced:
            uow.remove_work(work)
        else:
            uow.update_work(replace(work, owner=None, observe=True))
    await promote_waiters(uow)
    await uow.apply()
    return [placed[work.key].claim.work if work.key in placed else work for work in owned]
