"""What the journal tells of the parts of a lease: each reservation and each event has a history of its own.

They live inside their lease's row, so their lines are written by the commit that writes the row, be it the one that
accepts something or the one that ends it. A line is about the part's own id, and says from what to what in words: its
states are no object's states.
"""

from msgspec.structs import replace

from stateward.domains.leases.lifecycle import EVENT, RESERVATION
from stateward.domains.leases.model import EventType, LeaseSeen, Moved, event_id
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.records import JournalEntry, Key

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
