"""The texts of drawings for states and durations."""

import pytest

from stateward.lifecycle import DAY, HOUR, MINUTE, States, every, moving, resting
from stateward.lifecycle.render.phrases import format_duration, join_states
from tests.unit.lifecycle.render.samples import MACHINE, MachineState

M = MachineState


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, ""),
        (0, "0 s"),
        (0.5, "0.5 s"),
        (90, "90 s"),
        (5 * MINUTE, "5 min"),
        (36 * HOUR, "36 h"),
        (7 * DAY, "7 d"),
    ],
)
def test_a_time_is_said_in_its_largest_fitting_unit(seconds: float | None, words: str) -> None:
    assert format_duration(seconds) == words


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (States(M), "any state"),
        (every(M), "any state not final"),
        (resting(M), "any stable state"),
        (moving(M), "any transitional state"),
        (every(M) - M.FAILED, "any but Failed"),
        (every(M) - M.FAILED - M.CREATING, "any but Creating, Failed"),
        (M.RUNNING | M.SUSPENDED, "Running, Suspended"),
        (M.RUNNING | M.SUSPENDED | M.CREATING | M.TERMINATED, "Running, Suspended, Creating, Terminated"),
    ],
)
def test_many_states_are_called_by_what_they_have_in_common(states: States, words: str) -> None:
    assert join_states(MACHINE, states) == words
