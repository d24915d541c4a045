"""What follows when the work on a lease has ended, in the very transaction that ends it.

The journal is told what the work has done to the lease's parts. And what fell due meanwhile, and had to wait because
the lease was in transition, rings again at once, in its own order: a warning before the end that it warns of.
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
    """Write down what has happened to the parts of a lease; returns them with nothing left to tell."""
    for one in seen.moves:
        uow.append_journal(_part_entry(uow.now, lease, one, op, who))
    return replace(seen, moves=()) if seen.moves else seen


def _part_entry(now: float, lease: Key, moved: PartMove, op: str | None, who: str) -> JournalEntry:
    is_event = moved.part in _EVENTS
    part = event_id(lease.id, EventType(moved.part)) if is_event else moved.part
    kind = EVENT.kind if is_event else RESERVATION.kind
    return JournalEntry(lease.ns, part, kind, op, now, moved.actor, who, moved.event, None, None, moved.why or None)


async def on_lease_end(uow: UnitOfWork, operation: Operation, ended: Ended) -> None:  # noqa: ARG001 - see `Kind.after`
    """Tell the journal of a lease's parts, and let ring what is due."""
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
