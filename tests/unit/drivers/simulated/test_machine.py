"""The provider's own rules, and machines that follow from the time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.drivers import MachineAction, MachineState
from stateward.drivers.simulated.machine import (
    ACTION_RULES,
    MAX_TOKENS,
    NATIVE_STATES,
    STATES,
    ActionVerdict,
    MachineTemplate,
    SimulatedMachine,
    judge_action,
    shared_transition,
    state_at,
    with_token,
)

BUILD = MachineTemplate("t3.nano", "ubuntu22.04")
times = st.floats(0, 1e6)


def a_machine(since: float, until: float) -> SimulatedMachine:
    fresh = shared_transition(None, MachineState.PENDING, MachineState.RUNNING)
    return SimulatedMachine("key", "name", 1, BUILD, fresh, since, until)


@given(times, times, times)
def test_a_machine_goes_through_its_passage_and_never_back(start: float, length: float, later: float) -> None:
    machine = a_machine(start, start + length)
    order = [None, MachineState.PENDING, MachineState.RUNNING]
    moments = sorted([0.0, start, start + length, later])
    ranks = [order.index(state_at(machine, moment)) for moment in moments]
    assert ranks == sorted(ranks)


def test_a_machine_is_not_there_before_it_was_made() -> None:
    assert state_at(a_machine(5.0, 8.0), 4.9) is None


@pytest.mark.parametrize("action", list(MachineAction))
@pytest.mark.parametrize("state", STATES)
def test_a_deed_that_went_has_nothing_left_to_do_at_its_end(action: MachineAction, state: MachineState) -> None:
    if judge_action(action, state) is ActionVerdict.GO and action is not MachineAction.REBOOT:
        assert judge_action(action, ACTION_RULES[action].during) is ActionVerdict.ALREADY
        assert judge_action(action, ACTION_RULES[action].then) is ActionVerdict.ALREADY


@pytest.mark.parametrize("action", list(MachineAction))
def test_no_state_is_both_allowed_and_so_already(action: MachineAction) -> None:
    assert not set(ACTION_RULES[action].accepts) & set(ACTION_RULES[action].done)


@pytest.mark.parametrize("action", [MachineAction.SUSPEND, MachineAction.RESUME, MachineAction.REBOOT])
def test_what_is_terminated_stays_so(action: MachineAction) -> None:
    assert judge_action(action, MachineState.TERMINATED) is ActionVerdict.CONFLICT


@pytest.mark.parametrize("state", STATES)
def test_whatever_has_not_ended_can_be_terminated(state: MachineState) -> None:
    over = state in (MachineState.TERMINATING, MachineState.TERMINATED)
    assert judge_action(MachineAction.TERMINATE, state) is (ActionVerdict.ALREADY if over else ActionVerdict.GO)


@given(st.lists(st.text(min_size=1), max_size=20))
def test_a_machine_remembers_the_newest_tokens_and_no_more(given_tokens: list[str]) -> None:
    tokens: tuple[str, ...] = ()
    for token in given_tokens:
        tokens = with_token(tokens, token)
    assert list(tokens) == given_tokens[-MAX_TOKENS:]


@pytest.mark.parametrize("provider", list(NATIVE_STATES))
def test_every_provider_has_a_word_for_every_state(provider: str) -> None:
    assert set(NATIVE_STATES[provider]) == set(MachineState) - {MachineState.OTHER}
