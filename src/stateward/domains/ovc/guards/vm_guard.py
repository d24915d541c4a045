"""The guard of VMs: conditions on related objects, and the disks that change together with the VM."""

from collections.abc import Awaitable, Callable, Iterable

from msgspec.structs import replace

from stateward.domains.ovc import errors, lifecycle, model
from stateward.domains.ovc.guards import common_guard
from stateward.domains.ovc.guards.node_guard import choose_node, requested_node
from stateward.domains.ovc.object_updates import define_disk, disk_move, hold_disk, update_seen
from stateward.drivers.process.shell_machine import size_of
from stateward.drivers.qemu.guest_images import GUEST_BOARDS, LEAST_MIB, firmware_problem
from stateward.drivers.qemu.hardware import HOST_ARCH
from stateward.engine import Request
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.lifecycle import CONTROLLER, USER
from stateward.store.records import Key, Object, to_json

Rule = Callable[[UnitOfWork, Request, Object], Awaitable[Request | None]]


OUT = frozenset({lifecycle.OvcVmState.DELETED, lifecycle.OvcVmState.DESTROYED})


async def guard_vm(uow: UnitOfWork, request: Request, vm: Object) -> Request | None:
    """Check a request about a VM, and change the related objects."""
    vm = common_guard.check_request(uow, request, vm)
    rule = RULES.get(request.action)
    return None if rule is None else await rule(uow, request, vm)


def vm_lock_set(request: Request, vm: Object | None) -> Iterable[Key]:
    """Return the keys of the objects that the guard of a VM reads or changes."""
    if request.action == "define":
        try:
            spec = model.parse_spec(request.spec, model.OvcVmSpec)
        except BadInput:
            return ()
        names = {spec.cloudspace, spec.account, spec.image, spec.clone_of}
    elif vm is None or vm.kind != lifecycle.VM.kind:
        return ()
    else:
        spec, seen = model.read_spec(vm, model.OvcVmSpec), model.vm_seen(vm)
        match request.action:
            case "deploy" | "start":
                names = {spec.cloudspace, spec.account, spec.clone_of, *seen.disks, *seen.clones}
            case "delete" | "destroy":
                names = {*seen.disks, *seen.clones}
            case "restore":
                names = {spec.cloudspace, spec.account, *seen.disks}
            case "detach disk":
                names = {str(common_guard.request_args(request).get("disk", ""))}
            case "attach disk" | "add disk" | "resume" | "reboot" | "reset" | "shows on":
                names = {spec.cloudspace, spec.account, str(common_guard.request_args(request).get("disk", ""))}
            case _:
                names = set()
    return [Key(request.ns, name) for name in names if name]


# --- creation --------------------------------------------------------------------------------------------------------


async def _define(uow: UnitOfWork, request: Request, vm: Object) -> Request | None:
    spec, ns = model.parse_spec(request.spec, model.OvcVmSpec), request.ns
    if size_of(spec.size) is None:
        raise BadInput("size", spec.size, "a size: tiny, small, medium, large, or such as 2c512m")
    if vm.parent != spec.cloudspace or vm.queue != vm.id:
        raise BadInput("parent", vm.parent, f"the VM's cloudspace, {spec.cloudspace}")
    box = common_guard.require_state(uow, ns, spec.cloudspace, lifecycle.CLOUDSPACE, lifecycle.CloudspaceState.DEPLOYED)
    if box.parent != spec.account:
        raise errors.OtherAccount(kind="cloudspace", id=box.id, other=spec.account)
    common_guard.require_state(uow, ns, spec.account, lifecycle.ACCOUNT, lifecycle.AccountState.CONFIRMED)
    image = common_guard.require_state(uow, ns, spec.image, lifecycle.IMAGE, lifecycle.ImageState.CREATED)
    _require_same_account(image, image.parent or "", spec.account)
    source = _source(uow, ns, spec)
    await common_guard.require_free_name(uow, ns, lifecycle.VM, spec.name, parent=spec.cloudspace)
    if source is not None:
        seen = model.vm_seen(source)
        update_seen(uow, source, replace(seen, clones=(*seen.clones, vm.id)))
    used = model.image_seen(image)
    update_seen(uow, image, replace(used, users=used.users + 1))
    boot = model.boot_disk_id(vm.id)
    define_disk(uow, request, boot, model.DiskSpec(f"{spec.name}-boot", spec.account, spec.gib, boot=True), vm.id, 0)
    return replace(request, seen=to_json(model.OvcVmSeen(disks={boot: 0})))


def _source(uow: UnitOfWork, ns: str, spec: model.OvcVmSpec) -> Object | None:
    """Return the VM that is cloned; it must not run while its disk becomes the base of both."""
    if not spec.clone_of:
        return None
    source = common_guard.require_state(uow, ns, spec.clone_of, lifecycle.VM, lifecycle.OvcVmState.HALTED)
    of = model.read_spec(source, model.OvcVmSpec)
    _require_same_account(source, of.account, spec.account)
    if of.image != spec.image:
        raise BadInput("image", spec.image, f"the image of the VM that is cloned, {of.image}")
    return source


def _require_same_account(record: Object, account: str, other: str) -> None:
    if account != other:
        raise errors.OtherAccount(kind=model.short_kind(record.kind), id=record.id, other=other)


async def _require_parents_enabled(uow: UnitOfWork, request: Request, vm: Object) -> Request | None:
    spec = model.read_spec(vm, model.OvcVmSpec)
    common_guard.require_enabled(uow, request, spec.account, spec.cloudspace)
    return None


async def _deploy(uow: UnitOfWork, request: Request, vm: Object) -> Request | None:
    boot, spec = (
        common_guard.require_object(uow, request.ns, model.boot_disk_id(vm.id), lifecycle.DISK),
        model.read_spec(vm, model.OvcVmSpec),
    )
    if spec.clone_of:
        common_guard.require_state(uow, request.ns, spec.clone_of, lifecycle.VM, lifecycle.OvcVmState.HALTED)
    move = None if boot.state == lifecycle.DiskState.ASSIGNED else disk_move(uow, boot, "assign")
    await _start(uow, request, vm)
    if move is not None:
        hold_disk(uow, request, boot, move)
    return None


async def _start(uow: UnitOfWork, request: Request, vm: Object) -> Request | None:
    # Refuse to start a VM below a disabled parent; the controller may, because it only restores what there was.
    spec = model.read_spec(vm, model.OvcVmSpec)
    if request.actor != CONTROLLER:
        common_guard.require_state(
            uow, request.ns, spec.cloudspace, lifecycle.CLOUDSPACE, lifecycle.CloudspaceState.DEPLOYED
        )
        common_guard.require_state(uow, request.ns, spec.account, lifecycle.ACCOUNT, lifecycle.AccountState.CONFIRMED)
    seen, node = model.vm_seen(vm), str(common_guard.request_args(request).get("node", ""))
    for clone in (common_guard.require_object(uow, request.ns, id_, lifecycle.VM) for id_ in seen.clones):
        if clone.state == lifecycle.OvcVmState.DEPLOYING:  # the clone is being created from this VM's disk
            raise errors.HasClones(id=vm.id, clones=clone.id)
    if node and request.actor == USER:
        raise errors.NodeIsInternal(id=vm.id)
    if node:
        node = await requested_node(uow, vm, node, back=request.actor == CONTROLLER)
    else:
        node = await choose_node(uow, vm, present=seen.node)
    await _require_bootable(uow, vm, node)
    update_seen(uow, vm, replace(seen, node=node, machine=model.machine_key(vm.id, request.op)))
    return None


async def _require_bootable(uow: UnitOfWork, vm: Object, node: str) -> None:
    """Refuse a VM from an image of the library if its node could boot only the built-in guest, or not hold it."""
    spec = model.read_spec(vm, model.OvcVmSpec)
    image, place = await uow.peek([Key(vm.ns, spec.image), Key(vm.ns, node)])
    runs_on = None if place is None else model.read_spec(place, model.NodeSpec)
    if image is None or runs_on is None or model.read_spec(image, model.ImageSpec).source == model.BUILT_IN_IMAGE:
        return
    arch = runs_on.options.get("arch", HOST_ARCH)
    if runs_on.driver != "qemu" or not GUEST_BOARDS[arch].firmware:
        return
    if why := firmware_problem(arch):
        raise BadInput("image", spec.image, f"one with the source {model.BUILT_IN_IMAGE!r}: {why}")
    size = size_of(spec.size)
    if size is None or size.mib < LEAST_MIB:
        raise BadInput(
            "size", spec.size, f"one with at least {LEAST_MIB} MiB, such as medium, for an image of the library"
        )


# --- removal ---------------------------------------------------------------------------------------------------------


def _require_no_clones(uow: UnitOfWork, vm: Object, *, living: bool) -> None:
    """Refuse while there are clones; with `living`, clones in the recycle bin do not count."""
    clones = [uow.objects[Key(vm.ns, id_)] for id_ in model.vm_seen(vm).clones]
    standing = [clone.id for clone in clones if not living or clone.state not in OUT]
    if standing:
        raise errors.HasClones(id=vm.id, clones=", ".join(standing))


async def _delete(uow: UnitOfWork, request: Request, vm: Object) -> Request | None:
    _require_no_clones(uow, vm, living=True)
    disks = [common_guard.require_object(uow, request.ns, id_, lifecycle.DISK) for id_ in model.vm_seen(vm).disks]
    taken = [(disk, disk_move(uow, disk, "delete")) for disk in disks if disk.state not in NOT_TAKEN_ALONG]
    for disk, move in taken:
        hold_disk(uow, request, disk, move, bin=model.BinEntry(uow.now, vm.id))
    common_guard.put_in_bin(uow, request, vm)
    return None


NOT_TAKEN_ALONG = frozenset({lifecycle.DiskState.TOBEDELETED, lifecycle.DiskState.ERROR, lifecycle.DiskState.MODELED})
"""States of disks that a deleted VM does not take along: in the recycle bin already, or incomplete."""


async def _restore(uow: UnitOfWork, request: Request, vm: Object) -> Request | None:
    spec, seen = model.read_spec(vm, model.OvcVmSpec), model.vm_seen(vm)
    for id_, kind in ((spec.cloudspace, lifecycle.CLOUDSPACE), (spec.account, lifecycle.ACCOUNT)):
        common_guard.require_parent_not_binned(uow, request, id_, kind)
    disks = [common_guard.require_object(uow, request.ns, id_, lifecycle.DISK) for id_ in seen.disks]
    back = [disk for disk in disks if (stay := model.disk_seen(disk).bin) is not None and stay.along == vm.id]
    for disk, move in [(disk, disk_move(uow, disk, "restore")) for disk in back]:
        hold_disk(uow, request, disk, move)
    return None


async def _destroy(uow: UnitOfWork, request: Request, vm: Object) -> Request | None:
    _require_no_clones(uow, vm, living=False)
    disks = [common_guard.require_object(uow, request.ns, id_, lifecycle.DISK) for id_ in model.vm_seen(vm).disks]
    for disk, move in [(disk, disk_move(uow, disk, "destroy")) for disk in disks]:
        hold_disk(uow, request, disk, move)
    return None


# --- disks -----------------------------------------------------------------------------------------------------------


def _free_slot(vm: Object, seen: model.OvcVmSeen) -> int:
    if len(seen.disks) >= model.MAX_DISKS:
        raise errors.TooManyDisks(id=vm.id, most=model.MAX_DISKS)
    return next(slot for slot in range(model.MAX_DISKS) if slot not in seen.disks.values())


async def _add_disk(uow: UnitOfWork, request: Request, vm: Object) -> Request | None:
    await _require_parents_enabled(uow, request, vm)
    args, account = common_guard.request_args(request), model.read_spec(vm, model.OvcVmSpec).account
    spec = model.parse_spec(
        to_json({"name": args.get("name", ""), "gib": args.get("gib", 1), "account": account}), model.DiskSpec
    )
    slot = _free_slot(vm, model.vm_seen(vm))
    await common_guard.require_free_name(uow, request.ns, lifecycle.DISK, spec.name, account=account)
    disk = define_disk(uow, request, model.added_disk_id(request.op), spec, vm.id, slot)
    hold_disk(uow, request, disk, disk_move(uow, disk, "assign"))
    return None


async def _attach_disk(uow: UnitOfWork, request: Request, vm: Object) -> Request | None:
    await _require_parents_enabled(uow, request, vm)
    disk = common_guard.require_object(
        uow, request.ns, str(common_guard.request_args(request).get("disk", "")), lifecycle.DISK
    )
    spec = model.read_spec(disk, model.DiskSpec)
    _require_same_account(disk, spec.account, model.read_spec(vm, model.OvcVmSpec).account)
    _refuse_boot_disk(disk, spec)
    slot = _free_slot(vm, model.vm_seen(vm))
    held = hold_disk(uow, request, disk, disk_move(uow, disk, "attach"), vm=vm.id, slot=slot)
    uow.save_object(held.key, replace(held, parent=vm.id, queue=vm.id))
    return None


async def _detach_disk(uow: UnitOfWork, request: Request, vm: Object) -> Request | None:
    disk = common_guard.require_object(
        uow, request.ns, str(common_guard.request_args(request).get("disk", "")), lifecycle.DISK
    )
    if disk.id not in model.vm_seen(vm).disks:
        raise errors.NotAttached(disk=disk.id, id=vm.id)
    _refuse_boot_disk(disk, model.read_spec(disk, model.DiskSpec))
    hold_disk(uow, request, disk, disk_move(uow, disk, "detach"))
    return None


def _refuse_boot_disk(disk: Object, spec: model.DiskSpec) -> None:
    if spec.boot:
        raise errors.BootDisk(id=disk.id, vm=model.disk_seen(disk).vm)


# --- migration -------------------------------------------------------------------------------------------------------


async def _migrate(uow: UnitOfWork, request: Request, vm: Object) -> Request | None:
    seen, node = model.vm_seen(vm), str(common_guard.request_args(request).get("node", ""))
    if node and node == seen.node:
        raise errors.AlreadyOnNode(id=vm.id, node=node)
    if node:
        node = await requested_node(uow, vm, node, back=request.actor == CONTROLLER)
    else:
        node = await choose_node(uow, vm, avoid=seen.node)
    update_seen(uow, vm, replace(seen, to=node))
    return None


# --- drift -----------------------------------------------------------------------------------------------------------


async def _apply_observed(uow: UnitOfWork, request: Request, vm: Object) -> Request | None:
    """Apply the power that a node shows of a VM at rest; a machine that went off is stopped for certain later."""
    if uow.queue(Key(vm.ns, vm.queue)):
        raise errors.NotAtRest(kind=model.short_kind(vm.kind), id=vm.id)
    seen = model.vm_seen(vm)
    if request.action == "shows off" and seen.machine:
        lost = model.PlacedMachine(seen.node, seen.machine)
        update_seen(uow, vm, replace(seen, machine="", stale_machines=(*seen.stale_machines, lost)))
    return None


RULES: dict[str, Rule] = {
    "define": _define,
    "deploy": _deploy,
    "start": _start,
    "resume": _require_parents_enabled,
    "reboot": _require_parents_enabled,
    "reset": _require_parents_enabled,
    "delete": _delete,
    "restore": _restore,
    "destroy": _destroy,
    "add disk": _add_disk,
    "attach disk": _attach_disk,
    "detach disk": _detach_disk,
    "migrate": _migrate,
    "shows off": _apply_observed,
    "shows frozen": _apply_observed,
    "shows on": _apply_observed,
}
