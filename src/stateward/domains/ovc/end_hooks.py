"""What follows when an action has ended, in the very step in which it does, however it ended.

disks        those that the VM's action took along come to rest with it
books        say where a VM is now, which disks it has, who stands on what
recycle bin  a stay begins or ends, and with it the timer that will end it for good
queues       one that was being stopped, and is empty now, is gone
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from stateward.domains.ovc.lifecycle import CLOUDSPACE, DISK, IMAGE, NODE, VM, DiskState, VmState
from stateward.domains.ovc.model import (
    DiskSpec,
    NodeFacts,
    Spot,
    VmSeen,
    VmSpec,
    box_seen,
    disk_seen,
    image_seen,
    machine_of,
    new_disk_of,
    node_seen,
    seen_of,
    spec_of,
    vm_seen,
)
from stateward.domains.ovc.object_updates import let_go, put, put_seen
from stateward.domains.ovc.recycle_bin import settle_stay
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import CONTROLLER
from stateward.store.changes import Ended
from stateward.store.records import Key, Object, Operation, Status

POWERED = ("deploy", "start")
UNPOWERED = ("stop", "delete", "destroy")
CLEARING = (*POWERED, *UNPOWERED)
"""The actions that leave nothing behind of what has failed before."""

CLEAN = '"clean"'
"""The result of a migration that has failed and left nothing behind."""


async def after(uow: UnitOfWork, operation: Operation, ended: Ended) -> None:
    """Do what follows from the end of an operation of any kind."""
    found = uow.objects[Key(operation.ns, operation.object)]
    queue = Key(found.ns, found.queue)  # before a disk leaves its VM
    of_its_kind = FOLLOWING.get(found.kind)
    if of_its_kind is not None:
        await of_its_kind(uow, operation, ended)
    await settle_stay(uow, uow.objects[found.key])
    _queue_gone(uow, queue)


def _queue_gone(uow: UnitOfWork, queue: Key) -> None:
    host = uow.objects[queue]
    seen = seen_of(host)
    if seen.closing and not uow.queue(queue):
        put_seen(uow, host, replace(seen, closing=False))


# --- VMs -------------------------------------------------------------------------------------------------------------


async def _after_vm(uow: UnitOfWork, operation: Operation, ended: Ended) -> None:
    key, good = Key(operation.ns, operation.object), ended.status is Status.SUCCEEDED
    disks = await _let_disks_go(uow, operation, ended)
    found = uow.objects[key]
    seen = _moved(uow, operation, ended) if operation.hidden else _powered(operation, vm_seen(found), good=good)
    put_seen(uow, found, replace(seen, disks=_disks_of(seen, disks)))
    if good and operation.action == "destroy":
        await _nobody_stands_on(uow, uow.objects[key])


async def _let_disks_go(uow: UnitOfWork, operation: Operation, ended: Ended) -> list[Object]:
    """Bring the disks to rest that the operation took along; returns them."""
    ns, seen = operation.ns, vm_seen(uow.objects[Key(operation.ns, operation.object)])
    named = str(msgspec.json.decode(operation.args).get("disk", ""))
    keys = [Key(ns, id_) for id_ in {*seen.disks, new_disk_of(operation.id), named} if id_]
    await uow.load(keys)
    held = [one for key in keys if (one := uow.objects.get(key)) is not None and one.op == operation.id]
    return [await _let_go(uow, one, operation, ended) for one in held]


async def _let_go(uow: UnitOfWork, disk: Object, operation: Operation, ended: Ended) -> Object:
    rested = let_go(uow, disk, operation, ended)
    if rested.state == DiskState.CREATED or (rested.state == DiskState.ERROR and operation.action == "add disk"):
        rested = _on_its_own(uow, rested)
    await settle_stay(uow, rested)
    return uow.objects[rested.key]


def _on_its_own(uow: UnitOfWork, disk: Object) -> Object:
    """Part a disk from its VM; a boot disk stays with it whatever happens."""
    spec, seen = spec_of(disk, DiskSpec), disk_seen(disk)
    if spec.boot:
        return disk
    alone = put(uow, disk, parent=spec.account, queue=disk.id)
    return put_seen(uow, alone, replace(seen, vm="", slot=0))


def _disks_of(seen: VmSeen, changed: list[Object]) -> dict[str, int]:
    """Return the disks of a VM after some of them have changed."""
    disks = dict(seen.disks)
    for disk in changed:
        known = disk_seen(disk)
        if known.vm and disk.state != DiskState.DESTROYED:
            disks[disk.id] = known.slot
        else:
            disks.pop(disk.id, None)
    return disks


def _powered(operation: Operation, seen: VmSeen, *, good: bool) -> VmSeen:
    """Return what is known of a VM after an action on it: whether it has power, and what may be left of a failure."""
    if good and operation.action in CLEARING:
        seen = replace(seen, leftovers=())
    if good and operation.action in UNPOWERED:
        gone = operation.action != "stop"
        return replace(seen, machine="", node="" if gone else seen.node)
    if not good and operation.action in POWERED and seen.machine:
        left = Spot(seen.node, seen.machine)
        return replace(seen, machine="", leftovers=(*seen.leftovers, left))
    return seen


def _moved(uow: UnitOfWork, operation: Operation, ended: Ended) -> VmSeen:
    """Return what is known of a VM after a migration, which shows nowhere else."""
    found = uow.objects[Key(operation.ns, operation.object)]
    seen = vm_seen(found)
    there, cold = Spot(seen.to, machine_of(found.id, operation.id)), operation.origin == VmState.HALTED
    if ended.status is not Status.SUCCEEDED:
        left = () if cold or ended.result == CLEAN else (there,)
        return replace(seen, to="", leftovers=(*seen.leftovers, *left))
    journal(uow, found, operation.id, CONTROLLER, operation.who, "migrated", reason=f"{seen.node} to {seen.to}")
    return replace(seen, node=there.node, machine=seen.machine if cold else there.machine, to="")


async def _nobody_stands_on(uow: UnitOfWork, found: Object) -> None:
    """Take a VM that is destroyed off what it stood on: its image, and the VM that it was cloned from."""
    spec = spec_of(found, VmSpec)
    keys = Key(found.ns, spec.image), Key(found.ns, spec.clone_of)
    await uow.load([key for key in keys if key.id])
    image, source = (uow.objects.get(key) for key in keys)
    if image is not None and image.kind == IMAGE.kind:
        used = image_seen(image)
        put_seen(uow, image, replace(used, users=max(0, used.users - 1)))
    if source is not None and source.kind == VM.kind:
        seen = vm_seen(source)
        put_seen(uow, source, replace(seen, clones=tuple(one for one in seen.clones if one != found.id)))


# --- firewalls -------------------------------------------------------------------------------------------------------


async def _after_box(uow: UnitOfWork, operation: Operation, ended: Ended) -> None:
    """Follow what became of a cloudspace's firewall: where it is, or what may be left of one that did not come up."""
    found, good = uow.objects[Key(operation.ns, operation.object)], ended.status is Status.SUCCEEDED
    seen, ours = box_seen(found), machine_of(operation.object, operation.id)
    if operation.hidden:
        there = Spot(seen.to, ours)
        if good:
            seen = replace(seen, node=seen.to, machine=ours if seen.to else "", leftovers=())
        elif seen.to:
            seen = replace(seen, leftovers=(*seen.leftovers, there))
        seen = replace(seen, to="")
    elif good and operation.action in ("pause", "delete", "destroy"):
        seen = replace(seen, node="", machine="", leftovers=())
    elif good and operation.action in ("deploy", "restore", "resume", "reset"):
        seen = replace(seen, leftovers=())
    elif not good and seen.machine == ours:
        seen = replace(seen, node="", machine="", leftovers=(*seen.leftovers, Spot(seen.node, ours)))
    put_seen(uow, found, seen)


# --- disks and nodes -------------------------------------------------------------------------------------------------


async def _after_disk(uow: UnitOfWork, operation: Operation, ended: Ended) -> None:  # noqa: ARG001 - as all of them
    """Follow what was done to a disk alone: one that is destroyed, or was made anew, is no longer its VM's."""
    disk = uow.objects[Key(operation.ns, operation.object)]
    vm = disk_seen(disk).vm
    if not vm or disk.state not in (DiskState.DESTROYED, DiskState.CREATED):
        return
    await uow.load([Key(disk.ns, vm)])
    host = uow.objects[Key(disk.ns, vm)]
    seen = vm_seen(host)
    put_seen(uow, host, replace(seen, disks={id_: slot for id_, slot in seen.disks.items() if id_ != disk.id}))
    _on_its_own(uow, disk)


async def _after_node(uow: UnitOfWork, operation: Operation, ended: Ended) -> None:
    found = uow.objects[Key(operation.ns, operation.object)]
    if ended.result is None:
        return
    facts = msgspec.json.decode(ended.result, type=NodeFacts)
    put_seen(uow, found, replace(node_seen(found), report=facts.report, away=facts.away))


FOLLOWING: dict[str, Callable[[UnitOfWork, Operation, Ended], Awaitable[Any]]] = {
    VM.kind: _after_vm,
    CLOUDSPACE.kind: _after_box,
    DISK.kind: _after_disk,
    NODE.kind: _after_node,
}
