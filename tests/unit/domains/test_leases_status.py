import asyncio
from collections.abc import Callable

import pytest

from stateward.compat import EventStatus, LeaseStatus, PartStatuses, ReservationStatus, lease_status
from stateward.compat.decorated_actions import ActionRefused, AttributeHolder
from stateward.domains.leases.lifecycle import EventState, LeaseState, ReservationState
from stateward.errors import BadInput, UnknownName
from stateward.lifecycle import CLOCK, GONE, USER, Actor, State

L, R, E = LeaseState, ReservationState, EventState


class Lease:
    def __init__(self, status: str, start: EventState = E.UNDONE, end: EventState = E.UNDONE) -> None:
        self.status = status
        self.start = start
        self.end = end
        self.reservations: tuple[ReservationState, ...] = ()


class Whole(AttributeHolder):
    """A holder that knows the lease's reservations and events too."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease)
        self.lease = lease

    def parts(self) -> PartStatuses:
        return PartStatuses(self.lease.reservations, self.lease.start, self.lease.end)


class SlowWhole:
    """The same, asynchronous."""

    def __init__(self, lease: Lease) -> None:
        self.inner = Whole(lease)

    async def read(self) -> str | None:
        return self.inner.read()

    async def compare_and_set(self, expected: State, new: State) -> bool:
        return self.inner.compare_and_set(expected, new)

    async def parts(self) -> PartStatuses:
        return self.inner.parts()


class NoHost(Exception):
    pass


class NoSuchHost(NoHost):
    pass


@lease_status(transition=L.STARTING, result_in=(L.ACTIVE, L.ERROR), non_fatal=(NoHost,))
def start_lease(lease: Lease, error: Exception | None = None) -> str:
    assert lease.status is L.STARTING
    if error:
        raise error
    return "started"


def test_lease_is_starting_during_the_start_and_active_after_it() -> None:
    lease = Lease(L.PENDING)
    assert start_lease(lease) == "started"
    assert lease.status is L.ACTIVE


def test_start_of_an_active_lease_is_refused_before_anything_is_done() -> None:
    lease = Lease(L.ACTIVE)
    with pytest.raises(ActionRefused) as caught:
        start_lease(lease)
    assert caught.value.refusal.state is L.ACTIVE
    assert lease.status is L.ACTIVE


@pytest.mark.parametrize("error", [NoHost(), NoSuchHost(), BadInput("min", 0, "positive")])
def test_non_fatal_error_restores_the_status(error: Exception) -> None:
    lease = Lease(L.PENDING)
    with pytest.raises(type(error)):
        start_lease(lease, error)
    assert lease.status is L.PENDING


def test_any_other_error_makes_it_error() -> None:
    lease = Lease(L.PENDING)
    with pytest.raises(ConnectionError):
        start_lease(lease, ConnectionError())
    assert lease.status is L.ERROR


@pytest.mark.parametrize("status", [L.PENDING, L.ACTIVE, L.TERMINATED, L.ERROR])
def test_update_returns_to_where_it_began_and_cures_no_error(status: LeaseState) -> None:
    @lease_status(transition=L.UPDATING, result_in=(L.PENDING, L.ACTIVE, L.TERMINATED, L.ERROR))
    def rename(lease: Lease) -> None: ...

    lease = Lease(status)
    rename(lease)
    assert lease.status is status


@pytest.mark.parametrize("status", LeaseState)
def test_delete_always_wins_and_leaves_nothing(status: LeaseState) -> None:
    @lease_status(transition=L.DELETING, result_in=(L.ERROR,))
    def delete_lease(lease: Lease) -> None: ...

    lease = Lease(status)
    delete_lease(lease)
    assert lease.status is GONE


def test_late_start_of_a_deleted_lease_changes_nothing() -> None:
    @lease_status(transition=L.STARTING, result_in=(L.ACTIVE, L.ERROR))
    def hang(lease: Lease) -> str:
        lease.status = L.DELETING
        return "late"

    lease = Lease(L.PENDING)
    assert hang(lease) == "late"
    assert lease.status is L.DELETING


def ended(lease: Lease) -> None:
    lease.end = E.DONE


@lease_status(transition=L.TERMINATING, result_in=(L.TERMINATED, L.ERROR), holder=Whole)
def end_lease(lease: Lease) -> None:
    ended(lease)


@lease_status(transition=L.TERMINATING, result_in=(L.TERMINATED, L.ERROR), holder=SlowWhole)
async def end_lease_later(lease: Lease) -> None:
    ended(lease)


both = pytest.mark.parametrize(
    "end", [end_lease, lambda lease: asyncio.run(end_lease_later(lease))], ids=["sync", "async"]
)


@both
def test_result_that_goes_with_the_parts_is_kept(end: Callable[[Lease], None]) -> None:
    lease = Lease(L.ACTIVE, start=E.DONE)
    end(lease)
    assert lease.status is L.TERMINATED


@both
def test_result_that_does_not_go_with_the_parts_is_error(end: Callable[[Lease], None]) -> None:
    lease = Lease(L.ERROR, start=E.ERROR)
    end(lease)
    assert lease.status is L.ERROR


def test_actor_is_the_one_that_the_table_names_unless_given() -> None:
    with pytest.raises(BadInput):
        lease_status(transition=L.STARTING, result_in=(L.ACTIVE, L.ERROR), actor=USER)
    lease_status(transition=L.STARTING, result_in=(L.ACTIVE, L.ERROR), actor=CLOCK)
    with pytest.raises(UnknownName):
        lease_status(transition=L.STARTING, result_in=(L.ACTIVE, L.ERROR), actor=Actor("nobody"))


def test_result_in_must_say_what_the_table_says() -> None:
    with pytest.raises(BadInput) as caught:
        lease_status(transition=L.STARTING, result_in=(L.ACTIVE, L.TERMINATED))
    assert str(caught.value).endswith("must be what STARTING results in: ACTIVE, ERROR")


def test_transition_must_be_a_status_that_is_passed_through() -> None:
    with pytest.raises(BadInput) as caught:
        lease_status(transition=L.ACTIVE, result_in=(L.ERROR,))
    assert caught.value.field == "transition"


def test_stable_statuses_are_those_one_may_stay_in() -> None:
    assert {state for state in LeaseState if LeaseStatus.is_stable(state)} == {
        L.PENDING,
        L.ACTIVE,
        L.TERMINATED,
        L.ERROR,
    }
    assert not EventStatus.is_stable("IN_PROGRESS")
    assert ReservationStatus.is_stable("deleted")


def test_transitions_are_those_of_the_tables() -> None:
    assert LeaseStatus.is_valid_transition("PENDING", "STARTING")
    assert not LeaseStatus.is_valid_transition("PENDING", "ACTIVE")
    assert ReservationStatus.is_valid_transition("pending", "active")
    assert not ReservationStatus.is_valid_transition("deleted", "active")
    assert EventStatus.is_valid_transition("IN_PROGRESS", "UNDONE")
    assert not EventStatus.is_valid_transition("ERROR", "UNDONE")


def test_unknown_status_is_named() -> None:
    with pytest.raises(UnknownName) as caught:
        LeaseStatus.is_stable("PENDNG")
    assert caught.value.nearest == "PENDING"


def test_lease_status_answers_for_combinations_and_derives() -> None:
    assert LeaseStatus.is_valid_combination(L.ACTIVE, [R.ACTIVE], E.DONE, E.UNDONE)
    assert not LeaseStatus.is_valid_combination(L.ACTIVE, [R.PENDING], E.DONE, E.UNDONE)
    assert LeaseStatus.derive_stable_status(E.DONE, E.UNDONE) is L.ACTIVE
