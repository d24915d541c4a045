"""The recycle bin: a timer destroys a deleted object at the end of its account's retention period.

An object that was deleted with its parent has no timer while the parent is in the bin: the parent's timer destroys
both. So a restore of the parent brings back exactly the objects that were deleted with it.
"""

from msgspec.structs import replace

from stateward.domains.ovc import model
from stateward.domains.ovc.lifecycle import ACCOUNT, CLOUDSPACE, DISK, IMAGE, VM
from stateward.domains.ovc.object_updates import update_seen
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.filters import Selector
from stateward.store.records import Key, Object, Timer

BIN_STATES = ("DELETED", "TOBEDELETED")
TIMER_RANKS = {DISK.kind: 1, VM.kind: 2, CLOUDSPACE.kind: 3, IMAGE.kind: 4, ACCOUNT.kind: 5}
"""Ranks of timers that are due together: children are destroyed before their parents."""

CONTAINERS = (CLOUDSPACE.kind, ACCOUNT.kind)
PARENT_BIN_STATES = (*BIN_STATES, "DELETING", "RESTORING", "DESTROYING")
"""The states of a parent in the bin, or on its way into it or out of it."""


def bin_timer_key(record: Object) -> Key:
    """Return the key of the timer of an object in the bin."""
    return Key(record.ns, f"bin {record.id}")


async def update_bin_entry(uow: UnitOfWork, record: Object) -> None:
    """Add or remove the bin entry of an object, by the stable state that it has reached; its children follow.

    An object in transition is skipped: a hidden operation on it has ended, and its delete, which has added the entry
    already, runs next.
    """
    if record.kind not in TIMER_RANKS or record.state in model.TRANSITION_STATES:
        return
    stay = model.read_seen(record).bin
    if record.state in BIN_STATES:
        if stay is None:
            stay = model.BinEntry(uow.now)
            update_seen(uow, record, replace(model.read_seen(record), bin=stay))
        await _set_bin_timer(uow, record, stay)
    elif stay is not None:
        update_seen(uow, record, replace(model.read_seen(record), bin=None))
        _replace_timer(uow, record, None)
    if record.kind in CONTAINERS:
        below = await uow.select(Selector(record.ns, parent=record.id, states=BIN_STATES))
        for child, entry in [(child, model.read_seen(child).bin) for child in below]:
            if entry is not None and entry.along == record.id:
                await _set_bin_timer(uow, child, entry)


async def _set_bin_timer(uow: UnitOfWork, record: Object, stay: model.BinEntry) -> None:
    """Set the timer of an object in the bin, unless that of the parent that it was deleted with also stands for it."""
    if stay.along:
        await uow.load([Key(record.ns, stay.along)])
        parent = uow.objects.get(Key(record.ns, stay.along))
        if parent is not None and not parent.removed and parent.state in PARENT_BIN_STATES:
            _replace_timer(uow, record, None)
            return
    _replace_timer(uow, record, stay.since + await retention_of(uow, record))


def _replace_timer(uow: UnitOfWork, record: Object, due: float | None) -> None:
    """Set or remove the timer of an entry, in place of earlier changes of this transaction."""
    key, changes = bin_timer_key(record), uow.changes
    changes.timers = [timer for timer in changes.timers if timer.key != key]
    changes.timers_gone = [other for other in changes.timers_gone if other != key]
    if due is None:
        changes.timers_gone.append(key)
    else:
        changes.timers.append(
            Timer(record.ns, bin_timer_key(record).id, due, TIMER_RANKS[record.kind], record.id, "destroy", "[]", "{}")
        )


async def retention_of(uow: UnitOfWork, record: Object) -> float:
    """Return the retention period of an object in seconds, from its account."""
    if record.kind == ACCOUNT.kind:
        return model.read_spec(record, model.AccountSpec).retention
    account = getattr(model.read_spec(record, model.SPECS[record.kind]), "account", "")
    await uow.load([Key(record.ns, account)])
    owner = uow.objects.get(Key(record.ns, account))
    return (
        model.RETENTION_S
        if owner is None or owner.kind != ACCOUNT.kind
        else model.read_spec(owner, model.AccountSpec).retention
    )
