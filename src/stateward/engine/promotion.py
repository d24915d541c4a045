"""Who comes next: locks that were given back go to those who wait for them, and queues move up."""

from msgspec.structs import replace

from stateward.engine.desk import Desk
from stateward.store.records import Key


async def bring_forward(desk: Desk) -> None:
    """Grant released locks in turn; an operation that holds all of its own and heads its queue becomes ready."""
    lucky = desk.grant_locks()
    if not lucky:
        return
    waiting = await desk.tx.work([key for key in lucky if desk.work(key) is None])
    await desk.load({Key(work.ns, work.object) for work in waiting.values()})
    for key in lucky:
        work = desk.work(key)
        if work is not None and desk.queue(Key(work.ns, work.queue))[0].op == work.op:
            desk.change(replace(work, ready=True))
