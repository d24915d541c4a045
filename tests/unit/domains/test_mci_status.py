from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.domains.mci.control.status_rollup import (
    DOMINANCE_ORDER,
    StatusCount,
    count_vms,
    roll_up_status,
    rollup_state,
    status_text,
)
from stateward.domains.mci.lifecycle import MciState, VmState
from stateward.errors import UnknownName

V = VmState
VMS = st.lists(st.sampled_from(VmState), max_size=30)


def text(*states: VmState) -> str:
    return roll_up_status(MciState.RUNNING, states).status


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([V.RUNNING] * 5, "Running:5 (R:5/5)"),
        ([V.RUNNING] * 3 + [V.FAILED, V.SUSPENDED], "Partial-Running:3 (R:3/5)"),
        ([V.SUSPENDED] * 4 + [V.RUNNING], "Partial-Suspended:4 (R:1/5)"),
        ([V.TERMINATED] * 5, "Terminated:5 (R:0/5)"),
        ([V.RUNNING] * 10, "Running:10 (R:10/10)"),
        ([V.SUSPENDED] * 6 + [V.RUNNING] * 4, "Partial-Suspended:6 (R:4/10)"),
    ],
)
def test_status_reads_as_in_the_examples_of_the_design(states: list[VmState], expected: str) -> None:
    assert text(*states) == expected


def test_tie_goes_to_the_one_that_needs_attention_first() -> None:
    assert text(V.RUNNING, V.FAILED) == "Partial-Failed:1 (R:1/2)"
    assert text(V.RUNNING, V.SUSPENDED) == "Partial-Suspended:1 (R:1/2)"
    assert text(V.UNDEFINED, V.TERMINATING) == "Partial-Terminating:1 (R:0/2)"


def test_create_in_which_every_vm_failed_is_failed() -> None:
    assert text(V.FAILED, V.FAILED) == "Failed:2 (R:0/2)"


def test_every_vm_state_has_its_place_in_the_order() -> None:
    assert sorted(DOMINANCE_ORDER) == sorted(VmState)


@pytest.mark.parametrize("state", [MciState.PREPARING, MciState.PREPARED, MciState.CREATING, MciState.FAILED])
def test_mci_whose_vms_do_not_exist_yet_keeps_its_word(state: MciState) -> None:
    assert roll_up_status(state, ()).status == state.word


@pytest.mark.parametrize("state", [MciState.RUNNING, MciState.PARTIAL, MciState.TERMINATED, MciState.EMPTY])
def test_any_other_mci_without_vms_is_empty(state: MciState) -> None:
    assert roll_up_status(state, ()).status == "Empty"


def test_vms_speak_for_an_mci_as_soon_as_there_are_any() -> None:
    assert roll_up_status(MciState.CREATING, [V.CREATING, V.RUNNING]).status == "Partial-Running:1 (R:1/2)"


def test_count_has_exactly_the_fields_that_clients_read_as_numbers() -> None:
    assert msgspec.to_builtins(count_vms([V.RUNNING, V.RUNNING, V.FAILED])) == {
        "countTotal": 3,
        "countCreating": 0,
        "countRunning": 2,
        "countFailed": 1,
        "countSuspended": 0,
        "countRebooting": 0,
        "countTerminated": 0,
        "countSuspending": 0,
        "countResuming": 0,
        "countTerminating": 0,
        "countUndefined": 0,
    }


def test_state_that_no_vm_can_have_is_named() -> None:
    with pytest.raises(UnknownName) as caught:
        count_vms(["Runing"])
    assert caught.value.nearest == "Running"


def test_states_may_be_plain_words() -> None:
    assert count_vms(["Running"]) == count_vms([V.RUNNING])


@given(VMS)
def test_counts_are_what_counting_one_by_one_gives(states: list[VmState]) -> None:
    counts = count_vms(states)
    assert counts.count_total == len(states)
    assert {state: counts.of(state) for state in VmState} == {state: states.count(state) for state in VmState}


@given(VMS, st.randoms())
def test_status_does_not_depend_on_the_order_of_the_vms(states: list[VmState], random: Random) -> None:
    shuffled = random.sample(states, len(states))
    assert roll_up_status(MciState.RUNNING, states) == roll_up_status(MciState.RUNNING, shuffled)


@given(VMS.filter(bool))
def test_status_agrees_with_ranking_the_states(states: list[VmState]) -> None:
    first = min(DOMINANCE_ORDER, key=lambda state: (-states.count(state), DOMINANCE_ORDER.index(state)))
    prefix = "" if len(set(states)) == 1 else "Partial-"
    running = states.count(V.RUNNING)
    expected = f"{prefix}{first}:{states.count(first)} (R:{running}/{len(states)})"
    assert status_text(MciState.RUNNING, count_vms(states)) == expected


@given(VMS)
def test_mci_is_what_its_vms_are_when_they_agree(states: list[VmState]) -> None:
    expected = "Empty" if not states else states[0].word if len(set(states)) == 1 else "Partial"
    assert rollup_state(count_vms(states)) == expected


def test_counts_of_nothing_are_all_zero() -> None:
    assert count_vms(()) == StatusCount()
