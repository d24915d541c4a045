"""Which statuses a lease, its reservations and its events may have together.

One table says it, and it is used three ways: to check every change of any of the three before it is kept, to derive
the stable status of a lease from its events, and to print itself in the documentation. A lease may have several
reservations: each must satisfy the condition. The event before_end_lease has no effect on a lease's status, so it has
no column.
"""

from collections.abc import Iterable

from stateward.domains.leases.lifecycle import EventState, LeaseState, ReservationState
from stateward.lifecycle.rollup import ANY, Combination, Combinations, CombinationViolation, one_of
from stateward.lifecycle.states import STABLE

L, R, E = LeaseState, ReservationState, EventState

SETTLED = one_of(E.UNDONE, E.DONE, E.ERROR)

# fmt: off
COMBINATIONS = Combinations("lease", ("reservations", "start_lease", "end_lease"), (
    #           lease           reservations                           start_lease              end_lease
    Combination(L.CREATING,    (one_of(R.PENDING),                     one_of(E.UNDONE),        one_of(E.UNDONE))),
    Combination(L.PENDING,     (one_of(R.PENDING),                     one_of(E.UNDONE),        one_of(E.UNDONE))),
    Combination(L.STARTING,    (one_of(R.PENDING, R.ACTIVE, R.ERROR),  one_of(E.IN_PROGRESS),   one_of(E.UNDONE))),
    Combination(L.ACTIVE,      (one_of(R.ACTIVE),                      one_of(E.DONE),          one_of(E.UNDONE))),
    # with start_lease in ERROR too: what a failed start left behind is taken back when the lease's time is over
    Combination(L.TERMINATING, (one_of(R.ACTIVE, R.DELETED, R.ERROR),  one_of(E.DONE, E.ERROR), one_of(E.IN_PROGRESS))),
    Combination(L.TERMINATED,  (one_of(R.DELETED),                     one_of(E.DONE),          one_of(E.DONE))),
    Combination(L.DELETING,    (ANY,                                   ANY,                     ANY)),
    Combination(L.UPDATING,    (ANY,                                   SETTLED,                 SETTLED)),
    Combination(L.ERROR,       (ANY,                                   ANY,                     ANY)),
))
# fmt: on


def violations(
    lease: LeaseState,
    reservations: Iterable[ReservationState],
    start_event: EventState | None,
    end_event: EventState | None,
) -> tuple[CombinationViolation, ...]:
    """Return the parts that do not fit the lease's status; a missing event fits ERROR and DELETING alone."""
    return COMBINATIONS.violations(lease, reservations, (start_event,), (end_event,))


def holds(
    lease: LeaseState,
    reservations: Iterable[ReservationState],
    start_event: EventState | None,
    end_event: EventState | None,
) -> bool:
    """Tell whether the statuses may stand together."""
    return not violations(lease, reservations, start_event, end_event)


def derived_status(start_event: EventState | None, end_event: EventState | None) -> LeaseState:
    """Return the stable status that the events of a lease derive; ERROR if they derive none."""
    fitting = (lease for lease in _DERIVABLE if holds(lease, (), start_event, end_event))
    return next(fitting, LeaseState.ERROR)


_DERIVABLE = tuple(state for state in LeaseState if state.state_class is STABLE and state is not LeaseState.ERROR)
