"""What a look at a provider proves: nothing that it may have shown before the action, and nothing by silence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.domains.mci.lifecycle import VmState
from stateward.domains.mci.provider.evidence import (
    CANNOT_SAY,
    GOALS,
    Look,
    Sight,
    drift,
    hopeless,
    proven,
    reached,
    told,
)
from stateward.drivers import MachineState, Observation

states = st.sampled_from(list(MachineState))
moments = st.floats(0.0, 1e6)
actions = st.sampled_from(sorted(GOALS))


def present(state: MachineState, asked: float = 0.0) -> Look:
    return Look(Sight.PRESENT, Observation("uid", "i-1", state, state.value), asked=asked)


ABSENT, SILENT = Look(Sight.ABSENT, asked=5.0), Look(Sight.UNKNOWN, trouble="no answer", asked=5.0)


def test_a_look_that_was_asked_for_before_the_time_tells_nothing() -> None:
    look = told(present(MachineState.RUNNING, asked=9.9), 10.0)
    assert (look.sight, look.shown) == (Sight.UNKNOWN, None)
    assert "older than the action" in look.trouble


def test_a_look_that_was_asked_for_at_the_time_tells_what_it_shows() -> None:
    look = present(MachineState.RUNNING, asked=10.0)
    assert told(look, 10.0) is look


def test_absence_that_may_be_older_than_the_action_is_no_absence() -> None:
    assert told(ABSENT, 6.0).sight is Sight.UNKNOWN
    assert told(ABSENT, 5.0) is ABSENT


def test_what_an_action_shows_that_is_done_once_is_no_older_than_it_but_absence_may_be() -> None:
    ended = present(MachineState.TERMINATED, asked=5.0)
    assert proven("terminate", ended, 6.0) is ended
    assert proven("terminate", ABSENT, 6.0).sight is Sight.UNKNOWN
    assert proven("terminate", ABSENT, 5.0) is ABSENT
    assert proven("suspend", present(MachineState.SUSPENDED, asked=5.0), 6.0).sight is Sight.UNKNOWN


def test_where_listings_are_never_late_every_look_counts() -> None:
    look = present(MachineState.SUSPENDED)
    assert told(look, 0.0) is look


@given(state=states, asked=moments, since=moments, action=actions)
def test_what_is_told_proves_an_end_only_if_it_was_asked_for_late_enough(
    state: MachineState, asked: float, since: float, action: str
) -> None:
    look = told(present(state, asked), since)
    proves = reached(action, look) or hopeless(action, look)
    assert not (proves and asked < since)
    assert (look == present(state, asked)) == (asked >= since)


@given(asked=moments, since=moments, later=moments)
def test_what_is_told_early_is_told_for_good(asked: float, since: float, later: float) -> None:
    look = present(MachineState.RUNNING, asked)
    if told(look, max(since, later)) is look:
        assert told(look, min(since, later)) is look


@pytest.mark.parametrize("action", sorted(GOALS))
def test_silence_reaches_no_end_and_takes_no_hope(action: str) -> None:
    assert not reached(action, SILENT)
    assert not hopeless(action, SILENT)


def test_only_what_terminates_is_proved_by_absence() -> None:
    assert [action for action in sorted(GOALS) if reached(action, ABSENT)] == ["delete", "terminate"]


@pytest.mark.parametrize("state", list(VmState))
def test_absence_makes_no_vm_terminated(state: VmState) -> None:
    expected = CANNOT_SAY if state in (VmState.RUNNING, VmState.SUSPENDED) else None
    assert drift(state, ABSENT) == expected
