"""The recycle bin: a timer destroys a deleted object at the end of its account's retention period.

An object that was deleted with its parent has no timer while the parent is in the bin: the parent's timer destroys
both. So a restore of the parent brings back exactly the objects that were deleted with it.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from stateward.domains.ovc.lifecycle import ACCOUNT, CLOUDSPACE, DISK, IMAGE, VM
from stateward.domains.ovc.model import (
    RETENTION_S,
    SPECS,
    TRANSITION_STATES,
    AccountSpec,
    BinEntry,
    read_seen,
    read_spec,
)
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


def bin_timer_key(found: Object) -> Key:
    """Return the key of the timer of an object in the bin."""
    return Key(found.ns, f"bin {found.id}")


def bin_timer(found: Object, due: float) -> Timer:
    """Return the timer that destroys an object in the bin."""
    return Timer(found.ns, bin_timer_key(found).id, due, TIMER_RANKS[found.kind], found.id, "destroy", "[]", "{}")


async def update_bin_entry(uow: UnitOfWork, found: Object) -> None:
    """Add or remove the bin entry of an object, by the stable state that it has reached; its children follow.

    An object in transition is skipped: a hidden operation on it has ended, and its delete, which has added the entry
    already, runs next.
    """
    if found.kind not in TIMER_RANKS or found.state in TRANSITION_STATES:
        return
    stay = read_seen(found).bin
    if found.state in BIN_STATES:
        if stay is None:
            stay = BinEntry(uow.now)
            update_seen(uow, found, replace(read_seen(found), bin=stay))
        await _set_bin_timer(uow, found, stay)
    elif stay is not None:
        update_seen(uow, found, replace(read_seen(found), bin=None))
        _replace_timer(uow, found, None)
    if found.kind in CONTAINERS:
        await _update_children(uow, found)


async def _set_bin_timer(uow: UnitOfWork, found: Object, stay: BinEntry) -> None:
    if stay.along and await _parent_handles(uow, Key(found.ns, stay.along)):
        _replace_timer(uow, found, None)
    else:
        _replace_timer(uow, found, stay.since + await retention_of(uow, found))


def _replace_timer(uow: UnitOfWork, found: Object, due: float | None) -> None:
    """Set or remove the timer of an entry, in place of earlier changes of this transaction."""
    key, changes = bin_timer_key(found), uow.changes
    changes.timers = [one for one in changes.timers if one.key != key]
    changes.timers_gone = [one for one in changes.timers_gone if one != key]
    if due is None:
        changes.timers_gone.append(key)
    else:
        changes.timers.append(bin_timer(found, due))


async def _parent_handles(uow: UnitOfWork, parent: Key) -> bool:
    """Tell whether the parent's timer also stands for the child."""
    await uow.load([parent])
    found = uow.objects.get(parent)
    return found is not None and not found.removed and found.state in PARENT_BIN_STATES


async def _update_children(uow: UnitOfWork, parent: Object) -> None:
    """Set or remove the timers of the children that were deleted with the parent."""
    for child in await _deleted_children(uow, parent):
        stay = read_seen(child).bin
        assert stay is not None
        await _set_bin_timer(uow, child, stay)


async def _deleted_children(uow: UnitOfWork, parent: Object) -> Iterable[Object]:
    below = await uow.select(Selector(parent.ns, parent=parent.id, states=BIN_STATES))
    return [one for one in below if (stay := read_seen(one).bin) is not None and stay.along == parent.id]


async def retention_of(uow: UnitOfWork, found: Object) -> float:
    """Return the retention period of an object in seconds, from its account."""
    if found.kind == ACCOUNT.kind:
        return read_spec(found, AccountSpec).retention
    account = getattr(read_spec(found, SPECS[found.kind]), "account", "")
    await uow.load([Key(found.ns, account)])
    owner = uow.objects.get(Key(found.ns, account))
    return RETENTION_S if owner is None or owner.kind != ACCOUNT.kind else read_spec(owner, AccountSpec).retention
