"""Cancellation: a waiting operation ends at once; a running one is stopped, and its worker reports how it ended.

A parent operation is marked first, and begins no more children. Then its children are cancelled, and each ends with its
observed outcome. When all have ended, a worker reports how the parent itself has ended. A crash in between leaves some
children uncancelled: the parent then waits until they have ended.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from stateward.engine.errors import AlreadyEnded, NoSuchOperation, NotCancelled
from stateward.engine.finish.claim_reports import Ending
from stateward.engine.finish.completion import complete
from stateward.engine.job_steps import is_in_saga
from stateward.engine.kinds import Kinds, run_end_hooks
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork, promote_waiters
from stateward.lifecycle import CANCELLED, USER
from stateward.store.port import Tx
from stateward.store.records import Key, Operation, WorkItem

CANCEL_REQUESTED_EVENT = "cancel requested"
"""The journal event of a cancellation that takes effect later; the entry says who asked for it."""


async def cancel(tx: Tx, kinds: Kinds, key: Key, who: str, actor: str | None) -> Operation:
    """Cancel an operation, and return it as it was. Its children must be cancelled after it, when it begins no more.

    The actor must be one that could have requested the operation; None stands for the program itself.
    """
    uow = UnitOfWork(tx)
    await uow.load_operations([key])
    operation = uow.operations.get(key)
    if operation is None:
        raise NoSuchOperation(*key)
    kinds.require_interference(operation, actor)
    await _load(uow, [operation])
    work = uow.work(key)
    if work is None or work.fenced:
        ended = (await tx.operations([key])).get(key, operation)  # the first read was before its object was locked
        raise AlreadyEnded(ended.id, ended.status)
    kinds.require_known(uow.objects[Key(operation.ns, operation.object)], operation)
    if not kinds.of(operation).can_cancel(operation.action):
        raise NotCancelled(operation.id, operation.kind)
    await _refresh(uow, [operation])
    operation = uow.operations[key]
    _cancel_work(uow, kinds, operation, work, who)
    marked = uow.work(key)
    if marked is not None and not work.cancelled:  # the worker that ends it later does not know who asked
        journal(
            uow,
            uow.objects[Key(operation.ns, operation.object)],
            operation.id,
            actor or USER,
            who,
            CANCEL_REQUESTED_EVENT,
        )
    await _apply(uow, kinds)
    return operation


async def cancel_all(
    tx: Tx, kinds: Kinds, operations: Sequence[Operation], who: str, actor: str | None = None
) -> list[Key]:
    """Cancel the children of a parent, or the operations of a group.

    Those that have ended, cannot be cancelled, are of an unknown kind, or are not the actor's are left alone. For the
    children of an operation that the actor may cancel, there is no actor. Returns the ones that have children.
    """
    uow = UnitOfWork(tx)
    uow.operations.update((operation.key, operation) for operation in operations)
    await _load(uow, operations)
    await _refresh(uow, operations)
    parents: list[Key] = []
    for operation in operations:
        work = uow.work(operation.key)
        if (
            work is None
            or work.fenced
            or kinds.unknown_words(uow.objects[Key(operation.ns, operation.object)], operation)
        ):
            continue
        kind = kinds.of(operation)
        if not kind.can_cancel(operation.action) or not kind.can_interfere(operation, actor):
            continue
        if work.children:
            parents.append(operation.key)
        _cancel_work(uow, kinds, uow.operations[operation.key], work, who)
    await _apply(uow, kinds)
    return parents


async def _load(uow: UnitOfWork, operations: Sequence[Operation]) -> None:
    await uow.load({Key(operation.ns, operation.object) for operation in operations})
    await uow.load_locks_of(operations)


async def _refresh(uow: UnitOfWork, operations: Sequence[Operation]) -> None:
    """Read operations again whose worker may have stored steps since they were read: now their objects are locked."""
    begun = [operation.key for operation in operations if (work := uow.work(operation.key)) is not None and work.epoch]
    if begun:
        uow.operations.update(await uow.tx.operations(begun))


def _cancel_work(uow: UnitOfWork, kinds: Kinds, operation: Operation, work: WorkItem, who: str) -> None:
    kind = kinds[operation.kind]
    handler = kind.handlers.get(operation.action)
    has_observer = handler is not None and handler.cancelled is not None
    is_begun = is_in_saga(operation.steps)
    if work.owner is None and not work.observe and not work.children and not has_observer and not is_begun:
        record = uow.objects[Key(operation.ns, operation.object)]
        ending = Ending(CANCELLED, error=f"cancelled by {who}" if who else "cancelled")
        complete(uow, kind.lifecycle, record, operation, work, ending)
    else:
        # A worker runs it, or a dead one did, or children run, or its steps may have to be undone: only a worker can
        # tell the outcome. It can claim the operation when the last child has ended.
        uow.update_work(replace(work, cancelled=True, not_before=min(work.not_before, uow.now)))
        uow.changes.fences_running_work = True


async def _apply(uow: UnitOfWork, kinds: Kinds) -> None:
    await run_end_hooks(uow, kinds)
    await promote_waiters(uow)
    await uow.apply()
