"""The queuer of the design: each object's queue. The queues are the engine's, and durable.

A queue exists while it has operations. A queue that is being stopped refuses new ones until it is empty; the end hook
that empties it removes the mark, so no process has to stay alive for that.
"""

import asyncio
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.ovc.lifecycle import LIFECYCLES
from stateward.domains.ovc.model import TRANSITION_STATES, read_seen
from stateward.domains.ovc.object_updates import update_seen
from stateward.engine import Engine, NotFound
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.filters import Selector
from stateward.store.port import Tx
from stateward.store.records import Key, Operation

KINDS = frozenset(lifecycle.kind for lifecycle in LIFECYCLES)
DRAIN_POLL_S = 0.05


class ObjectQueue(Struct, frozen=True):
    """The operations of an object's queue, in order; `stopping`: it refuses new ones."""

    object: str
    operations: tuple[Operation, ...]
    stopping: bool = False

    @property
    def exists(self) -> bool:
        """Whether there is a queue: it appears on first use, and is gone when it is drained."""
        return bool(self.operations)


class Queuer:
    """Shows queues, and stops them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def queue(self, ns: str, id_: str) -> ObjectQueue:
        """Return an object's queue; empty if it has no operations."""
        reader, record = self._engine.store.reader, await self._engine.record(ns, id_)
        if record.kind not in KINDS:
            raise NotFound(ns, id_)
        standing = [await reader.operation(work.key) for work in await reader.queue_of(record.key)]
        operations = tuple(operation for operation in standing if operation is not None)
        return ObjectQueue(id_, operations, bool(operations) and read_seen(record).closing)

    async def stop(self, ns: str, id_: str) -> None:
        """Stop a queue: it refuses new operations; returns when it is drained."""
        await self._engine.record(ns, id_)
        await self._engine.store.transact(lambda tx: _close(tx, [Key(ns, id_)]))
        await self._wait_until_drained(ns, id_)

    async def terminate(self, ns: str) -> int:
        """Stop all queues of a namespace; returns their number when all are drained."""

        async def close_all(tx: Tx) -> list[str]:
            moving = await tx.select(Selector(ns, states=TRANSITION_STATES))
            at_rest = await tx.select(Selector(ns, "ovc.vm"))  # a migration does not change the state
            keys = {Key(record.ns, record.queue) for record in (*moving, *at_rest) if record.kind in KINDS}
            return await _close(tx, sorted(keys))

        closed = await self._engine.store.transact(close_all)
        await asyncio.gather(*(self._wait_until_drained(ns, id_) for id_ in closed))
        return len(closed)

    async def _wait_until_drained(self, ns: str, id_: str) -> None:
        while (left := await self.queue(ns, id_)).exists:
            await self._engine.wait_record(ns, left.operations[-1].id)
            await asyncio.sleep(DRAIN_POLL_S)  # a fenced work item goes when its worker has released it


async def _close(tx: Tx, keys: Sequence[Key]) -> list[str]:
    """Mark the existing queues of objects as stopping; returns the ids of their objects."""
    uow = UnitOfWork(tx)
    await uow.load(keys)
    closed = [record for key in keys if (record := uow.objects.get(key)) is not None and uow.queue(key)]
    for record in closed:
        update_seen(uow, record, replace(read_seen(record), closing=True))
    await uow.apply()
    return [record.id for record in closed]
