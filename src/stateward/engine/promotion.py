"""Who comes next: locks that were given back go to those who wait for them, and queues move up."""

from collections.abc import Iterable

from msgspec.structs import replace

from stateward.engine.desk import Desk
from stateward.store.records import Key


async def bring_forward(desk: Desk) -> None:
    """Grant released locks in turn; an operation that holds all of its own and heads its queue becomes ready."""
    left = desk.take_left()
    await _load_trees(desk, left)
    for op in left:
        desk.release(op)
    lucky = desk.grant_locks()
    await desk.load_operations(lucky)
    await desk.load({Key(key.ns, desk.operations[key].object) for key in lucky if desk.work(key) is None})
    queues = dict.fromkeys(left.values())
    queues.update((Key(work.ns, work.queue), None) for key in lucky if (work := desk.work(key)) is not None)
    await _move_up(desk, queues)


async def _move_up(desk: Desk, queues: Iterable[Key]) -> None:
    heads = [line[0] for queue in queues if (line := desk.queue(queue)) and not line[0].ready]
    await _load_trees(desk, [work.key for work in heads])
    for work in heads:
        if not desk.waits_for_locks(work):
            desk.change(replace(work, ready=True))


async def _load_trees(desk: Desk, ops: Iterable[Key]) -> None:
    """Load the trees that operations may hold locks on, so that what is said about their locks is true."""
    keys = list(ops)
    await desk.load_operations(keys)
    found = (desk.operations[key] for key in keys)
    await desk.load_locks(list(dict.fromkeys(Key(one.ns, one.tree) for one in found if one.tree is not None)))
