"""Labels of MCIs, VMs and resources, and their changes.

The labels of an MCI and of a VM are in its spec, and those of a resource are the labels of its object. An operation
that fails gives its object the former spec back. A change of labels during the operation would then be lost, so it is
refused until the operation has ended.

Invariant: the labels by which the domain finds its objects, and the flag of the protection, do not change here.
"""

from collections.abc import Collection, Mapping

import msgspec
from msgspec.structs import replace

from stateward.domains.mci.lifecycle import MCI, SECURITY_GROUP, SSH_KEY, VM, VNET
from stateward.domains.mci.model import mci_of, resource_identity, vm_of
from stateward.engine import NotFound
from stateward.engine.errors import Occupied, blocker_of
from stateward.engine.kinds import Kinds
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput, UnknownName
from stateward.schemas.caller import Caller
from stateward.store.port import Tx
from stateward.store.records import PROTECTED_LABEL, Key, Object, shown_labels, to_json

Labels = dict[str, str]

LABELED_KINDS = {
    "mci": MCI.kind,
    "vm": VM.kind,
    "vNet": VNET.kind,
    "securityGroup": SECURITY_GROUP.kind,
    "sshKey": SSH_KEY.kind,
}
"""The kinds of objects with labels, by their types in the Tumblebug API."""

LABEL_TYPES = {kind: word for word, kind in LABELED_KINDS.items()}

SYSTEM_PREFIX = "sys."
MAX_LABELS = 100
"""How many labels an object may have; each change stores all of them again."""


def labels_of(record: Object) -> Labels:
    """Return the labels of an object: those that its users gave, and those that all objects have."""
    spec = mci_of(record) if record.kind == MCI.kind else vm_of(record) if record.kind == VM.kind else None
    own = shown_labels(msgspec.json.decode(record.labels)) if spec is None else spec.label
    identity = resource_identity(record) if spec is None else spec
    return {
        **own,
        "sys.id": identity.name,
        "sys.namespace": record.ns,
        "sys.uid": identity.uid,
        "sys.labelType": LABEL_TYPES[record.kind],
    }


async def change_labels(
    tx: Tx, kinds: Kinds, key: Key, added: Mapping[str, str], removed: Collection[str], by: Caller
) -> Object:
    """Add or replace some labels of an object, and remove others; returns the object."""
    uow = UnitOfWork(tx)
    await uow.load([key])
    record = uow.objects.get(key)
    if record is None or record.removed:
        raise NotFound(*key)
    labels = labels_of(record)
    present, reserved = {**msgspec.json.decode(record.labels), **labels}, kinds.of(record).rules.reserved_labels
    given: Labels = {}
    for name, value in [*added.items(), *((name, None) for name in removed)]:
        if not (name.startswith(SYSTEM_PREFIX) or name in reserved or name == PROTECTED_LABEL):
            given |= {} if value is None else {name: value}
        elif value is None or name == PROTECTED_LABEL or present.get(name) != value:  # its own value is no change
            allowed = f"left out: this server sets {name!r} itself"
            raise BadInput(f"labels.{name}", value, allowed, state=record.state)
    for name in removed:
        if name not in labels:
            raise UnknownName("label", name, sorted(labels))
    if len(labels.keys() | given.keys()) > MAX_LABELS:
        raise BadInput("labels", len(given), f"so few that the object has at most {MAX_LABELS}", state=record.state)
    changed = _with_labels(record, given, removed)
    if changed == record:
        return record
    if changed.spec != record.spec and record.op is not None:
        holder = Key(record.ns, record.op)
        await uow.load_operations([holder])
        raise Occupied("change labels", blocker_of(uow.operations[holder]))
    changed = replace(changed, version=uow.next_version(key))
    uow.save_object(key, changed)
    spec = changed.spec if changed.spec != record.spec else None
    journal(uow, record, None, by.actor, by.who, "labels changed", spec=spec)
    await uow.apply()
    return changed


def _with_labels(record: Object, added: Labels, removed: Collection[str]) -> Object:
    """Return an object with changed labels, in the place where its kind stores them."""
    if record.kind != VM.kind:  # the labels of a VM's object are those that it has from its MCI
        former: Labels = msgspec.json.decode(record.labels)
        merged = _merged(former, added, removed)
        if merged != former:
            record = replace(record, labels=msgspec.json.encode(merged, order="sorted").decode())
    if record.kind not in (MCI.kind, VM.kind):
        return record
    spec = mci_of(record) if record.kind == MCI.kind else vm_of(record)
    label = _merged(spec.label, added, removed)
    return record if label == spec.label else replace(record, spec=to_json(replace(spec, label=label)))


def _merged(labels: Labels, added: Labels, removed: Collection[str]) -> Labels:
    return {name: value for name, value in {**labels, **added}.items() if name not in removed}
