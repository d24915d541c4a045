"""A lease's timers. Each is a wake-up call: never too late, perhaps too early; when it is time, the lease itself says.

Of several that are due at the same instant the ends come before the starts, so that a host goes from one lease to the
next. The timers of what follows the start are set when the lease starts.
"""

from collections.abc import Iterable

from stateward.domains.leases.lifecycle import EventState, LeaseState
from stateward.domains.leases.model import ACTIONS, EventType, Lease, status_of
from stateward.store.records import Key, Timer

TIMER_RANKS = {EventType.BEFORE_END: 0, EventType.END: 1, EventType.START: 2}
HEAL_RANK = 3
PENDING_EVENTS = {
    LeaseState.PENDING: (EventType.START,),
    LeaseState.ACTIVE: (EventType.BEFORE_END, EventType.END),
    LeaseState.ERROR: (EventType.END,),
}
"""What a lease has before it, by its status."""


def pending_timers(lease: Lease, *events: EventType) -> list[Timer]:
    """Return the timers of events that are still to come."""
    return [
        _timer(lease, event, due)
        for event in events
        if lease.seen.events[event] is EventState.UNDONE and (due := lease.spec.time_of(event)) is not None
    ]


def rescheduled_timers(lease: Lease, before: Lease) -> list[Timer]:
    """Return the timers of a lease that is being changed: they must do if the change fails, too."""
    timers = pending_timers(lease, *PENDING_EVENTS.get(status_of(lease.object), ()))
    return [_timer(lease, _event_of(one), min(one.due, _previous_due(before, _event_of(one)))) for one in timers]


def timer_keys(ns: str, lease: str) -> list[Key]:
    """Return the keys of all timers that a lease may have."""
    return [Key(ns, _timer_name(lease, event)) for event in EventType]


def heal_timer(ns: str, lease: str, host: str, due: float) -> Timer:
    """Return the timer by which a lease is to look after a host of its own."""
    return Timer(ns, f"{lease}/heal/{host}", due, HEAL_RANK, lease, "heal", "[]", "{}")


def heal_timers(ns: str, leases: Iterable[str], host: str, due: float) -> list[Timer]:
    """Return the timers by which leases are to look after a host of theirs."""
    return [heal_timer(ns, lease, host, due) for lease in dict.fromkeys(leases)]


def _timer(lease: Lease, event: EventType, due: float) -> Timer:
    key = lease.object.key
    return Timer(key.ns, _timer_name(key.id, event), due, TIMER_RANKS[event], key.id, ACTIONS[event], "[]", "{}")


def _event_of(timer: Timer) -> EventType:
    return next(event for event, action in ACTIONS.items() if action == timer.event)


def _previous_due(before: Lease, event: EventType) -> float:
    """Return when an event was to happen before, if it still was to."""
    undone = before.seen.events[event] is EventState.UNDONE
    due = before.spec.time_of(event) if undone else None
    return float("inf") if due is None else due


def _timer_name(lease: str, event: EventType) -> str:
    return f"{lease}/{event}"
