"""Desks: the rows that a program is about, locked together in one order, and written together."""

from collections.abc import Iterable

from stateward.engine.desk import Desk
from stateward.engine.promotion import bring_forward
from stateward.store.port import Tx
from stateward.store.records import Key


async def opened(tx: Tx, keys: Iterable[Key]) -> Desk:
    """Return a desk with these objects and the operations that hold them."""
    desk = Desk(tx)
    await desk.load(set(keys))
    await desk.load_operations({Key(one.ns, one.op) for one in desk.objects.values() if one.op is not None})
    await desk.load_locks({Key(one.ns, one.tree) for one in desk.operations.values() if one.tree is not None})
    return desk


async def closed(desk: Desk) -> None:
    """Write everything."""
    await bring_forward(desk)
    await desk.apply()
