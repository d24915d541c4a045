"""The agent protocol, explored: the right one holds, and each rule taken away is missed with the shortest story why."""

import pytest
from msgspec.structs import replace

from stateward.agents.messages import AgentOrder, AgentReport, InventoryItem, fulfils_order
from stateward.agents.order_admission import OrderVerdict
from stateward.domains.edge.lifecycle import CLUSTERINST, ClusterInstState
from stateward.domains.edge.records.instance_record import MAX_TRIES, InstanceRecord
from stateward.domains.edge.records.reconcile import NOT_LISTED, on_inventory_item
from stateward.domains.edge.records.report_fencing import (
    FencedFields,
    RejectedReport,
    RejectionReason,
    evaluate,
    fence,
)
from stateward.lifecycle import AGENT, CONTROLLER, Lifecycle, Meaning, Move, Refusal, declare
from stateward.testing.protocols import (
    Bounds,
    Exploration,
    FaultBudget,
    Predicate,
    Protocol,
    ProtocolViolation,
    ViolationKind,
    explore,
)
from tests.models.edge_protocol import (
    ABSENT_IS_TRUE,
    APPLIED_TWICE,
    AT_REST,
    FORCED_DELETE,
    ILLEGAL,
    MISSING_IS_TRUE,
    ORPHAN,
    READY_IS_TRUE,
    TWO_AT_ONCE,
    USER_REQUESTS,
    Agent,
    ClockEvent,
    Controller,
    Rules,
    Scenario,
    admit,
    instance_protocol,
    listing,
)

S = ClusterInstState
BOUNDS = Bounds(copies=1)

LOSSY = FaultBudget(losses=1, duplicates=1, spared=listing)
MORTAL = FaultBudget(duplicates=1, crashes={AGENT: 1, CONTROLLER: 1})
BOTH = FaultBudget(losses=1, crashes={AGENT: 1, CONTROLLER: 1}, spared=listing)
CREATED = Scenario(asks=1)
CHANGED = Scenario(ready=True, asks=1)


def patient(scenario: Scenario) -> Scenario:
    return replace(scenario, patient=True)


def explored(scenario: Scenario, faults: FaultBudget, rules: Rules | None = None) -> Exploration:
    return explore(instance_protocol(scenario, rules), faults, BOUNDS)


def found(scenario: Scenario, faults: FaultBudget, rules: Rules | None = None) -> ProtocolViolation:
    violation = explored(scenario, faults, rules).violation
    assert violation is not None
    return violation


def what(violation: ProtocolViolation) -> tuple[ViolationKind, str]:
    return violation.kind, violation.name


@pytest.mark.parametrize(
    ("scenario", "faults"),
    [
        pytest.param(Scenario(asks=2), LOSSY, id="create and one more, with loss"),
        pytest.param(CHANGED, FaultBudget(2, 2, spared=listing), id="update or delete, with more loss"),
        pytest.param(patient(CREATED), MORTAL, id="create, with crashes and no help from the clock"),
        pytest.param(CHANGED, BOTH, id="update or delete, with loss and crashes"),
        pytest.param(
            patient(Scenario(asks=2, requests=(*USER_REQUESTS, FORCED_DELETE))),
            FaultBudget(duplicates=1),
            id="a forced delete",
        ),
    ],
)
def test_the_protocol_holds_whatever_happens(scenario: Scenario, faults: FaultBudget) -> None:
    result = explored(scenario, faults)
    assert result.violation is None, str(result)
    assert result.complete


def test_it_holds_with_crashes_and_meets_every_state_of_the_table_and_every_way_to_end_in_it() -> None:
    met: set[Controller] = set()

    def note(controller: Controller) -> bool:
        met.add(controller)
        return True

    noted = Predicate("note", (CONTROLLER,), note)
    for scenario, faults in ((patient(CHANGED), MORTAL), (CREATED, LOSSY)):
        protocol = instance_protocol(scenario)
        result = explore(replace(protocol, invariants=(*protocol.invariants, noted)), faults, BOUNDS)
        assert result.violation is None, str(result)
        assert result.complete
    assert {one.record.state for one in met} == set(S)
    assert {one.record.state for one in met if not one.record.operation} == {
        S.NOT_PRESENT,
        S.READY,
        S.CREATE_ERROR,
        S.UPDATE_ERROR,
        S.DELETE_ERROR,
    }
    assert not any(one.record.missing for one in met)


@pytest.mark.parametrize("faults", [FaultBudget(), FaultBudget(losses=1, spared=listing)])
def test_forgetting_what_is_moot_hides_nothing(faults: FaultBudget) -> None:
    protocol = instance_protocol(CREATED)
    plain = replace(protocol, parties=tuple(replace(party, moot=None) for party in protocol.parties))
    assert _met(plain, faults) == _met(protocol, faults)


def _met(protocol: Protocol, faults: FaultBudget) -> set[tuple[Controller, Agent]]:
    met: set[tuple[Controller, Agent]] = set()

    def note(controller: Controller, agent: Agent) -> bool:
        met.add((controller, agent))
        return True

    watched = replace(protocol, invariants=(Predicate("note", (CONTROLLER, AGENT), note), *protocol.invariants))
    result = explore(watched, faults, Bounds(copies=1, in_flight=20))
    assert result.complete, str(result)
    return met


def without_ids(record: FencedFields, report: AgentReport) -> RejectedReport | None:
    """Accept any report of the connection, as if reports had neither operation nor generation."""
    rejected = fence(record, report)
    return (
        rejected if rejected and rejected.why in (RejectionReason.OLD_NOTIFY, RejectionReason.FOREIGN_NOTIFY) else None
    )


def with_generation_only(record: FencedFields, report: AgentReport) -> RejectedReport | None:
    return without_ids(record, report) or (
        None
        if report.generation == record.generation
        else RejectedReport(RejectionReason.STALE_GENERATION, record, report)
    )


def trusting_reports(
    lifecycle: Lifecycle, record: FencedFields, report: AgentReport, facts: frozenset[str]
) -> Move | Refusal | RejectedReport:
    """Take the state from the agent's report, whatever the table says."""
    words = {"creating": S.CREATING, "updating": S.UPDATING, "deleting": S.DELETING, "ready": S.READY}
    if report.event in words:
        return Move(record.state, report.event, AGENT, words[report.event], Meaning.STEP)
    return evaluate(lifecycle, record, report, facts)


def instead(wrong: OrderVerdict, *of: OrderVerdict) -> Rules:
    """Return rules with an agent that does the wrong thing in place of some right ones."""

    def admits(agent: Agent, order: AgentOrder) -> OrderVerdict:
        right = admit(agent, order)
        return wrong if right in of else right

    return Rules(admit=admits)


def in_any_order(agent: Agent, order: AgentOrder) -> OrderVerdict:
    """Take orders of this connection even if a newer one was seen."""
    right = admit(agent, order)
    if right is not OrderVerdict.STALE or order.notify != agent.memory.connection:
        return right
    if agent.memory.work is not None:
        return OrderVerdict.BUSY
    return OrderVerdict.DONE if fulfils_order(agent.site.generation, agent.site.whole, order) else OrderVerdict.BEGIN


def of_any_connection(agent: Agent, order: AgentOrder) -> OrderVerdict:
    return admit(agent, replace(order, notify=agent.memory.connection))


def without_timeouts() -> Lifecycle:
    rows = [row for row in CLUSTERINST.rows if row.meaning is not Meaning.TIMEOUT or S.DELETE_PREPARE in row.sources]
    return declare("edge.clusterinst", S, rows, CLUSTERINST.declaration.actors, initial=S.NOT_PRESENT)


def test_reports_without_operation_ids_let_a_stale_ready_complete_a_newer_update() -> None:
    violation = found(Scenario(asks=2), LOSSY, Rules(fence=without_ids))
    assert what(violation) == (ViolationKind.BROKEN, READY_IS_TRUE)
    assert violation.trace.steps == (
        "agent connects and sends its list; controller: gives notify id 1",
        "user asks for create; controller: create, CreateRequested, operation 1",
        "controller hears end of list (0, notify 1): settles",
        "controller sends create (operation 1, generation 1, notify 1)",
        "agent hears create (operation 1, generation 1, notify 1): begins",
        "agent finishes, says 'ready'",
        "controller hears 'ready' (operation 1, generation 1, notify 1): agrees, Ready (network doubled it)",
        "user asks for update; controller: update, UpdateRequested, operation 2",
        "controller hears 'ready' (operation 1, generation 1, notify 1): agrees, Ready",
    )
    assert violation.trace.end[:2] == (
        "controller: Ready, no operation, generation 2, settled",
        "agent: has generation 1, idle",
    )


def test_the_generation_alone_does_not_tell_an_operation_from_its_undo() -> None:
    violation = found(Scenario(asks=2), LOSSY, Rules(fence=with_generation_only))
    assert violation.kind is ViolationKind.BROKEN


def test_an_agent_taken_at_its_word_makes_moves_that_the_table_does_not_have() -> None:
    assert what(found(CREATED, LOSSY, Rules(evaluate=trusting_reports))) == (ViolationKind.BREACH, ILLEGAL)


def test_an_agent_that_does_not_know_its_operations_does_the_work_twice() -> None:
    rules = instead(OrderVerdict.BEGIN, OrderVerdict.REPEAT, OrderVerdict.DONE)
    assert what(found(CREATED, LOSSY, rules)) == (ViolationKind.BREACH, APPLIED_TWICE)


def test_an_agent_that_does_not_look_at_the_site_first_does_the_work_again_after_a_crash() -> None:
    violation = found(CREATED, MORTAL, instead(OrderVerdict.BEGIN, OrderVerdict.DONE))
    assert what(violation) == (ViolationKind.BREACH, APPLIED_TWICE)
    assert any(step.startswith("agent crashes") for step in violation.trace.steps)


def test_an_agent_without_a_guard_of_its_own_works_at_two_things_at_once() -> None:
    assert what(found(CREATED, LOSSY, instead(OrderVerdict.BEGIN, OrderVerdict.BUSY))) == (
        ViolationKind.BREACH,
        TWO_AT_ONCE,
    )


def test_an_agent_that_drops_an_order_while_busy_leaves_the_undo_waiting_for_the_clock() -> None:
    violation = found(patient(CREATED), FaultBudget(), instead(OrderVerdict.IGNORED, OrderVerdict.BUSY))
    assert what(violation) == (ViolationKind.DEAD_END, AT_REST)
    assert "agent hears delete (operation 2, generation 1, notify 1): ignores it" in violation.trace.steps


def test_an_order_that_was_overtaken_by_its_undo_must_not_be_obeyed() -> None:
    assert what(found(CREATED, FaultBudget(), Rules(admit=in_any_order))) == (ViolationKind.BROKEN, ABSENT_IS_TRUE)


def test_what_was_left_behind_unknown_is_seen_as_an_orphan_at_the_next_connection() -> None:
    protocol = replace(instance_protocol(CREATED, Rules(admit=in_any_order)), invariants=())
    violation = explore(protocol, FaultBudget(crashes={AGENT: 1}), BOUNDS).violation
    assert violation is not None
    assert what(violation) == (ViolationKind.BREACH, ORPHAN)


def test_an_order_of_an_older_connection_must_not_be_obeyed() -> None:
    violation = found(CREATED, MORTAL, Rules(admit=of_any_connection))
    assert violation.kind is ViolationKind.BROKEN
    assert "controller: gives notify id 2" in " ".join(violation.trace.steps)


def test_before_the_end_of_the_list_nothing_is_known_to_be_missing() -> None:
    assert what(found(CHANGED, FaultBudget(), Rules(listed=lambda _: True))) == (ViolationKind.BROKEN, MISSING_IS_TRUE)


def test_before_the_end_of_the_list_nothing_is_known_to_be_deleted() -> None:
    protocol = instance_protocol(CHANGED, Rules(listed=lambda _: True))
    absent = tuple(claim for claim in protocol.invariants if claim.name == ABSENT_IS_TRUE)
    violation = explore(replace(protocol, invariants=absent), MORTAL, BOUNDS).violation
    assert violation is not None
    assert what(violation) == (ViolationKind.BROKEN, ABSENT_IS_TRUE)
    assert violation.trace.end[0].startswith("controller: NotPresent")


def test_an_end_of_list_that_overtook_the_list_is_not_the_end_of_it() -> None:
    rules = Rules(listed=lambda link: link.expected is not None)
    assert what(found(CHANGED, FaultBudget(), rules)) == (ViolationKind.BROKEN, MISSING_IS_TRUE)


def test_a_list_of_an_older_connection_says_nothing_about_now() -> None:
    rules = Rules(heeds=lambda _link, _line: True)
    assert what(found(CREATED, MORTAL, rules)) == (ViolationKind.BROKEN, MISSING_IS_TRUE)


def test_without_time_outs_a_lost_order_is_waited_for_for_ever() -> None:
    violation = found(CREATED, LOSSY, Rules(lifecycle=without_timeouts()))
    assert what(violation) == (ViolationKind.DEAD_END, AT_REST)
    assert violation.trace.steps[-1] == "network loses create (operation 1, generation 1, notify 1) to agent"
    assert violation.trace.end[0].startswith("controller: CreateRequested")


def test_an_undo_that_is_not_sent_again_is_lost_for_ever_because_an_error_state_has_no_deadline() -> None:
    violation = found(replace(CREATED, clock_events=(ClockEvent.DEADLINE,)), LOSSY)
    assert what(violation) == (ViolationKind.DEAD_END, AT_REST)
    assert violation.trace.end[0].startswith("controller: CreateError")


def test_an_undo_under_the_id_of_what_failed_is_never_done_by_an_agent_that_did_it_late() -> None:
    violation = found(CREATED, FaultBudget(), Rules(number_undo=lambda record: record.issued))
    assert what(violation) == (ViolationKind.NO_REST, AT_REST)


def test_what_exists_of_another_generation_must_not_count_as_what_was_asked_for() -> None:
    def of_any_generation(generation: int, whole: bool, order: AgentOrder) -> bool:
        return (generation == 0) == (order.work == "delete") and whole

    violation = found(CHANGED, MORTAL, Rules(fulfils=of_any_generation))
    assert what(violation) == (ViolationKind.BROKEN, READY_IS_TRUE)


def test_what_never_was_ready_is_undone_by_its_removal() -> None:
    met: set[str] = set()

    def note(controller: Controller) -> bool:
        if (
            controller.record.state == S.DELETE_ERROR
            and not controller.record.confirmed
            and controller.record.operation
        ):
            met.add("undo")
        return True

    protocol = instance_protocol(Scenario(asks=2))
    explore(replace(protocol, invariants=(Predicate("note", (CONTROLLER,), note),)), LOSSY, BOUNDS)
    assert met


@pytest.mark.parametrize(
    ("state", "item", "error"),
    [
        (S.CREATING, NOT_LISTED, S.CREATE_ERROR),
        (S.UPDATING, InventoryItem(0, 1, True, 1), S.UPDATE_ERROR),
        (S.DELETING, InventoryItem(0, 2, True, 1), S.DELETE_ERROR),
    ],
)
def test_work_that_the_agent_loses_each_time_is_given_up_and_undone(state: S, item: InventoryItem, error: S) -> None:
    rules, record = Rules(), InstanceRecord(state, operation=2, generation=2, confirmed=1, issued=2, notify=1)
    for _ in range(MAX_TRIES - 1):
        step = on_inventory_item(rules, record, item)
        assert (step.move, step.record) == (None, replace(record, tries=record.tries + 1))
        record = step.record
    step = on_inventory_item(rules, record, item)
    assert step.move is not None
    assert (step.move.event, step.record.state, step.record.operation) == ("give up", error, 3)
