"""The queuer: each object's queue, as the design names it. The queues themselves are the engine's, and as durable.

A queue is there when something stands in it, and gone when nothing does. One that is being stopped takes nothing more
until it is empty; the mark for that ends with the queue, so nobody has to live to take it away.
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
from stateward.store.records import Key, Object, Operation

KINDS = frozenset(one.kind for one in LIFECYCLES)
DRAIN_POLL_S = 0.05


class ObjectQueue(Struct, frozen=True):
    """What stands in an object's queue, in order; `stopping`: it takes nothing more."""

    object: str
    operations: tuple[Operation, ...]
    stopping: bool = False

    @property
    def exists(self) -> bool:
        """Whether there is a queue: one appears on first use, and is gone when it is drained."""
        return bool(self.operations)


class Queuer:
    """Looks at queues, and stops them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def queue(self, ns: str, id_: str) -> ObjectQueue:
        """Return an object's queue: empty, where nothing was asked for."""
        reader, found = self._engine.store.reader, await self._engine.get(ns, id_)
        if found.kind not in KINDS:
            raise NotFound(ns, id_)
        standing = [await reader.operation(work.key) for work in await reader.queue_of(found.key)]
        operations = tuple(one for one in standing if one is not None)
        return ObjectQueue(id_, operations, bool(operations) and read_seen(found).closing)

    async def stop(self, ns: str, id_: str) -> None:
        """Let a queue take nothing more, and wait until all that stands in it is done and it is gone."""
        await self._engine.get(ns, id_)
        await self._engine.store.transact(lambda tx: _close(tx, [Key(ns, id_)]))
        await self._wait_until_drained(ns, id_)

    async def terminate(self, ns: str) -> int:
        """Stop all queues of a namespace; returns how many there were."""
        closed = await self._engine.store.transact(lambda tx: _close_all(tx, ns))
        await asyncio.gather(*(self._wait_until_drained(ns, id_) for id_ in closed))
        return len(closed)

    async def _wait_until_drained(self, ns: str, id_: str) -> None:
        while (left := await self.queue(ns, id_)).exists:
            await self._engine.wait(ns, left.operations[-1].id)
            await asyncio.sleep(DRAIN_POLL_S)  # what stands for stopped work goes when its worker has let go


async def _close(tx: Tx, keys: Sequence[Key]) -> list[str]:
    """Mark those queues that are there; returns whose they are."""
    uow = UnitOfWork(tx)
    await uow.load(keys)
    closed = [one for key in keys if (one := uow.objects.get(key)) is not None and uow.queue(key)]
    for one in closed:
        update_seen(uow, one, replace(read_seen(one), closing=True))
    await uow.apply()
    return [one.id for one in closed]


async def _close_all(tx: Tx, ns: str) -> list[str]:
    moving = await _queue_keys(tx, Selector(ns, states=TRANSITION_STATES))
    at_rest = await _queue_keys(tx, Selector(ns, "ovc.vm"))  # a migration does not show
    return await _close(tx, sorted(moving | at_rest))


async def _queue_keys(tx: Tx, chosen: Selector) -> set[Key]:
    found: list[Object] = await tx.select(chosen)
    return {Key(one.ns, one.queue) for one in found if one.kind in KINDS}
