"""Changes of a lease's parts: reservations and events move as their own tables say. Pure.

A caller that changes a part also says which status the lease has with it; a combination that the table of
combinations does not have is refused inside the transaction. Each move is recorded with the parts, for the journal
(`part_history`).
"""

from typing import cast

from msgspec.structs import replace

from stateward.domains.leases.combination import violations
from stateward.domains.leases.errors import InvalidCombination, PartRefused
from stateward.domains.leases.lifecycle import EVENT, RESERVATION, EventState, LeaseState, ReservationState
from stateward.domains.leases.model import EventType, LeaseSeen, PartMove, ReservationSeen
from stateward.lifecycle import CLOCK, CONTROLLER, TIMED_OUT, WORKER, Actor, Move, decide
from stateward.lifecycle.rollup import CombinationViolation

E, R = EventState, ReservationState


def new_parts(reservations: dict[str, ReservationSeen]) -> LeaseSeen:
    """Return the parts of a new lease."""
    born = (
        PartMove(
            id_, "reserve", str(CONTROLLER), f"on {', '.join(sorted(reservation.hosts))}" if reservation.hosts else ""
        )
        for id_, reservation in reservations.items()
    )
    return LeaseSeen(reservations, dict.fromkeys(EventType, E.UNDONE), tuple(born))


def require_valid(status: LeaseState, seen: LeaseSeen) -> LeaseSeen:
    """Return the parts; raises InvalidCombination if the lease cannot have this status with them."""
    if violations := _violations(status, seen):
        raise InvalidCombination(violations)
    return seen


def is_valid(status: LeaseState, seen: LeaseSeen) -> bool:
    """Tell whether a lease can have this status with its parts."""
    return not _violations(status, seen)


def _violations(status: LeaseState, seen: LeaseSeen) -> tuple[CombinationViolation, ...]:
    reservations = (reservation.status for reservation in seen.reservations.values())
    return violations(status, reservations, seen.events.get(EventType.START), seen.events.get(EventType.END))


# --- events ----------------------------------------------------------------------------------------------------------


def fire_event(seen: LeaseSeen, which: EventType) -> LeaseSeen:
    """Move an event to IN_PROGRESS: its time has come."""
    return _move_event(seen, which, "fire", CLOCK)


def complete_event(seen: LeaseSeen, which: EventType) -> LeaseSeen:
    """Move an event to DONE."""
    return _move_event(seen, which, "done", WORKER)


def fail_event(seen: LeaseSeen, which: EventType) -> LeaseSeen:
    """Move an event to ERROR: it failed for good."""
    return _move_event(seen, which, "failed", WORKER)


def rearm_event(seen: LeaseSeen, which: EventType) -> LeaseSeen:
    """Move an event from DONE back to UNDONE, so that it happens again; any other stays."""
    return seen if seen.events[which] is not E.DONE else _move_event(seen, which, "re-arm", CONTROLLER)


def reset_interrupted_events(seen: LeaseSeen) -> LeaseSeen:
    """Move events that timed-out work left IN_PROGRESS back to UNDONE, as the table says."""
    for which, status in seen.events.items():
        if status is E.IN_PROGRESS:
            seen = _move_event(seen, which, TIMED_OUT, CLOCK)
    return seen


def give_up_event(seen: LeaseSeen, which: EventType) -> LeaseSeen:
    """Move an event that was not done to ERROR: it will not be done any more."""
    if seen.events[which] is E.UNDONE:
        seen = fire_event(seen, which)
    return fail_event(seen, which) if seen.events[which] is E.IN_PROGRESS else seen


def _move_event(seen: LeaseSeen, which: EventType, event: str, actor: Actor) -> LeaseSeen:
    move = decide(EVENT, seen.events[which], event, actor)
    if not isinstance(move, Move):
        raise PartRefused(which, move)
    moved = replace(seen, events={**seen.events, which: cast("EventState", move.target)})
    return record_move(moved, PartMove(which, event, str(actor), _describe_move(move)))


# --- reservations ----------------------------------------------------------------------------------------------------


def start_reservation(seen: LeaseSeen, reservation: str) -> LeaseSeen:
    """Move a reservation to active: its resources were handed over."""
    return _move_reservation(seen, reservation, "start", R.ACTIVE)


def fail_reservation(seen: LeaseSeen, reservation: str, error: str) -> LeaseSeen:
    """Move a reservation to error, with the reason."""
    moved = _move_reservation(seen, reservation, "fail", R.ERROR, f": {error}")
    return update_reservation(moved, reservation, error=error)


def release_reservation(seen: LeaseSeen, reservation: str) -> LeaseSeen:
    """Move a reservation to deleted: its resources were taken back and its bookings removed."""
    moved = _move_reservation(seen, reservation, "release", R.DELETED)
    return update_reservation(
        moved, reservation, hosts={}, proposed=None, lost=(), missing_resources=False, resources_changed=False
    )


def update_reservation(seen: LeaseSeen, reservation: str, **changes: object) -> LeaseSeen:
    """Change fields of a reservation other than its status."""
    changed = replace(seen.reservations[reservation], **changes)
    return replace(seen, reservations={**seen.reservations, reservation: changed})


def reassign_hosts(seen: LeaseSeen, reservation: str, event: str, after: ReservationSeen) -> LeaseSeen:
    """Replace a reservation's record after a change of its hosts, and record the difference for the journal."""
    before = seen.reservations[reservation]
    changes = [f"without {host}" for host in sorted(before.hosts.keys() - after.hosts.keys())]
    changes += [f"with {host}" for host in sorted(after.hosts.keys() - before.hosts.keys())]
    for flag in ("missing_resources", "resources_changed"):
        if getattr(before, flag) != getattr(after, flag):
            changes.append(f"{flag} {'set' if getattr(after, flag) else 'reset'}")
    why = ", ".join(changes)
    moved = replace(seen, reservations={**seen.reservations, reservation: after})
    return record_move(moved, PartMove(reservation, event, str(CONTROLLER), why)) if why else moved


def record_move(seen: LeaseSeen, moved: PartMove) -> LeaseSeen:
    """Record a move for the journal."""
    return replace(seen, moves=(*seen.moves, moved))


def _describe_move(move: Move) -> str:
    return f"from {move.source} to {move.target}"


def _move_reservation(
    seen: LeaseSeen, reservation: str, event: str, goal: ReservationState, why: str = ""
) -> LeaseSeen:
    current = seen.reservations[reservation]
    if current.status is goal:
        return seen
    move = decide(RESERVATION, current.status, event, CONTROLLER)
    if not isinstance(move, Move):
        raise PartRefused(f"reservation {reservation}", move)
    moved = update_reservation(seen, reservation, status=move.target)
    return record_move(moved, PartMove(reservation, event, str(CONTROLLER), f"{_describe_move(move)}{why}"))
