"""The Blazar design's names: LeaseStatus, ReservationStatus, EventStatus, and the decorator `lease_status`.

    @lease_status(transition=LeaseState.STARTING, result_in=(LeaseState.ACTIVE, LeaseState.ERROR))
    def start_lease(lease): ...

The lease's status is checked and made STARTING before the function, and ACTIVE or ERROR after it. What it can result
in follows from the lease's table; `result_in` repeats it for the reader, and is held against the table.
"""

from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable
from typing import Any, ClassVar, ParamSpec, TypeVar

from msgspec import Struct

from stateward.compat.decorated_actions import AsyncStateHolder, StateHolder, first_argument, performs
from stateward.domains.leases.combination import derived_status, holds
from stateward.domains.leases.lifecycle import EVENT, LEASE, RESERVATION, EventState, LeaseState, ReservationState
from stateward.errors import BadInput
from stateward.lifecycle import FAILED, GONE, SUCCEEDED, TRANSITIONAL, Actor, Back, Lifecycle, Meaning, Move, Row, State

P = ParamSpec("P")
R = TypeVar("R")


class _Status:
    lifecycle: ClassVar[Lifecycle]

    @classmethod
    def is_stable(cls, status: str) -> bool:
        """Tell whether an object may stay in a status."""
        return cls.lifecycle.state(status).state_class is not TRANSITIONAL

    @classmethod
    def is_valid_transition(cls, status: str, following: str) -> bool:
        """Tell whether anything leads from one status to the other at once."""
        wanted = cls.lifecycle.state(status), cls.lifecycle.state(following)
        return any((move.source, move.target) == wanted for move in cls.lifecycle.every_move())


class ReservationStatus(_Status):
    """Questions about the status of a reservation."""

    lifecycle = RESERVATION


class EventStatus(_Status):
    """Questions about the status of an event."""

    lifecycle = EVENT


class LeaseStatus(_Status):
    """Questions about the status of a lease."""

    lifecycle = LEASE

    @staticmethod
    def is_valid_combination(
        status: LeaseState,
        reservations: Iterable[ReservationState],
        start_event: EventState | None,
        end_event: EventState | None,
    ) -> bool:
        """Tell whether a lease may have a status while its reservations and events have theirs."""
        return holds(status, reservations, start_event, end_event)

    @staticmethod
    def derive_stable_status(start_event: EventState | None, end_event: EventState | None) -> LeaseState:
        """Return the stable status that the events of a lease derive."""
        return derived_status(start_event, end_event)


class PartStatuses(Struct, frozen=True):
    """The statuses of a lease's parts; a holder with a method `parts` has the result of its work checked."""

    reservations: tuple[ReservationState, ...]
    start_event: EventState | None
    end_event: EventState | None


def lease_status(
    transition: LeaseState,
    result_in: Iterable[LeaseState],
    non_fatal: Iterable[type[BaseException]] = (),
    *,
    actor: Actor | None = None,
    holder: Callable[..., StateHolder | AsyncStateHolder] = first_argument,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function the work that a lease is in `transition` for; see `performs`.

    The actor is the one that the table names first, unless given. Work that leaves reservations and events in statuses
    that the desired status does not go with has failed, whatever the function thinks.
    """
    rows = [row for row in LEASE.rows if row.meaning is Meaning.ACTION and row.via == transition]
    if not rows:
        raise BadInput("transition", transition, "a status that a lease passes through")
    ends = {end for row in rows for end in _ends(row)} - {GONE}
    results = tuple(result_in)
    if ends != set(results):
        raise BadInput("result_in", results, f"what {transition} results in: {', '.join(sorted(ends))}")
    by = actor or rows[0].actors[0]
    return performs(LEASE, rows[0].event, actor=by, non_fatal=non_fatal, holder=holder, judge=_judged)


def _ends(row: Row) -> Iterable[State]:
    for place in (row.to, row.error):
        if isinstance(place, State):
            yield place
        elif isinstance(place, Back):
            yield from row.sources


def _judged(holder: Any, move: Move) -> str | Awaitable[str]:  # noqa: ANN401  # holders share no base
    parts = getattr(holder, "parts", None)
    if parts is None or not isinstance(move.desired, LeaseState):
        return SUCCEEDED
    statuses = parts()
    return _judged_later(statuses, move.desired) if isawaitable(statuses) else _verdict(statuses, move.desired)


async def _judged_later(statuses: Awaitable[PartStatuses], desired: LeaseState) -> str:
    return _verdict(await statuses, desired)


def _verdict(parts: PartStatuses, desired: LeaseState) -> str:
    together = holds(desired, parts.reservations, parts.start_event, parts.end_event)
    return SUCCEEDED if together else FAILED
