"""Timers of a lease: start, warning before the end, end, and the replacement of failed hosts.

Timers may fire early but never late: the guard checks the lease's own times again and reschedules the timer. Of timers
that are due at the same instant, ends fire before starts, so that a host goes from one lease to the next. The timers of
the warning and of the end are set when the lease starts; a lease that is in ERROR before that has the timer of the end.
"""

from collections.abc import Iterable

from stateward.domains.leases.ended_leases import forget_timer_id
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
"""The events that are still to come, by the status of the lease."""


def pending_timers(lease: Lease, *events: EventType) -> list[Timer]:
    """Return the timers of those events that are not done yet."""
    return [
        _timer(lease, event, due)
        for event in events
        if lease.seen.events[event] is EventState.UNDONE and (due := lease.spec.time_of(event)) is not None
    ]


def rescheduled_timers(lease: Lease, before: Lease) -> list[Timer]:
    """Return the timers of a lease that is being updated; each is due at the earlier of its old and its new time.

    If the update fails, the old times hold again, so a timer must not fire later than they say.
    """
    timers = pending_timers(lease, *PENDING_EVENTS.get(status_of(lease.object), ()))
    return [
        _timer(lease, _event_of(timer), min(timer.due, _previous_due(before, _event_of(timer)))) for timer in timers
    ]


def timer_keys(ns: str, lease: str) -> list[Key]:
    """Return the keys of all timers that a lease may have."""
    return [*(Key(ns, _timer_name(lease, event)) for event in EventType), Key(ns, forget_timer_id(lease))]


def heal_timer(ns: str, lease: str, host: str, due: float) -> Timer:
    """Return the timer that starts the action `heal` of a lease, for one of its hosts."""
    return Timer(ns, f"{lease}/heal/{host}", due, HEAL_RANK, lease, "heal", "[]", "{}")


def heal_timers(ns: str, leases: Iterable[str], host: str, due: float) -> list[Timer]:
    """Return the timers that start the action `heal` of several leases, for a host that they share."""
    return [heal_timer(ns, lease, host, due) for lease in dict.fromkeys(leases)]


def _timer(lease: Lease, event: EventType, due: float) -> Timer:
    key = lease.object.key
    return Timer(key.ns, _timer_name(key.id, event), due, TIMER_RANKS[event], key.id, ACTIONS[event], "[]", "{}")


def _event_of(timer: Timer) -> EventType:
    return next(event for event, action in ACTIONS.items() if action == timer.event)


def _previous_due(before: Lease, event: EventType) -> float:
    """Return when an event was due before the update; infinity if it was not due any more."""
    undone = before.seen.events[event] is EventState.UNDONE
    due = before.spec.time_of(event) if undone else None
    return float("inf") if due is None else due


def _timer_name(lease: str, event: EventType) -> str:
    return f"{lease}/{event}"
