import pytest

from stateward.lifecycle import Lifecycle, Move, decide
from stateward.plugin.registry import installed
from stateward.server.routes.object_details import allowed_actions
from tests.integration.engine.pump_kinds import PUMP


@pytest.mark.parametrize("actor", ["user", "admin"])
@pytest.mark.parametrize("lifecycle", installed().lifecycles, ids=lambda one: one.kind)
def test_what_is_called_allowed_is_what_would_be_decided(lifecycle: Lifecycle, actor: str) -> None:
    for state in lifecycle.states:
        for one in allowed_actions(lifecycle, state, actor, None):
            if actor not in lifecycle.actors:
                assert (one.allowed, bool(one.why_not)) == (False, True)
                continue
            verdict = decide(lifecycle, state, one.event, actor)
            assert one.allowed == (isinstance(verdict, Move) and not one.needs)
            assert one.allowed == (one.why_not is None)
            with_facts = decide(lifecycle, state, one.event, actor, frozenset(one.needs))
            if one.target is not None:
                assert isinstance(with_facts, Move)
                assert with_facts.target == one.target


def test_every_action_of_the_table_is_told_of_in_every_state() -> None:
    for state in PUMP.states:
        assert {one.event for one in allowed_actions(PUMP, state, "user", None)} >= set(PUMP.actions)


def test_an_action_that_can_be_forced_is_told_of_with_and_without() -> None:
    told = [(one.needs, one.allowed) for one in allowed_actions(PUMP, "idle", "user", None) if one.event == "scrap"]
    assert told == [([], True), (["force"], False)]


def test_somebody_who_has_no_part_in_a_lifecycle_may_do_nothing() -> None:
    told = allowed_actions(PUMP, "idle", "auditor", None)
    assert told
    assert {(one.allowed, one.why_not) for one in told} == {(False, "test.pump knows no auditor")}
