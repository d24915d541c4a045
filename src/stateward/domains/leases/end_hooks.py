"""The end hook of leases, and the journal of their parts.

Reservations and events live inside their lease's row, so the commit that writes the row also writes their journal
entries, be it the commit that accepts an action or the one that ends it. An entry is about the part's own id.

The end hook runs in the transaction that ends an operation. Timers that fell due while the lease was in transition had
to wait; the hook sets them again, so that they fire at once and in their order.
"""

from msgspec.structs import replace

from stateward.domains.leases.lifecycle import EVENT, RESERVATION
from stateward.domains.leases.model import EventType, LeaseSeen, PartMove, event_id, read_lease, status_of
from stateward.domains.leases.timers import PENDING_EVENTS, pending_timers
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.changes import Ended
from stateward.store.records import JournalEntry, Key, Operation, to_json

_EVENTS = frozenset(EventType)


def append_part_history(uow: UnitOfWork, lease: Key, seen: LeaseSeen, op: str | None, who: str) -> LeaseSeen:
    """Append the pending moves of a lease's parts to the journal; returns the parts without them."""
    for one in seen.moves:
        uow.append_journal(_part_entry(uow.now, lease, one, op, who))
    return replace(seen, moves=()) if seen.moves else seen


def _part_entry(now: float, lease: Key, moved: PartMove, op: str | None, who: str) -> JournalEntry:
    is_event = moved.part in _EVENTS
    part = event_id(lease.id, EventType(moved.part)) if is_event else moved.part
    kind = EVENT.kind if is_event else RESERVATION.kind
    return JournalEntry(lease.ns, part, kind, op, now, moved.actor, who, moved.event, None, None, moved.why or None)


async def on_lease_end(uow: UnitOfWork, operation: Operation, ended: Ended) -> None:  # noqa: ARG001 - see `Kind.on_end`
    """Journal the moves of the lease's parts, and set the timers again that fell due meanwhile."""
    key = Key(operation.ns, operation.object)
    found = uow.objects.get(key)
    if found is None or found.seen == "{}":
        return
    lease = read_lease(found)
    if lease.seen.moves:
        uow.save_object(
            key, replace(found, seen=to_json(append_part_history(uow, key, lease.seen, operation.id, operation.who)))
        )
    if not found.removed:
        ahead = pending_timers(lease, *PENDING_EVENTS.get(status_of(found), ()))
        uow.changes.timers += [one for one in ahead if one.due <= uow.now]
