"""Fencing of reports, over all reports in all states."""

from collections.abc import Iterator
from itertools import product

import pytest
from msgspec.structs import replace

from stateward.agents.messages import AgentReport
from stateward.domains.edge.lifecycle import APPINST, CLUSTERINST, IGNORE_AGENT, IGNORE_AGENT_ERRORS, ClusterInstState
from stateward.domains.edge.records.instance_record import ACTION_BY_STATE, InstanceRecord, due_order
from stateward.domains.edge.records.report_fencing import (
    FencedFields,
    RejectedReport,
    RejectionReason,
    check_report,
)
from stateward.lifecycle import AGENT, CONTROLLER, Lifecycle, Meaning, Move, Refusal, RefusalCode, State

S = ClusterInstState

NOW, BEFORE, OTHER = 7, 6, 8
UNDO_IS_CONFIRMED = {("CreateError", "deleted"), ("UpdateError", "ready"), ("DeleteError", "ready")}


def record(state: State = S.CREATING, operation: int | None = NOW) -> FencedFields:
    return FencedFields(state, operation, NOW, NOW)


def everything(lifecycle: Lifecycle) -> Iterator[tuple[FencedFields, AgentReport]]:
    """Walk over all states, words, operations, generations and connections, current ones and others."""
    words = (*lifecycle.events, "busy", "hello", "")
    numbers = (NOW, BEFORE, OTHER)
    for state, word, under_way, operation, generation, notify in product(
        lifecycle.states, words, (NOW, None), numbers, numbers, numbers
    ):
        yield FencedFields(state, under_way, NOW, NOW), AgentReport(word, operation, generation, notify)


def current(one: FencedFields, report: AgentReport) -> bool:
    return (report.operation, report.generation, report.notify) == (one.operation, one.generation, one.notify)


def allowed(lifecycle: Lifecycle, state: State, word: str) -> State | None:
    """Return where the rows themselves say that an agent's word leads, overrides aside."""
    if (state.word, word) in UNDO_IS_CONFIRMED:
        word, actor = "undone", CONTROLLER
    else:
        actor = AGENT
    for row in lifecycle.rows:
        if state in row.sources and row.event == word and actor in row.actors and not row.needs:
            return row.to if isinstance(row.to, State) else None
    return None


@pytest.mark.parametrize("lifecycle", [CLUSTERINST, APPINST], ids=lambda one: one.kind)
def test_only_a_current_report_that_the_table_allows_counts_and_nothing_ever_raises(lifecycle: Lifecycle) -> None:
    counted = 0
    for one, report in everything(lifecycle):
        verdict = check_report(lifecycle, one, report)
        target = allowed(lifecycle, one.state, report.event) if current(one, report) else None
        if target is not None:
            assert isinstance(verdict, Move), (one, report)
            assert verdict.target == target
            counted += 1
        else:
            assert not isinstance(verdict, Move), (one, report)
            assert str(verdict)
    assert counted == 21  # 6 transitional states: begun, ended, failed; and the 3 undos


@pytest.mark.parametrize("lifecycle", [CLUSTERINST, APPINST], ids=lambda one: one.kind)
def test_every_report_that_is_not_current_is_rejected_with_the_first_reason_that_applies(lifecycle: Lifecycle) -> None:
    for one, report in everything(lifecycle):
        verdict = check_report(lifecycle, one, report)
        if report.notify != NOW:
            why = RejectionReason.OLD_NOTIFY if report.notify == BEFORE else RejectionReason.FOREIGN_NOTIFY
        elif one.operation is None:
            why = RejectionReason.NOTHING_UNDER_WAY
        elif report.operation != NOW:
            why = RejectionReason.STALE_OPERATION
        elif report.generation != NOW:
            why = RejectionReason.STALE_GENERATION
        elif report.event not in lifecycle.events:
            why = RejectionReason.UNKNOWN_EVENT
        else:
            assert not isinstance(verdict, RejectedReport)
            continue
        assert isinstance(verdict, RejectedReport)
        assert verdict.why is why
        assert (verdict.fields, verdict.report) == (one, report)


def test_a_late_creating_after_ready_is_rejected_for_nothing_is_under_way() -> None:
    verdict = check_report(CLUSTERINST, record(S.READY, None), AgentReport("creating", BEFORE, BEFORE, NOW))
    assert isinstance(verdict, RejectedReport)
    assert verdict.why is RejectionReason.NOTHING_UNDER_WAY


def test_a_ready_sent_again_while_an_update_is_requested_is_rejected() -> None:
    verdict = check_report(CLUSTERINST, record(S.UPDATE_REQUESTED), AgentReport("ready", BEFORE, BEFORE, NOW))
    assert isinstance(verdict, RejectedReport)
    assert str(verdict) == (
        "report 'ready' (operation 6, generation 6, notify 7) is rejected, stale operation: "
        "UpdateRequested with operation 7, generation 7, notify 7"
    )


def test_a_missed_creating_is_no_reason_to_doubt_a_ready() -> None:
    verdict = check_report(CLUSTERINST, record(S.CREATE_REQUESTED), AgentReport("ready", NOW, NOW, NOW))
    assert isinstance(verdict, Move)
    assert verdict.target == S.READY


def test_progress_may_be_reported_again_and_again() -> None:
    verdict = check_report(CLUSTERINST, record(S.CREATING), AgentReport("creating", NOW, NOW, NOW))
    assert isinstance(verdict, Move)
    assert (verdict.target, verdict.meaning) == (S.CREATING, Meaning.STEP)


def test_a_current_word_that_does_not_fit_the_state_is_refused_and_says_what_would() -> None:
    verdict = check_report(CLUSTERINST, record(S.CREATING), AgentReport("deleted", NOW, NOW, NOW))
    assert isinstance(verdict, Refusal)
    assert verdict.reason is RefusalCode.IN_TRANSITION
    assert verdict.allowed_to(AGENT) == ("creating", "ready", "create error")


def test_an_agent_may_not_say_what_is_the_users_to_say() -> None:
    verdict = check_report(CLUSTERINST, record(S.READY), AgentReport("update", NOW, NOW, NOW))
    assert isinstance(verdict, Refusal)
    assert verdict.reason is RefusalCode.NOT_YOURS


def test_the_agents_confirmation_of_an_undo_is_the_controllers_undone() -> None:
    verdict = check_report(CLUSTERINST, record(S.UPDATE_ERROR), AgentReport("ready", NOW, NOW, NOW))
    assert isinstance(verdict, Move)
    assert (verdict.event, verdict.actor, verdict.target) == ("undone", CONTROLLER, S.READY)


def test_a_late_ready_of_the_update_that_failed_does_not_confirm_its_undo() -> None:
    verdict = check_report(CLUSTERINST, record(S.UPDATE_ERROR), AgentReport("ready", BEFORE, NOW, NOW))
    assert isinstance(verdict, RejectedReport)
    assert verdict.why is RejectionReason.STALE_OPERATION


def test_an_override_of_the_operation_turns_an_agents_error_into_success() -> None:
    report = AgentReport("create error", NOW, NOW, NOW)
    verdict = check_report(CLUSTERINST, record(S.CREATING), report, frozenset({IGNORE_AGENT_ERRORS}))
    assert isinstance(verdict, Move)
    assert verdict.target == S.READY


@pytest.mark.parametrize("state", ACTION_BY_STATE)
@pytest.mark.parametrize("confirmed", [0, BEFORE])
def test_only_the_undo_of_a_failed_re_create_keeps_data(state: State, confirmed: int) -> None:
    order = due_order(InstanceRecord(state, operation=NOW, generation=NOW, confirmed=confirmed), 1)
    assert order is not None
    assert order.keep_data == (state == S.CREATE_ERROR and bool(confirmed))


@pytest.mark.parametrize("state", ACTION_BY_STATE)
def test_an_agent_is_not_asked_for_what_is_to_be_done_without_it(state: State) -> None:
    record = InstanceRecord(state, operation=NOW, generation=NOW, confirmed=NOW)
    assert due_order(record, 1) is not None
    assert due_order(replace(record, facts=frozenset({IGNORE_AGENT})), 1) is None
