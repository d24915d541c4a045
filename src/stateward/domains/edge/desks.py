"""Desks: the rows that a program is about, locked together in one order, and written together."""

from collections.abc import Iterable

from stateward.engine.promotion import promote_waiters
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.port import Tx
from stateward.store.records import Key


async def opened(tx: Tx, keys: Iterable[Key]) -> UnitOfWork:
    """Return a unit of work with these objects and the operations that hold them."""
    uow = UnitOfWork(tx)
    await uow.load(set(keys))
    await uow.load_operations({Key(one.ns, one.op) for one in uow.objects.values() if one.op is not None})
    await uow.load_locks({Key(one.ns, one.tree) for one in uow.operations.values() if one.tree is not None})
    return uow


async def closed(uow: UnitOfWork) -> None:
    """Write everything."""
    await promote_waiters(uow)
    await uow.apply()
