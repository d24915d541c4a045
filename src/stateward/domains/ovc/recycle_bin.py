"""The recycle bin: a stay in it ends by itself, with the account's retention period, and for good.

What went down with its parent has no timer of its own while the parent lies there: the parent's takes it along. So what
is restored with the parent is exactly what went down with it, to the last moment.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from stateward.domains.ovc.lifecycle import ACCOUNT, CLOUDSPACE, DISK, IMAGE, VM
from stateward.domains.ovc.model import RETENTION, SPECS, TRANSITION_STATES, AccountSpec, Stay, seen_of, spec_of
from stateward.domains.ovc.object_updates import put_seen
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.filters import Selector
from stateward.store.records import Key, Object, Timer

IN_THE_BIN = ("DELETED", "TOBEDELETED")
RANKS = {DISK.kind: 1, VM.kind: 2, CLOUDSPACE.kind: 3, IMAGE.kind: 4, ACCOUNT.kind: 5}
"""Of several stays that end together, what is further down goes first."""

CONTAINERS = (CLOUDSPACE.kind, ACCOUNT.kind)
SEES_TO_IT = (*IN_THE_BIN, "DELETING", "RESTORING", "DESTROYING")
"""The states of a parent that lies in the bin, or is on its way there, back or out."""


def timer_key(found: Object) -> Key:
    """Return the name of the timer that ends a stay."""
    return Key(found.ns, f"bin {found.id}")


def bin_timer(found: Object, due: float) -> Timer:
    """Return the timer that ends a stay."""
    return Timer(found.ns, timer_key(found).id, due, RANKS[found.kind], found.id, "destroy", "[]", "{}")


async def settle_stay(uow: UnitOfWork, found: Object) -> None:
    """Begin or end a stay, by the state that an object has come to rest in; what it keeps below it follows.

    An object that is in transition has not come to rest: hidden work on it has ended, and its deletion, which has noted
    the stay already, comes next.
    """
    if found.kind not in RANKS or found.state in TRANSITION_STATES:
        return
    stay = seen_of(found).bin
    if found.state in IN_THE_BIN:
        if stay is None:
            stay = Stay(uow.now)
            put_seen(uow, found, replace(seen_of(found), bin=stay))
        await _arm(uow, found, stay)
    elif stay is not None:
        put_seen(uow, found, replace(seen_of(found), bin=None))
        _set(uow, found, None)
    if found.kind in CONTAINERS:
        await _settle_below(uow, found)


async def _arm(uow: UnitOfWork, found: Object, stay: Stay) -> None:
    if stay.along and await _sees_to_it(uow, Key(found.ns, stay.along)):
        _set(uow, found, None)
    else:
        _set(uow, found, stay.since + await retention_of(uow, found))


def _set(uow: UnitOfWork, found: Object, due: float | None) -> None:
    """Set the timer of a stay, or take it back; what was said of it before in this transaction does not count."""
    key, changes = timer_key(found), uow.changes
    changes.timers = [one for one in changes.timers if one.key != key]
    changes.timers_gone = [one for one in changes.timers_gone if one != key]
    if due is None:
        changes.timers_gone.append(key)
    else:
        changes.timers.append(bin_timer(found, due))


async def _sees_to_it(uow: UnitOfWork, parent: Key) -> bool:
    """Tell whether the parent will take it along."""
    await uow.load([parent])
    found = uow.objects.get(parent)
    return found is not None and not found.removed and found.state in SEES_TO_IT


async def _settle_below(uow: UnitOfWork, parent: Object) -> None:
    """Let the parent's timer stand for those that went down with it, or give them their own."""
    for child in await _went_along(uow, parent):
        stay = seen_of(child).bin
        assert stay is not None
        await _arm(uow, child, stay)


async def _went_along(uow: UnitOfWork, parent: Object) -> Iterable[Object]:
    below = await uow.tx.select(Selector(parent.ns, parent=parent.id, states=IN_THE_BIN))
    return [one for one in below if (stay := seen_of(one).bin) is not None and stay.along == parent.id]


async def retention_of(uow: UnitOfWork, found: Object) -> float:
    """Return how many seconds an object may lie in the bin: what its account says."""
    if found.kind == ACCOUNT.kind:
        return spec_of(found, AccountSpec).retention
    account = getattr(spec_of(found, SPECS[found.kind]), "account", "")
    await uow.load([Key(found.ns, account)])
    owner = uow.objects.get(Key(found.ns, account))
    return RETENTION if owner is None or owner.kind != ACCOUNT.kind else spec_of(owner, AccountSpec).retention
