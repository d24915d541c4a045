"""Reconciliation of one record with an agent's report or inventory item.

The functions are pure, and the explorer checks them: a record and a message go in, a `ReconcileStep` comes out.
"""

from msgspec import Struct
from msgspec.structs import replace

from stateward.agents.messages import BEGUN, BUSY, ENDED, FAILED, AgentOrder, AgentReport, InventoryItem, OrderAction
from stateward.agents.published_ports import PublishedAddress
from stateward.domains.edge.records.instance_record import (
    ERROR_STATES,
    MAX_TRIES,
    WORKING_STATES,
    DecisionRules,
    InstanceRecord,
    S,
    apply_move,
    begin_undo,
    current_facts,
    decide_event,
    fenced_fields,
    requested_action,
)
from stateward.domains.edge.records.report_fencing import RejectedReport
from stateward.lifecycle import AGENT, CONTROLLER, Move, Refusal

NOT_LISTED = InventoryItem(0, 0, True, 0)
"""The item of an instance that is not in a complete inventory."""


class ReconcileStep(Struct, frozen=True):
    """The effect of a message on a record: the new record, the transition, and the follow-up.

    `must_resend`: the order must be sent again. `is_working`: the agent already executes the order. `is_orphan`: the
    site has something that the record does not. `problem` is what the agent says about an instance that is not whole,
    and `ports` are those that it has published.
    """

    record: InstanceRecord
    note: str
    move: Move | None = None
    rejection: RejectedReport | Refusal | None = None
    must_resend: bool = False
    is_working: bool = False
    is_orphan: bool = False
    problem: str = ""
    ports: tuple[PublishedAddress, ...] = ()


def on_report(rules: DecisionRules, record: InstanceRecord, report: AgentReport) -> ReconcileStep:
    """Apply an agent's report: it changes the record, postpones the order (`busy`), or is rejected."""
    fields = fenced_fields(record)
    rejected = rules.fence(fields, report)
    if rejected is None and report.event == BUSY:
        return ReconcileStep(record, "will ask again", must_resend=True)
    verdict = rejected or rules.evaluate(rules.lifecycle, fields, report, current_facts(record))
    if isinstance(verdict, Move):
        return ReconcileStep(apply_move(rules, record, verdict), "agrees", verdict, ports=report.ports)
    if isinstance(verdict, Refusal) and record.state in ERROR_STATES and report.event in FAILED.values():
        return ReconcileStep(begin_undo(rules, record), "the undo failed")
    if isinstance(verdict, Refusal) and _begins_undo(record, report):
        return ReconcileStep(record, "the undo has begun")
    return ReconcileStep(
        record, f"rejects it, {verdict.why}" if isinstance(verdict, RejectedReport) else "refuses it", rejection=verdict
    )


def _begins_undo(record: InstanceRecord, report: AgentReport) -> bool:
    """Tell whether a report announces the requested undo; the state changes only when the undo ends."""
    work = requested_action(record)
    return record.state in ERROR_STATES and work is not None and report.event == BEGUN[work]


def on_inventory_item(rules: DecisionRules, record: InstanceRecord, item: InventoryItem) -> ReconcileStep:
    """Reconcile the record with the agent's item; work in progress is left to its reports."""
    if item.operation and record.operation in (0, item.operation):
        return ReconcileStep(record, "settles: the agent is at work on it", is_working=True, ports=item.ports)
    if record.state == S.READY:
        missing = not rules.fulfils(
            item.generation, item.whole, AgentOrder(OrderAction.CREATE, 0, record.generation, 0)
        )
        return ReconcileStep(replace(record, missing=missing), "settles", problem=item.problem, ports=item.ports)
    if record.state == S.NOT_PRESENT and item.generation:
        return ReconcileStep(record, "settles: an orphan", is_orphan=True)
    return (
        _resume_lost_work(rules, record, item) if record.state in WORKING_STATES else ReconcileStep(record, "settles")
    )


def _resume_lost_work(rules: DecisionRules, record: InstanceRecord, item: InventoryItem) -> ReconcileStep:
    """Handle work that the agent lost: its result exists, or it is requested again, or the operation fails."""
    work = requested_action(record)
    assert work is not None
    if rules.fulfils(item.generation, item.whole, AgentOrder(work, record.operation, record.generation, 0)):
        return replace(_apply_event(rules, record, ENDED[work], AGENT), ports=item.ports)
    if record.tries + 1 < MAX_TRIES:
        return ReconcileStep(replace(record, tries=record.tries + 1), "settles: once more")
    return _apply_event(rules, record, "give up", CONTROLLER)


def _apply_event(rules: DecisionRules, record: InstanceRecord, event: str, actor: str) -> ReconcileStep:
    move = decide_event(rules, record, event, actor)
    assert isinstance(move, Move), move
    return ReconcileStep(apply_move(rules, record, move), f"settles: {event}", move)
