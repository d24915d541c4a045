"""Transactions for agent messages: reports, progress and observed changes, one batch per transaction.

A transaction locks the rows of all cloudlets and instances of its batch together, in one order. The decisions are pure
functions (`records.reconcile`, `records.agent_upgrade`); this module loads the records and writes the results.
"""

from collections.abc import Sequence

from msgspec import Struct

from stateward.agents.messages import AgentOrder, AgentReport, InventoryItem, ProgressMessage
from stateward.domains.edge.agents.connections import NO_CLOUDLET
from stateward.domains.edge.agents.orders import RULES, complete_order
from stateward.domains.edge.agents.record_writer import journal_rejection, renew_deadline, write_slots, write_step
from stateward.domains.edge.lifecycle import CLOUDLET
from stateward.domains.edge.lookups import current_operation, loaded_object, unit_of_work
from stateward.domains.edge.model import (
    INSTANCE_LIFECYCLES,
    agent_slots,
    cloudlet_status,
    instance_record,
    instance_status,
)
from stateward.domains.edge.policy.cluster_release import free_clusters_of_gone_apps
from stateward.domains.edge.records.agent_upgrade import AgentRejection, on_agent_report
from stateward.domains.edge.records.instance_record import InstanceRecord, fenced_fields
from stateward.domains.edge.records.reconcile import ReconcileStep, on_inventory_item, on_report
from stateward.domains.edge.records.report_fencing import RejectedReport
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import AGENT
from stateward.store import records
from stateward.store.port import Tx
from stateward.store.records import Key, Object, Operation

NO_NAME = "the message names no instance"

MAX_PROGRESS_CHARS = 1_000
"""How much of a line of progress is kept: an agent may send many."""


class AgentMessage(Struct, frozen=True):
    """A message over a connection; if its content has no name, it is about the agent itself."""

    ns: str
    cloudlet: str
    version: str
    content: AgentReport | ProgressMessage | InventoryItem

    @property
    def object(self) -> Key:
        """The key of the instance or cloudlet that the message is about."""
        return Key(self.ns, f"{self.cloudlet}:{self.content.name}" if self.content.name else self.cloudlet)


class ReportResult(Struct, frozen=True):
    """The result of a message: accepted or rejected, and the order to send next, if any."""

    is_accepted: bool
    reason: str = ""
    must_resend: bool = False
    order: AgentOrder | None = None
    is_missing: bool = False


async def process_messages(tx: Tx, messages: Sequence[AgentMessage], idle_s: float) -> list[ReportResult]:
    """Process a batch of messages; rejected ones are journaled, and the clusters of apps that are gone are freed."""
    keys = {key for message in messages for key in (message.object, Key(message.ns, message.cloudlet))}
    async with unit_of_work(tx, keys) as uow:
        results = [await _process_message(uow, message) for message in messages]
        await free_clusters_of_gone_apps(uow, list(uow.objects.values()), idle_s)
        return results


async def _process_message(uow: UnitOfWork, message: AgentMessage) -> ReportResult:
    cloudlet = loaded_object(uow, Key(message.ns, message.cloudlet), CLOUDLET.kind)
    if cloudlet is None:
        return ReportResult(False, NO_CLOUDLET)
    if not message.content.name:
        return await _apply_cloudlet_report(uow, cloudlet, message)
    instance = uow.objects.get(message.object)
    if instance is None or instance.kind not in INSTANCE_LIFECYCLES:
        why = f"nothing is known of {message.content.name}"
        journal_rejection(uow, cloudlet, AGENT, message.cloudlet, _event_name(message), why)
        return ReportResult(False, "nothing is known of it")
    operation = await current_operation(uow, instance)
    notify = cloudlet_status(cloudlet).serving
    record = instance_record(instance, operation, notify)
    match message.content:
        case ProgressMessage():
            return _apply_progress(uow, instance, operation, record, message)
        case InventoryItem():
            return _apply_observed_change(uow, instance, operation, record, message)
        case AgentReport():
            step = on_report(RULES[instance.kind], record, message.content)
            return _apply_report(uow, instance, operation, step, message)


def _apply_report(
    uow: UnitOfWork, instance: Object, operation: Operation | None, step: ReconcileStep, message: AgentMessage
) -> ReportResult:
    assert isinstance(message.content, AgentReport)
    if step.rejection is not None:
        journal_rejection(uow, instance, AGENT, message.cloudlet, message.content.event, step.rejection)
        why = step.rejection.why if isinstance(step.rejection, RejectedReport) else str(step.rejection.reason)
        return ReportResult(False, why)
    changed = write_step(uow, instance, operation, step, message.cloudlet, message.content.error)
    new = step.record.operation and step.record.operation != message.content.operation
    order = complete_order(changed, step.record, message.content.notify) if new else None
    return ReportResult(True, must_resend=step.must_resend, order=order, is_missing=step.record.missing)


def _apply_progress(
    uow: UnitOfWork, instance: Object, operation: Operation | None, record: InstanceRecord, message: AgentMessage
) -> ReportResult:
    """Store a line of progress, and renew its operation's deadline."""
    progress = message.content
    assert isinstance(progress, ProgressMessage)
    report = AgentReport("progress", progress.operation, progress.generation, progress.notify)
    rejected = RULES[instance.kind].fence(fenced_fields(record), report)
    if rejected is not None:
        journal_rejection(uow, instance, AGENT, message.cloudlet, "progress", rejected)
        return ReportResult(False, rejected.why)
    op = operation.id if operation is not None else instance_status(instance).undo_of
    text = progress.text[:MAX_PROGRESS_CHARS]
    entry = records.Progress(instance.ns, op, uow.now, text, progress.done, progress.total)
    uow.changes.progress.append(entry)
    if operation is not None:
        renew_deadline(uow, operation, operation.within)
    return ReportResult(True)


def _apply_observed_change(
    uow: UnitOfWork, instance: Object, operation: Operation | None, record: InstanceRecord, message: AgentMessage
) -> ReportResult:
    """Apply a change that the agent observed; it counts only while no operation runs on the instance."""
    item = message.content
    assert isinstance(item, InventoryItem)
    if item.notify != record.notify or item.operation or record.state != "Ready":
        return ReportResult(False, "the message is outdated")
    step = on_inventory_item(RULES[instance.kind], record, item)
    write_step(uow, instance, operation, step, message.cloudlet)
    return ReportResult(True, is_missing=step.record.missing)


async def _apply_cloudlet_report(uow: UnitOfWork, cloudlet: Object, message: AgentMessage) -> ReportResult:
    report = message.content
    if not isinstance(report, AgentReport):
        journal_rejection(uow, cloudlet, AGENT, message.version, _event_name(message), NO_NAME)
        return ReportResult(False, NO_NAME)
    operation = await current_operation(uow, cloudlet)
    slots = agent_slots(cloudlet, operation)
    update = on_agent_report(slots, report.notify, message.version, report.event, report.operation)
    if isinstance(update, AgentRejection):
        journal_rejection(uow, cloudlet, AGENT, message.version, report.event, update)
        return ReportResult(False, update)
    write_slots(uow, cloudlet, operation, update, message.version, report.error)
    return ReportResult(True)


async def journal_violation(tx: Tx, ns: str, cloudlet: str, who: str, why: str) -> None:
    """Journal that an agent was disconnected for a violation of the protocol."""
    async with unit_of_work(tx, [Key(ns, cloudlet)]) as uow:
        if (record := loaded_object(uow, Key(ns, cloudlet), CLOUDLET.kind)) is not None:
            journal_rejection(uow, record, AGENT, who, "word", why)


def _event_name(message: AgentMessage) -> str:
    content = message.content
    return content.event if isinstance(content, AgentReport) else str(content.__struct_config__.tag)
