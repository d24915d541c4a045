"""What follows when the work on a lease has ended, in the very transaction that ends it.

The journal is told what the work has done to the lease's parts. And what fell due meanwhile, and had to wait because
the lease was in transition, rings again at once, in its own order: a warning before the end that it warns of.
"""

from msgspec.structs import replace

from stateward.domains.leases.lifecycle import EVENT, RESERVATION
from stateward.domains.leases.model import EventType, LeaseSeen, Moved, event_id, lease_of, status_of, written
from stateward.domains.leases.timers import AHEAD, armed
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.changes import Ended
from stateward.store.records import JournalEntry, Key, Operation

_EVENTS = frozenset(EventType)


def tell(uow: UnitOfWork, lease: Key, seen: LeaseSeen, op: str | None, who: str) -> LeaseSeen:
    """Write down what has happened to the parts of a lease; returns them with nothing left to tell."""
    for one in seen.moves:
        uow.append_journal(_line(uow.now, lease, one, op, who))
    return replace(seen, moves=()) if seen.moves else seen


def _line(now: float, lease: Key, moved: Moved, op: str | None, who: str) -> JournalEntry:
    is_event = moved.part in _EVENTS
    part = event_id(lease.id, EventType(moved.part)) if is_event else moved.part
    kind = EVENT.kind if is_event else RESERVATION.kind
    return JournalEntry(lease.ns, part, kind, op, now, moved.actor, who, moved.event, None, None, moved.why or None)


async def come_to_rest(uow: UnitOfWork, operation: Operation, ended: Ended) -> None:  # noqa: ARG001 - see `Kind.after`
    """Tell the journal of a lease's parts, and let ring what is due."""
    key = Key(operation.ns, operation.object)
    found = uow.objects.get(key)
    if found is None or found.seen == "{}":
        return
    lease = lease_of(found)
    if lease.seen.moves:
        uow.save_object(key, replace(found, seen=written(tell(uow, key, lease.seen, operation.id, operation.who))))
    if not found.removed:
        ahead = armed(lease, *AHEAD.get(status_of(found), ()))
        uow.changes.timers += [one for one in ahead if one.due <= uow.now]
