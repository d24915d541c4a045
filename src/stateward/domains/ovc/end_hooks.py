"""End hooks of the ovc kinds, run in the transaction that ends an operation, however it ended.

disks        that the VM's operation held are released with it
records      say where a VM runs, which disks it has, which images and clones depend on it
recycle bin  an entry begins or ends, with the timer that destroys the object
queues       one that was being stopped and is empty now takes requests again
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from stateward.domains.ovc import model
from stateward.domains.ovc.lifecycle import CLOUDSPACE, DISK, IMAGE, NODE, VM, DiskState, OvcVmState
from stateward.domains.ovc.object_updates import release_disk, update_object, update_seen
from stateward.domains.ovc.recycle_bin import update_bin_entry
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import CONTROLLER
from stateward.store.changes import Ended
from stateward.store.records import Key, Object, Operation, Status

POWERED = ("deploy", "start")
UNPOWERED = ("stop", "delete", "destroy")
CLEARING = (*POWERED, *UNPOWERED)
"""The actions that stop all stale machines of earlier failures."""

DEPARTURES: dict[str, model.VmAction] = {"migrate": "move", "stop": "stop"}
"""How a VM leaves a node in maintenance, by the action on the VM."""

CLEAN_RESULT = '"clean"'
"""The result of a failed migration that left no machine behind."""


async def on_end(uow: UnitOfWork, operation: Operation, ended: Ended) -> None:
    """Run the end hook of an operation of any kind of the domain."""
    record = uow.objects[Key(operation.ns, operation.object)]
    queue = Key(record.ns, record.queue)  # read before a disk leaves its VM
    of_its_kind = END_HOOKS.get(record.kind)
    if of_its_kind is not None:
        await of_its_kind(uow, operation, ended)
    await update_bin_entry(uow, uow.objects[record.key])
    host = uow.objects[queue]
    seen = model.read_seen(host)
    if seen.closing and not uow.queue(queue):
        update_seen(uow, host, replace(seen, closing=False))


# --- VMs -------------------------------------------------------------------------------------------------------------


async def _on_vm_end(uow: UnitOfWork, operation: Operation, ended: Ended) -> None:
    key, good = Key(operation.ns, operation.object), ended.status is Status.SUCCEEDED
    ns, seen = operation.ns, model.vm_seen(uow.objects[key])
    named = str(msgspec.json.decode(operation.args).get("disk", ""))
    keys = [Key(ns, id_) for id_ in {*seen.disks, model.added_disk_id(operation.id), named} if id_]
    await uow.load(keys)
    held = [disk for key in keys if (disk := uow.objects.get(key)) is not None and disk.op == operation.id]
    for disk in held:
        rested = release_disk(uow, disk, operation, ended)
        if rested.state == DiskState.CREATED or (rested.state == DiskState.ERROR and operation.action == "add disk"):
            rested = _detach_from_vm(uow, rested)
        await update_bin_entry(uow, rested)
    disks = [uow.objects[disk.key] for disk in held]
    vm = uow.objects[key]
    seen = (
        _seen_after_migration(uow, operation, ended)
        if operation.hidden
        else _seen_after_power(operation, model.vm_seen(vm), good=good)
    )
    update_seen(uow, vm, replace(seen, disks=_updated_disks(seen, disks)))
    if good and operation.action == "destroy":
        await _drop_references(uow, uow.objects[key])
    if good and operation.parent is not None and operation.action in DEPARTURES:
        await uow.load_operations([Key(operation.ns, operation.parent)])
        maintenance = uow.operations.get(Key(operation.ns, operation.parent))
        if maintenance is None or maintenance.action != "maintenance":
            return
        key = Key(operation.ns, maintenance.object)
        await uow.load([key])
        node = uow.objects[key]
        was, departed = model.node_seen(node), model.DepartedVm(DEPARTURES[operation.action], operation.origin)
        update_seen(uow, node, replace(was, away={**was.away, operation.object: departed}))


def _detach_from_vm(uow: UnitOfWork, disk: Object) -> Object:
    """Detach a disk's record from its VM; a boot disk always stays with its VM."""
    spec, seen = model.read_spec(disk, model.DiskSpec), model.disk_seen(disk)
    if spec.boot:
        return disk
    alone = update_object(uow, disk, parent=spec.account, queue=disk.id)
    return update_seen(uow, alone, replace(seen, vm="", slot=0))


def _updated_disks(seen: model.OvcVmSeen, changed: list[Object]) -> dict[str, int]:
    """Return the disks of a VM, with their slots, after some of them changed."""
    disks = dict(seen.disks)
    for disk in changed:
        disk_record = model.disk_seen(disk)
        if disk_record.vm and disk.state != DiskState.DESTROYED:
            disks[disk.id] = disk_record.slot
        else:
            disks.pop(disk.id, None)
    return disks


def _seen_after_power(operation: Operation, seen: model.OvcVmSeen, *, good: bool) -> model.OvcVmSeen:
    """Return the record of a VM after an action: its machine, and stale machines of a failure."""
    if good and operation.action in CLEARING:
        seen = replace(seen, stale_machines=())
    if good and operation.action in UNPOWERED:
        gone = operation.action != "stop"
        return replace(seen, machine="", node="" if gone else seen.node)
    if not good and operation.action in POWERED and seen.machine:
        left = model.PlacedMachine(seen.node, seen.machine)
        return replace(seen, machine="", stale_machines=(*seen.stale_machines, left))
    return seen


def _seen_after_migration(uow: UnitOfWork, operation: Operation, ended: Ended) -> model.OvcVmSeen:
    """Return the record of a VM after a migration; its state does not change."""
    vm = uow.objects[Key(operation.ns, operation.object)]
    seen = model.vm_seen(vm)
    there, cold = (
        model.PlacedMachine(seen.to, model.machine_key(vm.id, operation.id)),
        operation.origin == OvcVmState.HALTED,
    )
    if ended.status is not Status.SUCCEEDED:
        left = () if cold or ended.result == CLEAN_RESULT else (there,)
        return replace(seen, to="", stale_machines=(*seen.stale_machines, *left))
    journal(uow, vm, operation.id, CONTROLLER, operation.who, "migrated", reason=f"{seen.node} to {seen.to}")
    return replace(seen, node=there.node, machine=seen.machine if cold else there.machine, to="")


async def _drop_references(uow: UnitOfWork, vm: Object) -> None:
    """Remove a destroyed VM from the users of its image and the clones of its source."""
    spec = model.read_spec(vm, model.OvcVmSpec)
    keys = Key(vm.ns, spec.image), Key(vm.ns, spec.clone_of)
    await uow.load([key for key in keys if key.id])
    image, source = (uow.objects.get(key) for key in keys)
    if image is not None and image.kind == IMAGE.kind:
        used = model.image_seen(image)
        update_seen(uow, image, replace(used, users=max(0, used.users - 1)))
    if source is not None and source.kind == VM.kind:
        seen = model.vm_seen(source)
        update_seen(uow, source, replace(seen, clones=tuple(clone for clone in seen.clones if clone != vm.id)))


# --- firewalls -------------------------------------------------------------------------------------------------------


async def _on_cloudspace_end(uow: UnitOfWork, operation: Operation, ended: Ended) -> None:
    """Update the record of a cloudspace's firewall: its machine, and stale machines of a failure."""
    cloudspace, good = uow.objects[Key(operation.ns, operation.object)], ended.status is Status.SUCCEEDED
    seen, ours = model.cloudspace_seen(cloudspace), model.machine_key(operation.object, operation.id)
    if operation.hidden:
        there = model.PlacedMachine(seen.to, ours)
        if good:
            seen = replace(seen, node=seen.to, machine=ours if seen.to else "", stale_machines=())
        elif seen.to:
            seen = replace(seen, stale_machines=(*seen.stale_machines, there))
        seen = replace(seen, to="")
    elif good and operation.action in ("pause", "delete", "destroy"):
        seen = replace(seen, node="", machine="", stale_machines=())
    elif good and operation.action in ("deploy", "restore", "resume", "reset"):
        seen = replace(seen, stale_machines=())
    elif not good and seen.machine == ours:
        seen = replace(
            seen, node="", machine="", stale_machines=(*seen.stale_machines, model.PlacedMachine(seen.node, ours))
        )
    update_seen(uow, cloudspace, seen)


# --- disks and nodes -------------------------------------------------------------------------------------------------


async def _on_disk_end(uow: UnitOfWork, operation: Operation, ended: Ended) -> None:  # noqa: ARG001 - as all of them
    """Detach a disk that was destroyed, or created again, from its VM."""
    disk = uow.objects[Key(operation.ns, operation.object)]
    vm = model.disk_seen(disk).vm
    if not vm or disk.state not in (DiskState.DESTROYED, DiskState.CREATED):
        return
    await uow.load([Key(disk.ns, vm)])
    host = uow.objects[Key(disk.ns, vm)]
    seen = model.vm_seen(host)
    update_seen(uow, host, replace(seen, disks={id_: slot for id_, slot in seen.disks.items() if id_ != disk.id}))
    _detach_from_vm(uow, disk)


async def _on_node_end(uow: UnitOfWork, operation: Operation, ended: Ended) -> None:
    node = uow.objects[Key(operation.ns, operation.object)]
    if ended.result is None:
        return
    facts = msgspec.json.decode(ended.result, type=model.NodeFacts)
    seen = model.node_seen(node)
    away = seen.away if operation.action == "maintenance" else {}
    update_seen(uow, node, replace(seen, report=facts.report, away=away))


END_HOOKS: dict[str, Callable[[UnitOfWork, Operation, Ended], Awaitable[Any]]] = {
    VM.kind: _on_vm_end,
    CLOUDSPACE.kind: _on_cloudspace_end,
    DISK.kind: _on_disk_end,
    NODE.kind: _on_node_end,
}
