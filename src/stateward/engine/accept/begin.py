"""The begin of an operation: its rows, its place in the queue, and the locks that it needs."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from stateward.engine.errors import Blocker, Locked, Occupied, blocker_of
from stateward.engine.kinds import Kind
from stateward.engine.requests import EMPTY, Accepted, LockRequest, Request
from stateward.engine.row_locks import conflicting_locks
from stateward.engine.transitions import change_state, fence_operation, journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import Meaning, Move
from stateward.locks.modes import as_mode
from stateward.locks.paths import parse_path
from stateward.store.records import Key, Lock, Object, Operation, Status, WorkItem, to_json


def check_can_begin(uow: UnitOfWork, request: Request, record: Object, move: Move) -> list[Lock]:
    """Refuse a request that cannot begin now, before anything is changed; returns the locks that it is to hold."""
    if move.meaning is Meaning.HIDDEN:
        queued = uow.queue(Key(record.ns, record.queue))
        if queued:
            holder = uow.operations.get(queued[0].key)
            blocker = Blocker(queued[0].op, "", "", "", 0.0) if holder is None else blocker_of(holder)
            raise Occupied(request.action, blocker)
    if request.tree is None:
        return []
    present = uow.locks(Key(request.ns, request.tree))
    wanted = dict.fromkeys(LockRequest(str(parse_path(lock.path)), as_mode(lock.mode).value) for lock in request.locks)
    locks = [Lock(request.ns, request.tree, lock.path, lock.mode, request.op, False, 0) for lock in wanted]
    conflicts = [conflicting_locks(lock, present) for lock in locks]
    if not any(conflicts):
        return locks
    if not request.wait:
        refused, blockers = next(pair for pair in zip(wanted, conflicts, strict=True) if pair[1])
        raise Locked(request.tree, refused, tuple(_lock_blockers(uow, blockers)))
    return [replace(lock, waiting=True) for lock in locks]


def begin_operation(
    uow: UnitOfWork, kind: Kind, request: Request, record: Object, move: Move, locks: Sequence[Lock]
) -> Accepted:
    """Accept an action: the object enters its transitional state, and the work is queued."""
    hidden = move.meaning is Meaning.HIDDEN
    queue = Key(record.ns, record.queue)
    queued = uow.queue(queue)
    route = kind.route(record if request.spec is None else replace(record, spec=request.spec), request.action)
    if move.preempts:
        fence_operation(uow, record, f"pre-empted by {request.op}")
        queued = uow.queue(queue)
    operation = _new_operation(uow, request, record, move)
    changed = record
    if not hidden:
        changed = change_state(
            uow,
            record,
            move,
            request.who,
            operation.id,
            holds=True,
            spec=request.spec,
            seen=request.seen,
            generation=operation.generation,
        )
    for lock in locks:
        uow.add_lock(lock)
    handled = request.action in kind.handlers
    work = WorkItem(
        ns=record.ns,
        op=operation.id,
        object=record.id,
        queue=record.queue,
        seq=0,
        lane=route.lane,
        grp=route.grp,
        priority=request.priority,
        ready=not queued and not any(lock.waiting for lock in locks),
        remote=not handled and move.meaning in (Meaning.REQUEST, Meaning.STEP),
        fenced=False,
        cancelled=False,
        children=request.children,
        not_before=request.not_before,
        deadline=None if handled or move.within is None else uow.now + move.within,
        owner=None,
        epoch=0,
        attempts=0,
        observe=False,
    )
    uow.enqueue(queue, operation, work)
    if hidden:
        journal(uow, record, operation.id, request.actor, request.who, request.action)
    return Accepted(changed, operation)


def _new_operation(uow: UnitOfWork, request: Request, record: Object, move: Move) -> Operation:
    is_new_spec = request.spec is not None and request.spec != record.spec
    return Operation(
        ns=record.ns,
        id=request.op,
        object=record.id,
        kind=record.kind,
        action=request.action,
        actor=request.actor,
        who=request.who,
        facts=to_json(sorted(request.facts)) if request.facts else "[]",
        args=request.args,
        origin=record.state,
        via=move.target.word,
        desired=move.desired.word if move.desired else record.state,
        failing=move.error.word if move.error else record.state,
        hidden=move.meaning is Meaning.HIDDEN,
        within=move.within or 0.0,
        generation=record.generation + 1 if is_new_spec or request.creates is not None else record.generation,
        previous_spec=record.spec if is_new_spec and request.creates is None else None,
        parent=request.parent,
        tree=request.tree,
        status=Status.WAITING,
        attempts=0,
        steps=EMPTY,
        result=None,
        error=None,
        created=uow.now,
        bulk=uow.bulk_of(request.op),
    )


def _lock_blockers(uow: UnitOfWork, locks: Iterable[Lock]) -> Iterable[Blocker]:
    for lock in locks:
        holder = uow.operations.get(Key(lock.ns, lock.op))
        base = (
            Blocker(lock.op, "", "", "", 0.0) if holder is None else replace(blocker_of(holder), object=holder.object)
        )
        yield replace(base, path=lock.path, mode=lock.mode, waiting=lock.waiting)
