"""Lookups and checks that the guards of all kinds share: expected state, queue, names, and the states of parents.

Below a disabled parent nothing is created, started or enlarged; stopping, removing and restoring are allowed. The rows
of the parents are locked while a request is decided (they are in its lock set), so none is disabled in between.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from stateward.domains.ovc import errors
from stateward.domains.ovc.lifecycle import ACCOUNT, CLOUDSPACE, AccountState, CloudspaceState
from stateward.domains.ovc.model import BinEntry, read_seen, short_kind
from stateward.domains.ovc.object_updates import update_seen
from stateward.engine import NotFound, Request
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.lifecycle import CONTROLLER, Lifecycle, State
from stateward.store.filters import Selector
from stateward.store.records import Key, Object, WorkItem

NAME_LABELS = frozenset({"name", "account"})
"""The labels by which taken names are found; callers cannot set them."""

STATUS_FACT = "status="
"""Prefix of the fact that names the state which the caller expects."""

NAMELESS_STATES = ("DESTROYED", "DECOMMISSIONED")
"""The states in which an object's name is free again."""


def require_object(uow: UnitOfWork, ns: str, id_: str, lifecycle: Lifecycle) -> Object:
    """Return a loaded object of this kind; raises NotFound."""
    record = uow.objects.get(Key(ns, id_))
    if record is None or record.removed or record.kind != lifecycle.kind:
        raise NotFound(ns, id_)
    return record


def require_state(uow: UnitOfWork, ns: str, id_: str, lifecycle: Lifecycle, *wanted: State) -> Object:
    """Return a loaded object in one of these states; raises ParentNotReady."""
    record = require_object(uow, ns, id_, lifecycle)
    if record.state not in wanted:
        raise errors.ParentNotReady(
            kind=short_kind(record.kind), id=id_, state=record.state, wanted=" or ".join(wanted)
        )
    return record


async def require_free_name(uow: UnitOfWork, ns: str, lifecycle: Lifecycle, name: str, **where: str) -> None:
    """Raise NameTaken if a name is in use: below a `parent`, in an `account`, or in the namespace.

    The caller has locked the parent or the account; the names of the namespace are locked here.
    """
    if not where:
        await uow.lock([Key(ns, f"names of {lifecycle.kind}")])
    labels = {"name": name, **{key: value for key, value in where.items() if key != "parent"}}
    chosen = Selector(ns, lifecycle.kind, where.get("parent"), labels=tuple(labels.items()))
    for record in await uow.select(chosen):
        if record.state not in NAMELESS_STATES:
            raise errors.NameTaken(name=name, kind=short_kind(record.kind), id=record.id, state=record.state)


def check_request(uow: UnitOfWork, request: Request, record: Object) -> Object:
    """Refuse a request whose expected state is outdated, or whose queue takes no more; returns the current object."""
    for fact in request.facts:
        status = fact.removeprefix(STATUS_FACT)
        if fact.startswith(STATUS_FACT) and status != record.state:
            raise errors.OtherAction(kind=short_kind(record.kind), id=record.id, state=record.state, status=status)
    if request.creates is not None:
        # Refuse a new object whose label `name` is not the name in its spec: taken names are found by the label.
        name = msgspec.json.decode(request.spec or "{}").get("name")
        if msgspec.json.decode(record.labels).get("name") != name:
            raise BadInput("labels", record.labels, f"labels with name={name}, as its spec says")
        return record
    host = uow.objects[Key(record.ns, record.queue)]
    line = uow.queue(host.key)
    seen = read_seen(host)
    if seen.closing and line:
        raise errors.QueueStopping(kind=short_kind(host.kind), id=host.id)
    if seen.closing:
        update_seen(uow, host, replace(seen, closing=False))
    waiting = [work for work in line if not _is_hidden(uow, work)]
    if waiting and _is_hidden(uow, line[0]):
        raise errors.QueueOccupied(kind=short_kind(host.kind), id=host.id, op=waiting[0].op)
    return uow.objects[record.key]


def _is_hidden(uow: UnitOfWork, work: WorkItem) -> bool:
    operation = uow.operations.get(work.key)
    return operation is not None and operation.hidden


C = CloudspaceState
IN_SERVICE = (C.DEPLOYED, C.PAUSING, C.PAUSED, C.RESUMING, C.RESETTING)
"""The states of a cloudspace that is not disabled; an administrator may work on its firewall."""


def require_enabled(uow: UnitOfWork, request: Request, account: str, cloudspace: str = "") -> None:
    """Refuse a request below a disabled parent; the controller may, because it only restores what there was."""
    if request.actor == CONTROLLER:
        return
    if cloudspace:
        record = require_object(uow, request.ns, cloudspace, CLOUDSPACE)
        if record.state not in IN_SERVICE:
            raise errors.ParentNotReady(
                kind=short_kind(record.kind), id=record.id, state=record.state, wanted=str(C.DEPLOYED)
            )
    require_state(uow, request.ns, account, ACCOUNT, AccountState.CONFIRMED)


ACCOUNT_ACTIONS = frozenset({"define", "create", "enable", "deploy", "restore", "resume", "reset"})
"""The actions on cloudspaces and images that also depend on the state of their account."""


def account_lock_set(request: Request, record: Object | None) -> Iterable[Key]:
    """Return the key of the account that the guard of a cloudspace or an image reads."""
    parent = request.creates.parent if request.creates is not None else None if record is None else record.parent
    return [Key(request.ns, parent)] if parent and request.action in ACCOUNT_ACTIONS else ()


BIN_TRANSITION_STATES = ("DELETING", "DELETED", "RESTORING", "DESTROYING", "DESTROYED")
"""The states of a parent in which nothing below it can be restored on its own."""


def request_args(request: Request) -> dict[str, Any]:
    """Return the arguments of a request."""
    args: dict[str, Any] = msgspec.json.decode(request.args)
    return args


def put_in_bin(uow: UnitOfWork, request: Request, record: Object) -> None:
    """Add the bin entry of an object that is deleted, alone or with its parent; the controller acts for a parent."""
    along = str(request_args(request).get("along", "")) if request.actor == CONTROLLER else ""
    update_seen(uow, record, replace(read_seen(record), bin=BinEntry(uow.now, along)))


def require_parent_not_binned(uow: UnitOfWork, request: Request, id_: str, lifecycle: Lifecycle) -> None:
    """Refuse to restore an object whose parent is in the recycle bin, or on its way there or back.

    The controller may: it restores the parent, and its children with it.
    """
    if request.actor == CONTROLLER:
        return
    parent = require_object(uow, request.ns, id_, lifecycle)
    if parent.state in BIN_TRANSITION_STATES:
        raise errors.ParentInBin(kind=short_kind(parent.kind), id=parent.id, state=parent.state)
