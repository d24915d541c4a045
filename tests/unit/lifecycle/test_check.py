"""Each fault of a lifecycle is found in an example with only that fault."""

import pytest

from stateward.lifecycle import (
    AGENT,
    BACK,
    CLOCK,
    CONTROLLER,
    FINAL,
    GONE,
    NEW,
    STABLE,
    TRANSITIONAL,
    USER,
    Actors,
    Declaration,
    DeclarationError,
    FaultCode,
    Lifecycle,
    Row,
    State,
    action,
    check,
    failure,
    hidden,
    request,
    step,
    success,
    timeout,
)
from tests.unit.lifecycle.door import DOOR


class Lamp(State):
    OFF = "off", STABLE
    WARMING = "warming", TRANSITIONAL
    ON = "on", STABLE
    BROKEN = "broken", FINAL


class Other(State):
    ELSEWHERE = "elsewhere", STABLE


SOUND = (
    step(NEW, "make", USER, Lamp.OFF),
    action(Lamp.OFF, "switch", USER, Lamp.WARMING, Lamp.ON, Lamp.BROKEN, 5),
    step(Lamp.ON, "switch off", USER, Lamp.OFF),
)

ASKED = (
    step(NEW, "make", USER, Lamp.OFF),
    request(Lamp.OFF, "switch", USER, Lamp.WARMING, Lamp.ON, Lamp.BROKEN, 5),
    step(Lamp.ON, "switch off", USER, Lamp.OFF),
)

GOOD_END = success(Lamp.WARMING, "lit", AGENT, Lamp.ON)
BAD_END = failure(Lamp.WARMING, "burst", AGENT, Lamp.BROKEN)
NO_END = timeout(Lamp.WARMING, Lamp.BROKEN)


def lamp(*rows: Row) -> Declaration:
    return Declaration("test.lamp", Lamp, rows, Actors((USER, AGENT, CLOCK)))


def test_a_sound_lifecycle_has_no_faults() -> None:
    assert check(lamp(*SOUND)) == ()
    assert check(lamp(*ASKED, GOOD_END, BAD_END, NO_END)) == ()
    assert check(DOOR) == ()


IN_A_ROW = {
    FaultCode.UNKNOWN_STATE: step(Lamp.ON, "leave", USER, Other.ELSEWHERE),
    FaultCode.UNDECLARED_ACTOR: step(Lamp.ON, "dim", CONTROLLER, Lamp.OFF),
    FaultCode.NOT_TRANSITIONAL: action(Lamp.ON, "dim", USER, Lamp.OFF, Lamp.ON, BACK, 5),
    FaultCode.NO_DEADLINE: step(Lamp.ON, "reheat", USER, Lamp.WARMING),
    FaultCode.BACK_INTO_TRANSITION: action(Lamp.WARMING, "restart", USER, Lamp.WARMING, Lamp.ON, BACK, 5),
    FaultCode.BACK_FROM_REST: step(Lamp.ON, "undo", USER, BACK),
    FaultCode.EMPTY_ROW: step(Lamp.ON, "", USER, Lamp.OFF),
    FaultCode.AMBIGUOUS: step(Lamp.ON, "switch off", USER, Lamp.BROKEN),
    FaultCode.CONTESTED: step(Lamp.ON, "switch off", AGENT, Lamp.BROKEN),
}


@pytest.mark.parametrize("code", IN_A_ROW)
def test_a_faulty_row_stops_the_declaration_and_is_named(code: FaultCode) -> None:
    rows = (*SOUND, IN_A_ROW[code])
    with pytest.raises(DeclarationError) as caught:
        Lifecycle(lamp(*rows))
    assert code in [fault.code for fault in caught.value.faults]
    assert any(fault.row in rows for fault in caught.value.faults)
    assert check(lamp(*rows)) == caught.value.faults
    assert "test.lamp" in str(caught.value)


def test_two_actions_that_cannot_be_told_apart_while_they_run_are_ambiguous() -> None:
    faults = check(lamp(*SOUND, action(Lamp.OFF, "test", USER, Lamp.WARMING, Lamp.OFF, Lamp.BROKEN, 5)))
    assert [fault.code for fault in faults] == [FaultCode.AMBIGUOUS]


def test_a_row_for_an_ending_that_the_action_has_already_is_ambiguous() -> None:
    faults = check(lamp(*SOUND, timeout(Lamp.WARMING, Lamp.OFF)))
    assert [fault.code for fault in faults] == [FaultCode.AMBIGUOUS]


def test_rows_told_apart_by_exclusive_facts_are_not_ambiguous() -> None:
    by_colour = [step(Lamp.ON, "dye", USER, to, needs=f"colour={to}") for to in (Lamp.ON, Lamp.OFF)]
    assert check(lamp(*SOUND, *by_colour)) == ()


def test_hidden_work_needs_a_deadline_too() -> None:
    assert FaultCode.NO_DEADLINE in [fault.code for fault in check(lamp(*SOUND, hidden(Lamp.ON, "dust", USER, 0)))]


IN_THE_GRAPH = {
    FaultCode.UNREACHABLE: lamp(*SOUND[:1]),
    FaultCode.DEAD_END: lamp(*SOUND[:2]),
    FaultCode.NO_SUCCESS: lamp(*ASKED, BAD_END, NO_END),
    FaultCode.NO_FAILURE: lamp(*ASKED, GOOD_END, NO_END),
    FaultCode.NO_TIMEOUT: lamp(*ASKED, GOOD_END, BAD_END),
    FaultCode.FINAL_WITH_EXIT: lamp(*SOUND, step(Lamp.BROKEN, "mend", USER, Lamp.OFF)),
}


@pytest.mark.parametrize("code", IN_THE_GRAPH)
def test_a_fault_of_the_graph_is_found_with_its_state(code: FaultCode) -> None:
    found = [fault for fault in check(IN_THE_GRAPH[code]) if fault.code is code]
    assert found
    assert all(fault.state is not None and str(fault.state) in str(fault) for fault in found)


def test_every_code_has_its_broken_example() -> None:
    assert set(IN_A_ROW) | set(IN_THE_GRAPH) == set(FaultCode)


def test_the_record_of_a_final_state_may_be_removed() -> None:
    assert check(lamp(*SOUND, step(Lamp.BROKEN, "throw away", USER, GONE))) == ()
