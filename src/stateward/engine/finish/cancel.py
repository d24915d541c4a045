"""Cancelling: what waits is ended at once; what runs is told to stop, and then says what has become of it.

An operation that has children is marked first, and begins no more of them. Then its children are cancelled, each of
which ends as what is true. When all have ended, a worker says how the operation itself has ended. A crash in between
leaves children uncancelled: they are waited for all the same.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from stateward.engine.errors import AlreadyEnded, NoSuchOperation, NotCancelled
from stateward.engine.finish.claim_reports import Ending
from stateward.engine.finish.completion import complete
from stateward.engine.kinds import Kinds, run_end_hooks
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork, promote_waiters
from stateward.lifecycle import CANCELLED, USER
from stateward.store.port import Tx
from stateward.store.records import Key, Operation, WorkItem

CANCEL_REQUESTED_EVENT = "cancel requested"
"""The event of a cancellation that takes effect later; its line says who asked for it."""


async def cancel(tx: Tx, kinds: Kinds, key: Key, who: str) -> Operation:
    """Cancel an operation; returns it as it was found. Its children are cancelled after it: it begins no more then."""
    uow = UnitOfWork(tx)
    await uow.load_operations([key])
    operation = uow.operations.get(key)
    if operation is None:
        raise NoSuchOperation(*key)
    await _load(uow, [operation])
    work = uow.work(key)
    if work is None or work.fenced:
        ended = (await tx.operations([key])).get(key, operation)  # it was read before its object was locked
        raise AlreadyEnded(ended.id, ended.status)
    if not kinds[operation.kind].cancels:
        raise NotCancelled(operation.id, operation.kind)
    _cancel_work(uow, kinds, operation, work, who)
    marked = uow.work(key)
    if marked is not None and not work.cancelled:  # it ends later, by a worker that does not know who asked for it
        journal(uow, uow.objects[Key(operation.ns, operation.object)], operation.id, USER, who, CANCEL_REQUESTED_EVENT)
    await _apply(uow, kinds)
    return operation


async def cancel_children(tx: Tx, kinds: Kinds, children: Sequence[Operation], who: str) -> list[Key]:
    """Cancel the operations that a parent waits for, but for those that have ended or run to their end.

    Returns those that wait for children of their own.
    """
    uow = UnitOfWork(tx)
    uow.operations.update((one.key, one) for one in children)
    await _load(uow, children)
    parents: list[Key] = []
    for one in children:
        work = uow.work(one.key)
        if work is None or work.fenced or not kinds[one.kind].cancels:
            continue
        if work.children:
            parents.append(one.key)
        _cancel_work(uow, kinds, one, work, who)
    await _apply(uow, kinds)
    return parents


async def _load(uow: UnitOfWork, operations: Sequence[Operation]) -> None:
    await uow.load({Key(one.ns, one.object) for one in operations})
    await uow.load_locks({Key(one.ns, one.tree) for one in operations if one.tree is not None})


def _cancel_work(uow: UnitOfWork, kinds: Kinds, operation: Operation, work: WorkItem, who: str) -> None:
    kind = kinds[operation.kind]
    handler = kind.handlers.get(operation.action)
    has_own_look = handler is not None and handler.cancelled is not None
    if work.owner is None and not work.observe and not work.children and not has_own_look:
        found = uow.objects[Key(operation.ns, operation.object)]
        ending = Ending(CANCELLED, error=f"cancelled by {who}" if who else "cancelled")
        complete(uow, kind.lifecycle, found, operation, work, ending)
    else:
        # Somebody is at it, or was and has vanished, or its children are: a worker has to look before anything can be
        # said. It can claim the work when the last child has ended.
        uow.update_work(replace(work, cancelled=True, not_before=min(work.not_before, uow.now)))
        uow.changes.fences_running_work = True


async def _apply(uow: UnitOfWork, kinds: Kinds) -> None:
    await run_end_hooks(uow, kinds)
    await promote_waiters(uow)
    await uow.apply()
