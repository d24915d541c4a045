"""The recycle bin: a stay in it ends by itself, with the account's retention period, and for good.

What went down with its parent has no timer of its own while the parent lies there: the parent's takes it along. So what
is restored with the parent is exactly what went down with it, to the last moment.
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
"""Of several stays that end together, what is further down goes first."""

CONTAINERS = (CLOUDSPACE.kind, ACCOUNT.kind)
PARENT_BIN_STATES = (*BIN_STATES, "DELETING", "RESTORING", "DESTROYING")
"""The states of a parent that lies in the bin, or is on its way there, back or out."""


def bin_timer_key(found: Object) -> Key:
    """Return the name of the timer that ends a stay."""
    return Key(found.ns, f"bin {found.id}")


def bin_timer(found: Object, due: float) -> Timer:
    """Return the timer that ends a stay."""
    return Timer(found.ns, bin_timer_key(found).id, due, TIMER_RANKS[found.kind], found.id, "destroy", "[]", "{}")


async def update_bin_entry(uow: UnitOfWork, found: Object) -> None:
    """Begin or end a stay, by the state that an object has come to rest in; what it keeps below it follows.

    An object that is in transition has not come to rest: hidden work on it has ended, and its deletion, which has noted
    the stay already, comes next.
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
    """Set the timer of a stay, or take it back; what was said of it before in this transaction does not count."""
    key, changes = bin_timer_key(found), uow.changes
    changes.timers = [one for one in changes.timers if one.key != key]
    changes.timers_gone = [one for one in changes.timers_gone if one != key]
    if due is None:
        changes.timers_gone.append(key)
    else:
        changes.timers.append(bin_timer(found, due))


async def _parent_handles(uow: UnitOfWork, parent: Key) -> bool:
    """Tell whether the parent will take it along."""
    await uow.load([parent])
    found = uow.objects.get(parent)
    return found is not None and not found.removed and found.state in PARENT_BIN_STATES


async def _update_children(uow: UnitOfWork, parent: Object) -> None:
    """Let the parent's timer stand for those that went down with it, or give them their own."""
    for child in await _deleted_children(uow, parent):
        stay = read_seen(child).bin
        assert stay is not None
        await _set_bin_timer(uow, child, stay)


async def _deleted_children(uow: UnitOfWork, parent: Object) -> Iterable[Object]:
    below = await uow.tx.select(Selector(parent.ns, parent=parent.id, states=BIN_STATES))
    return [one for one in below if (stay := read_seen(one).bin) is not None and stay.along == parent.id]


async def retention_of(uow: UnitOfWork, found: Object) -> float:
    """Return how many seconds an object may lie in the bin: what its account says."""
    if found.kind == ACCOUNT.kind:
        return read_spec(found, AccountSpec).retention
    account = getattr(read_spec(found, SPECS[found.kind]), "account", "")
    await uow.load([Key(found.ns, account)])
    owner = uow.objects.get(Key(found.ns, account))
    return RETENTION_S if owner is None or owner.kind != ACCOUNT.kind else read_spec(owner, AccountSpec).retention
