"""What a look at a provider proves: nothing that it may have shown before the action, and nothing by silence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.domains.mci.lifecycle import VmState
from stateward.domains.mci.provider.evidence import (
    CANNOT_SAY,
    GOAL_STATES,
    Evidence,
    Existence,
    conclusive,
    drift_event,
    if_recent,
    is_hopeless,
    is_reached,
)
from stateward.drivers import MachineState, Observation

states = st.sampled_from(list(MachineState))
moments = st.floats(0.0, 1e6)
actions = st.sampled_from(sorted(GOAL_STATES))


def present(state: MachineState, asked: float = 0.0) -> Evidence:
    return Evidence(Existence.PRESENT, Observation("uid", "i-1", state, state.value), requested_at=asked)


ABSENT, SILENT = (
    Evidence(Existence.ABSENT, requested_at=5.0),
    Evidence(Existence.UNKNOWN, problem="no answer", requested_at=5.0),
)


def test_a_look_that_was_asked_for_before_the_time_tells_nothing() -> None:
    look = if_recent(present(MachineState.RUNNING, asked=9.9), 10.0)
    assert (look.existence, look.observation) == (Existence.UNKNOWN, None)
    assert "older than the action" in look.problem


def test_a_look_that_was_asked_for_at_the_time_tells_what_it_shows() -> None:
    look = present(MachineState.RUNNING, asked=10.0)
    assert if_recent(look, 10.0) is look


def test_absence_that_may_be_older_than_the_action_is_no_absence() -> None:
    assert if_recent(ABSENT, 6.0).existence is Existence.UNKNOWN
    assert if_recent(ABSENT, 5.0) is ABSENT


def test_what_an_action_shows_that_is_done_once_is_no_older_than_it_but_absence_may_be() -> None:
    ended = present(MachineState.TERMINATED, asked=5.0)
    assert conclusive("terminate", ended, 6.0) is ended
    assert conclusive("terminate", ABSENT, 6.0).existence is Existence.UNKNOWN
    assert conclusive("terminate", ABSENT, 5.0) is ABSENT
    assert conclusive("suspend", present(MachineState.SUSPENDED, asked=5.0), 6.0).existence is Existence.UNKNOWN


def test_where_listings_are_never_late_every_look_counts() -> None:
    look = present(MachineState.SUSPENDED)
    assert if_recent(look, 0.0) is look


@given(state=states, asked=moments, since=moments, action=actions)
def test_what_is_told_proves_an_end_only_if_it_was_asked_for_late_enough(
    state: MachineState, asked: float, since: float, action: str
) -> None:
    look = if_recent(present(state, asked), since)
    proves = is_reached(action, look) or is_hopeless(action, look)
    assert not (proves and asked < since)
    assert (look == present(state, asked)) == (asked >= since)


@given(asked=moments, since=moments, later=moments)
def test_what_is_told_early_is_told_for_good(asked: float, since: float, later: float) -> None:
    look = present(MachineState.RUNNING, asked)
    if if_recent(look, max(since, later)) is look:
        assert if_recent(look, min(since, later)) is look


@pytest.mark.parametrize("action", sorted(GOAL_STATES))
def test_silence_reaches_no_end_and_takes_no_hope(action: str) -> None:
    assert not is_reached(action, SILENT)
    assert not is_hopeless(action, SILENT)


def test_only_what_terminates_is_proved_by_absence() -> None:
    assert [action for action in sorted(GOAL_STATES) if is_reached(action, ABSENT)] == ["delete", "terminate"]


@pytest.mark.parametrize("state", list(VmState))
def test_absence_makes_no_vm_terminated(state: VmState) -> None:
    expected = CANNOT_SAY if state in (VmState.RUNNING, VmState.SUSPENDED) else None
    assert drift_event(state, ABSENT) == expected
