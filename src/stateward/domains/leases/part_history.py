"""The journal of a lease's parts: the commit that writes a lease also journals the moves of its parts.

Reservations and events live inside their lease's row, so the journal entry of each of their moves is written with the
row: by the commit that accepts an action, by the one that ends it, or by a decision in between. An entry is about the
part's own id.
"""

from msgspec.structs import replace

from stateward.domains.leases.lifecycle import EVENT, RESERVATION
from stateward.domains.leases.model import EventType, LeaseSeen, event_id
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.records import JournalEntry, Key

_EVENTS = frozenset(EventType)


def append_part_history(uow: UnitOfWork, lease: Key, seen: LeaseSeen, op: str | None, who: str) -> LeaseSeen:
    """Append the pending moves of a lease's parts to the journal; returns the parts without them."""
    for move in seen.moves:
        is_event = move.part in _EVENTS
        part = event_id(lease.id, EventType(move.part)) if is_event else move.part
        kind = EVENT.kind if is_event else RESERVATION.kind
        uow.append_journal(
            JournalEntry(lease.ns, part, kind, op, uow.now, move.actor, who, move.event, None, None, move.why or None)
        )
    return replace(seen, moves=()) if seen.moves else seen
