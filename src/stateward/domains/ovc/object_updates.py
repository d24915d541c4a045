"""Updates of objects in a unit of work, for guards and end hooks.

A VM's action holds its disks: they change their states in the transaction that accepts the action, and are released in
the transaction that ends it.
"""

from typing import Any

from msgspec.structs import replace

from stateward.domains.ovc.errors import NotNow
from stateward.domains.ovc.lifecycle import DISK
from stateward.domains.ovc.model import DiskSeen, DiskSpec, Seen, disk_seen
from stateward.engine import Refused, Request
from stateward.engine.errors import blocker_of
from stateward.engine.requests import EMPTY
from stateward.engine.transitions import change_state
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import CONTROLLER, TRANSITIONAL, WORKER, Move, decide
from stateward.store.changes import Ended
from stateward.store.records import Key, Object, Operation, Status, to_json

END_EVENTS = {Status.SUCCEEDED: "succeeded", Status.FAILED: "failed", Status.CANCELLED: "cancelled"}


def update_object(uow: UnitOfWork, record: Object, **changes: Any) -> Object:  # noqa: ANN401 - fields of Object
    """Change fields of an object other than its state."""
    changed = replace(record, version=uow.next_version(record.key), **changes)
    uow.save_object(record.key, changed)
    return changed


def update_seen(uow: UnitOfWork, record: Object, seen: Seen) -> Object:
    """Replace the `seen` record of an object."""
    return update_object(uow, record, seen=to_json(seen))


# --- disks that an operation of their VM holds -----------------------------------------------------------------------


def disk_move(uow: UnitOfWork, disk: Object, action: str) -> Move:
    """Return the move of a disk that an action of its VM makes; raises if the table does not have it."""
    verdict = decide(DISK, disk.state, action, CONTROLLER)
    if isinstance(verdict, Move):
        return verdict
    holder = uow.operations.get(Key(disk.ns, disk.op)) if disk.op is not None else None
    blocker = None if holder is None else blocker_of(holder, uow.work(holder.key))
    raise (NotNow if verdict.state_class is TRANSITIONAL else Refused)(verdict, blocker)


def hold_disk(uow: UnitOfWork, request: Request, disk: Object, move: Move, **seen: Any) -> Object:  # noqa: ANN401 - of DiskSeen
    """Move a disk, and let the operation of its VM hold it."""
    known_of = replace(disk_seen(disk), held_from=disk.state, **seen)
    return update_seen(uow, change_state(uow, disk, move, request.who, request.op, holds=True), known_of)


def release_disk(uow: UnitOfWork, disk: Object, operation: Operation, ended: Ended) -> Object:
    """Release a disk at the end of its VM's operation."""
    seen = disk_seen(disk)
    move = decide(DISK, disk.state, END_EVENTS[ended.status], WORKER, origin=seen.held_from)
    assert isinstance(move, Move), move
    error = None if ended.status is Status.SUCCEEDED else ended.error
    rested = change_state(uow, disk, move, operation.who, operation.id, error=error)
    return update_seen(uow, rested, replace(seen, held_from=""))


def define_disk(uow: UnitOfWork, request: Request, id_: str, spec: DiskSpec, vm: str, slot: int) -> Object:
    """Define a disk of a VM, in the transaction that creates the VM or adds the disk."""
    labels = to_json({"account": spec.account, "name": spec.name})
    void = Object(
        request.ns, id_, DISK.kind, DISK.initial.word, uow.now, 0, 0, None, vm, vm, EMPTY, labels, None, uow.now
    )
    move = decide(DISK, void.state, "define", CONTROLLER)
    assert isinstance(move, Move)
    seen = to_json(DiskSeen(scoped=True, vm=vm, slot=slot))
    return change_state(uow, void, move, request.who, request.op, spec=to_json(spec), seen=seen, generation=1)
