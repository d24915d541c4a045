from itertools import combinations, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.domains.leases.combination import COMBINATIONS, derived_status, holds, violations
from stateward.domains.leases.lifecycle import EventState, LeaseState, ReservationState

L, R, E = LeaseState, ReservationState, EventState
LEASES = st.sampled_from(LeaseState)
RESERVATIONS = st.lists(st.sampled_from(ReservationState), max_size=4)
EVENTS = st.sampled_from(EventState)


def modelled(lease: str, reservations: list[str], start: str, end: str) -> bool:
    """The design's table, line by line, with what was added to it."""
    each, found = set(reservations), (start, end)
    if lease in ("CREATING", "PENDING"):
        return each <= {"pending"} and found == ("UNDONE", "UNDONE")
    if lease == "STARTING":
        return each <= {"pending", "active", "error"} and found == ("IN_PROGRESS", "UNDONE")
    if lease == "ACTIVE":
        return each <= {"active"} and found == ("DONE", "UNDONE")
    if lease == "TERMINATING":
        return each <= {"active", "deleted", "error"} and start in ("DONE", "ERROR") and end == "IN_PROGRESS"
    if lease == "TERMINATED":
        return each <= {"deleted"} and found == ("DONE", "DONE")
    return lease in ("DELETING", "ERROR") or "IN_PROGRESS" not in found


def test_table_says_what_the_design_says_of_all_combinations_there_are() -> None:
    together = [each for many in range(len(R) + 1) for each in combinations(R, many)]
    every = list(product(L, together, E, E))
    allowed = [one for one in every if holds(*one)]
    assert allowed == [one for one in every if modelled(one[0], [*one[1]], one[2], one[3])]
    assert (len(every), len(allowed)) == (2304, 688)


@given(LEASES, RESERVATIONS, EVENTS, EVENTS)
def test_how_many_reservations_have_the_same_status_does_not_matter(
    lease: LeaseState, reservations: list[ReservationState], start: EventState, end: EventState
) -> None:
    assert holds(lease, reservations, start, end) == holds(lease, set(reservations), start, end)


def test_every_lease_status_has_exactly_one_row_with_a_cell_for_each_part() -> None:
    assert sorted(row.whole for row in COMBINATIONS.rows) == sorted(LeaseState)
    assert all(len(row.cells) == len(COMBINATIONS.parts) for row in COMBINATIONS.rows)


def test_one_of_several_reservations_is_enough_to_break_the_combination() -> None:
    (violation,) = violations(L.ACTIVE, [R.ACTIVE, R.ERROR, R.ACTIVE], E.DONE, E.UNDONE)
    assert (violation.part, violation.status, violation.expected) == ("reservations", R.ERROR, "active")


def test_every_violation_is_named() -> None:
    found = violations(L.PENDING, [R.DELETED], E.DONE, E.IN_PROGRESS)
    assert [one.part for one in found] == ["reservations", "start_lease", "end_lease"]
    assert str(found[1]) == "PENDING needs start_lease to be UNDONE, not DONE"


def test_lease_without_reservations_is_judged_by_its_events() -> None:
    assert holds(L.PENDING, [], E.UNDONE, E.UNDONE)
    assert not holds(L.PENDING, [], E.DONE, E.UNDONE)


@pytest.mark.parametrize("lease", LeaseState)
def test_missing_event_goes_only_with_error_and_deleting(lease: LeaseState) -> None:
    assert holds(lease, [], None, None) == (lease in (L.ERROR, L.DELETING))


@given(EVENTS | st.none(), EVENTS | st.none())
def test_stable_status_is_derived_from_the_events(start: EventState | None, end: EventState | None) -> None:
    told = {(E.UNDONE, E.UNDONE): L.PENDING, (E.DONE, E.UNDONE): L.ACTIVE, (E.DONE, E.DONE): L.TERMINATED}
    expected = told.get((start, end), L.ERROR) if start and end else L.ERROR
    assert derived_status(start, end) is expected


def test_table_prints_one_line_per_lease_status_below_its_head() -> None:
    lines = COMBINATIONS.as_markdown().splitlines()
    assert lines[0] == "| lease | reservations | start_lease | end_lease |"
    assert "| TERMINATING | active or deleted or error | DONE or ERROR | IN_PROGRESS |" in lines
    assert len(lines) == 2 + len(LeaseState)


def test_the_documentation_shows_the_table_as_it_is() -> None:
    assert COMBINATIONS.as_markdown().strip() in (Path(__file__).parents[3] / "docs" / "leases.md").read_text("utf-8")
