"""Answers of the ovc API: views of objects, queues and healing."""

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct, field

from stateward.domains.ovc.lifecycle import CLOUDSPACE, DISK, IMAGE, NODE, VM
from stateward.domains.ovc.model import (
    NodeReport,
    OvcOrphan,
    Seen,
    cloudspace_seen,
    disk_seen,
    image_seen,
    node_seen,
    read_seen,
    short_kind,
    vm_seen,
)
from stateward.domains.ovc.queuer import ObjectQueue
from stateward.domains.ovc.service import HealingReport
from stateward.engine import Accepted
from stateward.engine.privacy import Disclosure
from stateward.store.records import Object, Operation


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
    report: NodeReport | None = None
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
    found = disclosure.object(stored)
    spec = msgspec.json.decode(found.spec)
    return ItemView(
        id=found.id,
        kind=short_kind(found.kind),
        name=str(spec.get("name", "")),
        state=found.state,
        since=to_datetime(found.since),
        created=to_datetime(found.created),
        parent=found.parent,
        operation=found.op,
        error=found.error,
        spec={name: value for name, value in spec.items() if name != "name"},
        bin=_bin_entry_view(read_seen(found)),
        firewall=_firewall(stored),
        **_kind_fields(found),
    )


def _firewall(stored: Object) -> str | None:
    """Return whether a cloudspace's firewall has power; every reader may know that."""
    if stored.kind != CLOUDSPACE.kind:
        return None
    return "on" if cloudspace_seen(stored).machine else "off"


def _kind_fields(found: Object) -> dict[str, Any]:
    """Return the fields that only objects of this kind have."""
    if found.kind == VM.kind:
        vm = vm_seen(found)
        return {"disks": list(vm.disks), "clones": list(vm.clones), "node": vm.node or None}
    if found.kind == CLOUDSPACE.kind:
        return {"node": cloudspace_seen(found).node or None}
    if found.kind == DISK.kind:
        return {"vm": disk_seen(found).vm or None}
    if found.kind == IMAGE.kind:
        return {"users": image_seen(found).users}
    if found.kind == NODE.kind:
        return _node_fields(found)
    return {}


def _node_fields(found: Object) -> dict[str, Any]:
    node = node_seen(found)
    return {
        "away": list(node.away) or None,
        "report": node.report,
        "looked": to_datetime(node.looked) if node.looked else None,
        "trouble": node.trouble or None,
        "orphans": [_orphan_view(found.id, one) for one in node.orphans] or None,
    }


def _orphan_view(node: str, one: OvcOrphan) -> OrphanView:
    return OrphanView(node, one.id.what, one.id.name, to_datetime(one.since))


def _bin_entry_view(seen: Seen) -> BinEntryView | None:
    return None if seen.bin is None else BinEntryView(to_datetime(seen.bin.since), seen.bin.along or None)


def accepted_view(accepted: Accepted, disclosure: Disclosure) -> OvcAcceptedView:
    """Return the view of an accepted request."""
    operation = accepted.operation
    status = "done" if operation is None else str(operation.status)
    shown = item_view(accepted.object, disclosure)
    return OvcAcceptedView(shown, None if operation is None else operation.id, status, accepted.again)


def queue_view(queue: ObjectQueue, disclosure: Disclosure) -> ObjectQueueView:
    """Return the view of a queue, without hidden operations."""
    shown = [_queued_view(one) for one in queue.operations if not disclosure.hides(one)]
    return ObjectQueueView(queue.object, bool(shown), queue.stopping and bool(shown), shown)


def _queued_view(one: Operation) -> QueuedOperationView:
    created = to_datetime(one.created)
    return QueuedOperationView(one.id, one.object, one.action, one.actor, one.who, str(one.status), one.hidden, created)


def healing_view(healing: HealingReport, *, orphans: bool) -> HealingView:
    """Return the view of a healing report; with `orphans` for administrators."""
    return HealingView(
        [OvcStuckView(one.object, one.op, to_datetime(one.since)) for one in healing.stuck],
        [
            OvcRecoveredView(
                one.object,
                short_kind(one.kind),
                one.op,
                None if one.began is None else to_datetime(one.began),
                to_datetime(one.at),
                one.how,
                one.state,
                one.reason,
            )
            for one in healing.healed
        ],
        [_orphan_view(node, one) for node, one in healing.orphans] if orphans else None,
    )


def to_datetime(seconds: float) -> datetime:
    """Return a time as it is shown in answers."""
    return datetime.fromtimestamp(seconds, UTC)
