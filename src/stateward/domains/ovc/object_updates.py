"""Reads and writes of objects in a unit of work, for guards that accept and for hooks at an operation's end.

A VM's action takes its disks along: they change their states in the same step as the VM, are held by the VM's
operation, and come to rest in the step in which that ends.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from stateward.domains.ovc.errors import NameTaken, NotNow, ParentNotReady
from stateward.domains.ovc.lifecycle import DISK
from stateward.domains.ovc.model import DiskSeen, DiskSpec, Seen, disk_seen, short, text
from stateward.engine import NotFound, Refused, Request
from stateward.engine.errors import blocker_of
from stateward.engine.requests import EMPTY
from stateward.engine.transitions import change_state
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import CONTROLLER, TRANSITIONAL, WORKER, Lifecycle, Move, State, decide
from stateward.store.changes import Ended
from stateward.store.filters import Selector
from stateward.store.records import Key, Object, Operation, Status

GONE_STATES = ("DESTROYED", "DECOMMISSIONED")
"""The states in which an object no longer has its name."""

EVENTS = {Status.SUCCEEDED: "succeeded", Status.FAILED: "failed", Status.CANCELLED: "cancelled"}


def known(uow: UnitOfWork, ns: str, id_: str, lifecycle: Lifecycle) -> Object:
    """Return an object that has been loaded, if it is of this kind."""
    found = uow.objects.get(Key(ns, id_))
    if found is None or found.removed or found.kind != lifecycle.kind:
        raise NotFound(ns, id_)
    return found


def ready(uow: UnitOfWork, ns: str, id_: str, lifecycle: Lifecycle, *wanted: State) -> Object:
    """Return an object that has been loaded, if it is in one of these states."""
    found = known(uow, ns, id_, lifecycle)
    if found.state not in wanted:
        raise ParentNotReady(kind=short(found.kind), id=id_, state=found.state, wanted=" or ".join(wanted))
    return found


def put(uow: UnitOfWork, found: Object, **changes: Any) -> Object:  # noqa: ANN401 - fields of Object
    """Change an object in something else than its state."""
    changed = replace(found, version=uow.next_version(found.key), **changes)
    uow.save_object(found.key, changed)
    return changed


def put_seen(uow: UnitOfWork, found: Object, seen: Seen) -> Object:
    """Change what is known of an object."""
    return put(uow, found, seen=text(seen))


async def refuse_taken(uow: UnitOfWork, ns: str, lifecycle: Lifecycle, name: str, **where: str) -> None:
    """Refuse a name that is in use: under a `parent`, in an `account`, or anywhere.

    The caller has loaded what it is to be unique in; where that is the namespace, its names are locked here.
    """
    if not where:
        await uow.tx.locks([Key(ns, f"names of {lifecycle.kind}")])
    labels = {"name": name, **{key: value for key, value in where.items() if key != "parent"}}
    chosen = Selector(ns, lifecycle.kind, where.get("parent"), labels=tuple(labels.items()))
    stored = {one.key: one for one in await uow.tx.select(chosen)}
    here = {key: one for key, one in uow.objects.items() if _fits(one, chosen)}
    for one in ({**stored, **here}).values():
        if one.state not in GONE_STATES and not one.removed:
            raise NameTaken(name=name, kind=short(one.kind), id=one.id, state=one.state)


def _fits(one: Object, chosen: Selector) -> bool:
    if (one.ns, one.kind) != (chosen.ns, chosen.kind) or chosen.parent not in (None, one.parent):
        return False
    labels = msgspec.json.decode(one.labels)
    return all(labels.get(name) == value for name, value in chosen.labels)


# --- disks that an operation of their VM holds -----------------------------------------------------------------------


def may(uow: UnitOfWork, disk: Object, action: str) -> Move:
    """Return the move that an action of its VM makes with a disk, or raise that it cannot be made."""
    verdict = decide(DISK, disk.state, action, CONTROLLER)
    if isinstance(verdict, Move):
        return verdict
    holder = uow.operations.get(Key(disk.ns, disk.op)) if disk.op is not None else None
    blocker = None if holder is None else blocker_of(holder, uow.work(holder.key))
    raise (NotNow if verdict.state_class is TRANSITIONAL else Refused)(verdict, blocker)


def hold(uow: UnitOfWork, request: Request, disk: Object, move: Move, **seen: Any) -> Object:  # noqa: ANN401 - of DiskSeen
    """Let an operation of its VM take a disk along."""
    known_of = replace(disk_seen(disk), held_from=disk.state, **seen)
    return put_seen(uow, change_state(uow, disk, move, request.who, request.op, holds=True), known_of)


def let_go(uow: UnitOfWork, disk: Object, operation: Operation, ended: Ended) -> Object:
    """Bring a disk to rest together with its VM."""
    seen = disk_seen(disk)
    move = decide(DISK, disk.state, EVENTS[ended.status], WORKER, origin=seen.held_from)
    assert isinstance(move, Move), move
    error = None if ended.status is Status.SUCCEEDED else ended.error
    rested = change_state(uow, disk, move, operation.who, operation.id, error=error)
    return put_seen(uow, rested, replace(seen, held_from=""))


def new_disk(uow: UnitOfWork, request: Request, id_: str, spec: DiskSpec, vm: str, slot: int) -> Object:
    """Describe a disk that belongs to a VM, in the step in which that is made or gets it."""
    labels = text({"account": spec.account, "name": spec.name})
    void = Object(
        request.ns, id_, DISK.kind, DISK.initial.word, uow.now, 0, 0, None, vm, vm, EMPTY, labels, None, uow.now
    )
    move = decide(DISK, void.state, "define", CONTROLLER)
    assert isinstance(move, Move)
    seen = text(DiskSeen(scoped=True, vm=vm, slot=slot))
    return change_state(uow, void, move, request.who, request.op, spec=text(spec), seen=seen, generation=1)
