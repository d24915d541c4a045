"""Answers of the ovc API: views of objects, queues and healing."""

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct, field

from stateward.domains.ovc import model
from stateward.domains.ovc.lifecycle import CLOUDSPACE, DISK, IMAGE, NODE, VM
from stateward.domains.ovc.queuer import ObjectQueue
from stateward.domains.ovc.service import HealingReport
from stateward.engine import Accepted
from stateward.engine.privacy import Disclosure
from stateward.store.records import Object


class BinEntryView(Struct, frozen=True):
    """A stay in the recycle bin."""

    since: datetime
    along: str | None


class OrphanView(Struct, frozen=True):
    """A machine on a node, or a file among the disks, that no object owns."""

    node: str
    what: str
    name: str
    since: datetime


class ItemView(Struct, frozen=True, omit_defaults=True):
    """An object of any kind; fields of other kinds are left out."""

    id: str
    kind: str
    name: str
    state: str
    since: datetime
    created: datetime
    parent: str | None
    operation: str | None
    error: str | None
    spec: dict[str, Any]
    bin: BinEntryView | None = None
    disks: list[str] | None = None
    clones: list[str] | None = None
    vm: str | None = None
    users: int | None = None
    node: str | None = None
    firewall: str | None = None
    away: list[str] | None = None
    report: model.NodeReport | None = None
    looked: datetime | None = None
    trouble: str | None = None
    orphans: list[OrphanView] | None = field(default=None, name="strangers")


class OvcAcceptedView(Struct, frozen=True):
    """An accepted request: the object as it is now, and its operation; none if there is nothing to do."""

    object: ItemView
    operation: str | None
    status: str
    again: bool


class QueuedOperationView(Struct, frozen=True):
    """An operation in a queue."""

    id: str
    object: str
    action: str
    actor: str
    who: str
    status: str
    hidden: bool
    created: datetime


class ObjectQueueView(Struct, frozen=True):
    """An object's queue; it exists while it has operations."""

    object: str
    exists: bool
    stopping: bool
    operations: list[QueuedOperationView]


class OvcStuckView(Struct, frozen=True):
    """Work that is past its deadline, or whose worker is dead; the healer will recover it."""

    object: str
    operation: str
    overdue_since: datetime


class OvcRecoveredView(Struct, frozen=True):
    """A recovery by the healer, a timer or drift detection: how, and the state since then."""

    object: str
    kind: str
    operation: str | None
    began: datetime | None
    at: datetime
    how: str
    state: str | None
    reason: str | None


class HealingView(Struct, frozen=True, omit_defaults=True):
    """Stuck work and recoveries; only administrators get the orphans."""

    stuck: list[OvcStuckView]
    healed: list[OvcRecoveredView]
    orphans: list[OrphanView] | None = field(default=None, name="strangers")


def item_view(stored: Object, disclosure: Disclosure) -> ItemView:
    """Return the view of an object; only administrators see the nodes of VMs and firewalls."""
    shown = disclosure.object(stored)
    spec, stay = msgspec.json.decode(shown.spec), model.read_seen(shown).bin
    return ItemView(
        id=shown.id,
        kind=model.short_kind(shown.kind),
        name=str(spec.get("name", "")),
        state=shown.state,
        since=to_datetime(shown.since),
        created=to_datetime(shown.created),
        parent=shown.parent,
        operation=shown.op,
        error=shown.error,
        spec={name: value for name, value in spec.items() if name != "name"},
        bin=None if stay is None else BinEntryView(to_datetime(stay.since), stay.along or None),
        # whether it has power, which every reader may know
        firewall=None if stored.kind != CLOUDSPACE.kind else "on" if model.cloudspace_seen(stored).machine else "off",
        **_kind_fields(shown),
    )


def _kind_fields(item: Object) -> dict[str, Any]:
    """Return the fields that only objects of this kind have."""
    if item.kind == VM.kind:
        vm = model.vm_seen(item)
        return {"disks": list(vm.disks), "clones": list(vm.clones), "node": vm.node or None}
    if item.kind == CLOUDSPACE.kind:
        return {"node": model.cloudspace_seen(item).node or None}
    if item.kind == DISK.kind:
        return {"vm": model.disk_seen(item).vm or None}
    if item.kind == IMAGE.kind:
        return {"users": model.image_seen(item).users}
    if item.kind == NODE.kind:
        node = model.node_seen(item)
        return {
            "away": list(node.away) or None,
            "report": node.report,
            "looked": to_datetime(node.looked) if node.looked else None,
            "trouble": node.trouble or None,
            "orphans": [_orphan_view(item.id, orphan) for orphan in node.orphans] or None,
        }
    return {}


def _orphan_view(node: str, orphan: model.OvcOrphan) -> OrphanView:
    return OrphanView(node, orphan.id.what, orphan.id.name, to_datetime(orphan.since))


def accepted_view(accepted: Accepted, disclosure: Disclosure) -> OvcAcceptedView:
    """Return the view of an accepted request."""
    operation = accepted.operation
    status = "done" if operation is None else str(operation.status)
    shown = item_view(accepted.object, disclosure)
    return OvcAcceptedView(shown, None if operation is None else operation.id, status, accepted.again)


def queue_view(queue: ObjectQueue, disclosure: Disclosure) -> ObjectQueueView:
    """Return the view of a queue, without hidden operations."""
    shown = [
        QueuedOperationView(
            operation.id,
            operation.object,
            operation.action,
            operation.actor,
            operation.who,
            str(operation.status),
            operation.hidden,
            to_datetime(operation.created),
        )
        for operation in queue.operations
        if not disclosure.hides(operation)
    ]
    return ObjectQueueView(queue.object, bool(shown), queue.stopping and bool(shown), shown)


def healing_view(healing: HealingReport, *, orphans: bool) -> HealingView:
    """Return the view of a healing report; with `orphans` for administrators."""
    return HealingView(
        [OvcStuckView(entry.object, entry.op, to_datetime(entry.since)) for entry in healing.stuck],
        [
            OvcRecoveredView(
                entry.object,
                model.short_kind(entry.kind),
                entry.op,
                None if entry.began is None else to_datetime(entry.began),
                to_datetime(entry.at),
                entry.how,
                entry.state,
                entry.reason,
            )
            for entry in healing.healed
        ],
        [_orphan_view(node, orphan) for node, orphan in healing.orphans] if orphans else None,
    )


def to_datetime(seconds: float) -> datetime:
    """Return a time as it is shown in answers."""
    return datetime.fromtimestamp(seconds, UTC)
