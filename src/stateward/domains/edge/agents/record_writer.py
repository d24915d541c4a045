"""Writing of reconciled records: the object, its operation, its work item and the journal change together."""

from msgspec.structs import replace

from stateward.agents.published_ports import PublishedAddress
from stateward.domains.edge.lifecycle import APPINST, CLOUDLET
from stateward.domains.edge.lookups import save_status
from stateward.domains.edge.model import (
    CloudletStatus,
    InstanceStatus,
    cloudlet_status,
    instance_status,
    updated_status,
    with_agent_slots,
)
from stateward.domains.edge.records.agent_upgrade import SlotsUpdate
from stateward.domains.edge.records.alert_names import AlertName
from stateward.domains.edge.records.instance_record import ERROR_STATES, InstanceRecord
from stateward.domains.edge.records.reconcile import ReconcileStep
from stateward.engine.alerts import save_alerts, with_alert, with_failure, without_alerts
from stateward.engine.finish.completion import STATUSES
from stateward.engine.transitions import REJECTED, change_state, fence_work, journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import TRANSITIONAL, Meaning, Move, decide
from stateward.store.records import Object, Operation, Progress, to_json

READY, NOT_PRESENT = "Ready", "NotPresent"
DOWN_TEXT = "not all of it runs at its cloudlet"
TOLD_ACTIONS = ("create", "upgrade")
"""The operations on cloudlets whose steps are told; agents restart too often to tell each start."""

GOOD_MEANINGS = (Meaning.SUCCESS, Meaning.STEP)


def write_step(
    uow: UnitOfWork, instance: Object, operation: Operation | None, step: ReconcileStep, who: str, error: str = ""
) -> Object:
    """Write the result of a reconcile step; returns the changed instance."""
    status = instance_status(instance)
    after = replace(_status_after(status, step.record, operation), ports=_ports_after(step))
    seen = _with_down_alert(after, step, instance.kind, uow.now)
    if operation is not None and operation.action == "re-create" and step.record.state in ERROR_STATES:
        seen = replace(seen, alerts=with_failure(seen.alerts, _down_alert(instance.kind), error or step.note))
    save_alerts(uow, instance, status.alerts, seen.alerts)
    if step.move is None:
        return save_status(uow, instance, seen)
    move, good = step.move, step.move.meaning in GOOD_MEANINGS
    spec = _spec_after(instance, operation, move, status)
    if move.target == "Ready":
        seen = replace(seen, spec=spec or instance.spec)
    op = None if operation is None else operation.id
    why = None if good else error or move.event
    changed = change_state(uow, instance, move, who, op, spec=spec, seen=to_json(seen), error=why)
    if operation is not None:
        end_or_renew(uow, operation, move, why)
    return changed


def _with_down_alert(status: InstanceStatus, step: ReconcileStep, kind: str, now: float) -> InstanceStatus:
    """Return the status with the alert of an instance that is missing at its site; what is gone has no alerts."""
    name = _down_alert(kind)
    if step.record.state == NOT_PRESENT:
        return replace(status, alerts=())
    if step.record.state != READY:
        return status
    if step.record.missing:
        return replace(status, alerts=with_alert(status.alerts, name, step.problem or DOWN_TEXT, now))
    return replace(status, alerts=without_alerts(status.alerts, name))


def _down_alert(kind: str) -> AlertName:
    return AlertName.APP_DOWN if kind == APPINST.kind else AlertName.NODE_DOWN


def _ports_after(step: ReconcileStep) -> tuple[PublishedAddress, ...]:
    """Return the published ports after a step; an instance that is being changed has none."""
    return step.ports if step.record.state == READY else ()


def _status_after(status: InstanceStatus, record: InstanceRecord, operation: Operation | None) -> InstanceStatus:
    """Return the status after a step; an undo keeps the id of the failed operation, which gets its progress lines."""
    after = updated_status(status, record)
    if record.state in ERROR_STATES and operation is not None:
        return replace(after, undo_of=operation.id)
    return after if record.state in ERROR_STATES else replace(after, undo_of="")


def _spec_after(instance: Object, operation: Operation | None, move: Move, status: InstanceStatus) -> str | None:
    """Return the new spec, if it changes: a failed update and the end of an undo restore the previous one."""
    if move.target == "UpdateError" and operation is not None:
        return operation.previous_spec
    undone = move.event == "undone" and move.target == "Ready"
    return status.spec if undone and status.spec != instance.spec else None


def end_or_renew(uow: UnitOfWork, operation: Operation, move: Move, error: str | None) -> None:
    """End an operation, or renew its deadline: a report is a sign of life."""
    work = uow.work(operation.key)
    if move.target.state_class is not TRANSITIONAL:
        uow.record_end(operation, STATUSES[move.meaning], work, None, error)
        if work is not None:
            fence_work(uow, work)
    elif move.within is not None:
        renew_deadline(uow, operation, operation.within or move.within)


def renew_deadline(uow: UnitOfWork, operation: Operation, within: float) -> None:
    """Set an operation's deadline to so many seconds from now."""
    work = uow.work(operation.key)
    if work is None:
        return
    deadline = uow.now + within
    uow.update_work(replace(work, deadline=deadline, not_before=deadline if work.is_parked else work.not_before))


def tell_progress(
    uow: UnitOfWork, record: Object, operation: Operation | None, text: str, step: int, total: int
) -> None:
    """Add a line to the progress of the operation that creates a cloudlet or upgrades its agent."""
    if operation is not None and operation.action in TOLD_ACTIONS:
        uow.changes.progress.append(Progress(record.ns, operation.id, uow.now, text, step, total))


def write_slots(
    uow: UnitOfWork,
    cloudlet: Object,
    operation: Operation | None,
    update: SlotsUpdate,
    who: str,
    error: str = "",
    status: CloudletStatus | None = None,
) -> Object:
    """Write the result of a message about a cloudlet; an event that the table does not allow changes the slots only."""
    after, event = with_agent_slots(status or cloudlet_status(cloudlet), update.slots), update.event
    origin = None if operation is None else operation.origin
    move = None if event is None else decide(CLOUDLET, cloudlet.state, event.name, event.actor, event.facts, origin)
    if not isinstance(move, Move):
        return save_status(uow, cloudlet, after)
    why = None if move.meaning in GOOD_MEANINGS else error or move.event
    op = None if operation is None else operation.id
    changed = change_state(uow, cloudlet, move, who, op, seen=to_json(after), error=why, reason=error or why)
    if operation is not None:
        end_or_renew(uow, operation, move, why)
    return changed


def journal_rejection(uow: UnitOfWork, record: Object, actor: str, who: str, event: str, why: object) -> None:
    """Journal a rejected message."""
    journal(uow, record, record.op, actor, who, f"{REJECTED}{event}", reason=str(why))
