"""Who comes next: locks that were given back go to those who wait for them, and queues move up."""

from collections.abc import Iterable

from msgspec.structs import replace

from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.records import Key


async def promote_waiters(uow: UnitOfWork) -> None:
    """Grant released locks in turn; an operation that holds all of its own and heads its queue becomes ready."""
    left = uow.drain_dequeued()
    await _load_trees(uow, left)
    for op in left:
        uow.release_locks(op)
    lucky = uow.grant_locks()
    await uow.load_operations(lucky)
    await uow.load({Key(key.ns, uow.operations[key].object) for key in lucky if uow.work(key) is None})
    queues = dict.fromkeys(left.values())
    queues.update((Key(work.ns, work.queue), None) for key in lucky if (work := uow.work(key)) is not None)
    await _promote_queue_heads(uow, queues)


async def _promote_queue_heads(uow: UnitOfWork, queues: Iterable[Key]) -> None:
    heads = [line[0] for queue in queues if (line := uow.queue(queue)) and not line[0].ready]
    await _load_trees(uow, [work.key for work in heads])
    for work in heads:
        if not uow.waits_for_locks(work):
            uow.update_work(replace(work, ready=True))


async def _load_trees(uow: UnitOfWork, ops: Iterable[Key]) -> None:
    """Load the trees that operations may hold locks on, so that what is said about their locks is true."""
    keys = list(ops)
    await uow.load_operations(keys)
    found = (uow.operations[key] for key in keys)
    await uow.load_locks(list(dict.fromkeys(Key(one.ns, one.tree) for one in found if one.tree is not None)))
