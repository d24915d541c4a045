"""Pinned host keys: the key that the SSH server of a VM has shown at first sight, in the VM's record.

A driver that makes the host keys of its machines tells them. For all others the first sight counts. The pin is a label
of the VM: observations of the provider replace the rest of what is seen.
"""

import msgspec
from msgspec.structs import replace

from stateward.domains.mci.model import vm_of, vm_seen
from stateward.drivers.ssh.host_key import bare_key, fingerprint
from stateward.engine import NotFound
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import CONTROLLER
from stateward.store.port import Tx
from stateward.store.records import Key, Object

HOST_KEY_LABEL, BASTION_LABEL = "host-key", "bastion"
"""The labels of a VM: its pinned host key, and the VM through which it is reached."""


class _VmLabels(msgspec.Struct, frozen=True, rename={"host_key": HOST_KEY_LABEL, "bastion": BASTION_LABEL}):
    host_key: str = ""
    bastion: str = ""


def known_host_key(vm: Object) -> str:
    """Return the host key of a VM: that of its driver, or the pinned one, or none."""
    return bare_key(vm_seen(vm).host_key) or msgspec.json.decode(vm.labels, type=_VmLabels).host_key


def chosen_bastion(vm: Object) -> str:
    """Return the id of the VM that was chosen as the bastion of a VM; empty if none was."""
    return msgspec.json.decode(vm.labels, type=_VmLabels).bastion


async def pin_host_key(tx: Tx, vm: Object, key: str) -> str:
    """Pin a host key that the machine of a VM has shown, unless the VM has one; returns the key that counts."""
    uow = UnitOfWork(tx)
    await uow.load([vm.key])
    record = uow.objects.get(vm.key)
    if record is None or record.removed or vm_of(record).uid != vm_of(vm).uid:  # another VM may have got its name
        raise NotFound(*vm.key)
    known = known_host_key(record)
    if known:
        return known
    await _set_label(uow, record, HOST_KEY_LABEL, key, "", "host key pinned", fingerprint(key))
    return key


async def forget_host_key(tx: Tx, vm: Key, actor: str, who: str) -> str:
    """Remove the pinned host key of a VM; returns it."""
    uow = UnitOfWork(tx)
    await uow.load([vm])
    record = uow.objects.get(vm)
    if record is None or record.removed:
        raise NotFound(*vm)
    pinned = msgspec.json.decode(record.labels, type=_VmLabels).host_key
    if pinned:
        await _set_label(uow, record, HOST_KEY_LABEL, "", who, "host key forgotten", fingerprint(pinned), actor)
    return pinned


async def set_bastion(tx: Tx, vm: Key, bastion: str, actor: str, who: str) -> None:
    """Choose the bastion of a VM; empty: it is chosen again each time."""
    uow = UnitOfWork(tx)
    await uow.load([vm])
    record = uow.objects.get(vm)
    if record is None or record.removed:
        raise NotFound(*vm)
    await _set_label(uow, record, BASTION_LABEL, bastion, who, "bastion chosen", bastion or "none", actor)


async def _set_label(
    uow: UnitOfWork, record: Object, name: str, value: str, who: str, event: str, reason: str, actor: str = CONTROLLER
) -> None:
    labels: dict[str, str] = msgspec.json.decode(record.labels)
    labels = {key: label for key, label in labels.items() if key != name} | ({name: value} if value else {})
    text = msgspec.json.encode(labels, order="sorted").decode()
    uow.save_object(record.key, replace(record, labels=text, version=uow.next_version(record.key)))
    journal(uow, record, None, actor, who, event, reason=reason)
    await uow.apply()
