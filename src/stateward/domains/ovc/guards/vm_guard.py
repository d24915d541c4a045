"""The rules of VMs: what they need around them, and the disks that they take along."""

from collections.abc import Awaitable, Callable, Iterable

from msgspec.structs import replace

from stateward.domains.ovc.errors import (
    Already,
    BootDisk,
    HasClones,
    NodeIsInternal,
    NotAtRest,
    NotAttached,
    OtherAccount,
    TooManyDisks,
)
from stateward.domains.ovc.guards.common_guard import args_of, heed, refuse_below_bin, require_enabled
from stateward.domains.ovc.guards.node_guard import some_node, wanted_node
from stateward.domains.ovc.lifecycle import (
    ACCOUNT,
    CLOUDSPACE,
    DISK,
    IMAGE,
    VM,
    AccountState,
    CloudspaceState,
    DiskState,
    ImageState,
    VmState,
)
from stateward.domains.ovc.model import (
    MOST_DISKS,
    DiskSpec,
    Spot,
    Stay,
    VmSeen,
    VmSpec,
    boot_disk_of,
    disk_seen,
    image_seen,
    machine_of,
    new_disk_of,
    new_spec,
    short,
    spec_of,
    vm_seen,
)
from stateward.domains.ovc.object_updates import hold, may, new_disk, put_seen
from stateward.domains.ovc.queries import known, ready, refuse_taken
from stateward.drivers.process.shell_machine import size_of
from stateward.engine import Request
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.lifecycle import CONTROLLER, USER
from stateward.store.records import Key, Object, to_json

Rule = Callable[[UnitOfWork, Request, Object], Awaitable[Request | None]]


OUT = frozenset({VmState.DELETED, VmState.DESTROYED})


async def guard_vm(uow: UnitOfWork, request: Request, found: Object) -> Request | None:
    """Check a request about a VM, and carry out what it means for others."""
    found = heed(uow, request, found)
    rule = RULES.get(request.action)
    return None if rule is None else await rule(uow, request, found)


def company_of_vm(request: Request, found: Object | None) -> Iterable[Key]:
    """Return the objects that a request about a VM looks at."""
    if request.action == "define":
        try:
            spec = new_spec(request.spec, VmSpec)
        except BadInput:
            return ()
        names = {spec.cloudspace, spec.account, spec.image, spec.clone_of}
    elif found is None or found.kind != VM.kind:
        return ()
    else:
        names = _around(request, found)
    return [Key(request.ns, name) for name in names if name]


def _around(request: Request, found: Object) -> set[str]:
    spec, seen = spec_of(found, VmSpec), vm_seen(found)
    match request.action:
        case "deploy" | "start":
            return {spec.cloudspace, spec.account, spec.clone_of, *seen.disks, *seen.clones}
        case "delete" | "destroy":
            return {*seen.disks, *seen.clones}
        case "restore":
            return {spec.cloudspace, spec.account, *seen.disks}
        case "detach disk":
            return {str(args_of(request).get("disk", ""))}
        case "attach disk" | "add disk" | "resume" | "reboot" | "reset":
            return {spec.cloudspace, spec.account, str(args_of(request).get("disk", ""))}
        case _:
            return set()


# --- coming ----------------------------------------------------------------------------------------------------------


async def _define(uow: UnitOfWork, request: Request, found: Object) -> Request | None:
    spec, ns = new_spec(request.spec, VmSpec), request.ns
    if size_of(spec.size) is None:
        raise BadInput("size", spec.size, "a size: tiny, small, medium, large, or such as 2c512m")
    if found.parent != spec.cloudspace or found.queue != found.id:
        raise BadInput("parent", found.parent, f"the VM's cloudspace, {spec.cloudspace}")
    box = ready(uow, ns, spec.cloudspace, CLOUDSPACE, CloudspaceState.DEPLOYED)
    if box.parent != spec.account:
        raise OtherAccount(kind="cloudspace", id=box.id, other=spec.account)
    ready(uow, ns, spec.account, ACCOUNT, AccountState.CONFIRMED)
    image = ready(uow, ns, spec.image, IMAGE, ImageState.CREATED)
    _same_account(image, image.parent or "", spec.account)
    source = _source(uow, ns, spec)
    await refuse_taken(uow, ns, VM, spec.name, parent=spec.cloudspace)
    if source is not None:
        seen = vm_seen(source)
        put_seen(uow, source, replace(seen, clones=(*seen.clones, found.id)))
    used = image_seen(image)
    put_seen(uow, image, replace(used, users=used.users + 1))
    boot = boot_disk_of(found.id)
    new_disk(uow, request, boot, DiskSpec(f"{spec.name}-boot", spec.account, spec.gib, boot=True), found.id, 0)
    return replace(request, seen=to_json(VmSeen(disks={boot: 0})))


def _source(uow: UnitOfWork, ns: str, spec: VmSpec) -> Object | None:
    """Return the VM that is to be cloned: it must not run while its disk becomes the base of both."""
    if not spec.clone_of:
        return None
    source = ready(uow, ns, spec.clone_of, VM, VmState.HALTED)
    of = spec_of(source, VmSpec)
    _same_account(source, of.account, spec.account)
    if of.image != spec.image:
        raise BadInput("image", spec.image, f"the image of the VM that is cloned, {of.image}")
    return source


def _same_account(found: Object, account: str, other: str) -> None:
    if account != other:
        raise OtherAccount(kind=short(found.kind), id=found.id, other=other)


def _lively(uow: UnitOfWork, request: Request, spec: VmSpec) -> None:
    """Refuse to give power to what is below something disabled; the controller only gives back what there was."""
    if request.actor != CONTROLLER:
        ready(uow, request.ns, spec.cloudspace, CLOUDSPACE, CloudspaceState.DEPLOYED)
        ready(uow, request.ns, spec.account, ACCOUNT, AccountState.CONFIRMED)


async def _enabled(uow: UnitOfWork, request: Request, found: Object) -> Request | None:
    spec = spec_of(found, VmSpec)
    require_enabled(uow, request, spec.account, spec.cloudspace)
    return None


async def _deploy(uow: UnitOfWork, request: Request, found: Object) -> Request | None:
    boot, spec = known(uow, request.ns, boot_disk_of(found.id), DISK), spec_of(found, VmSpec)
    if spec.clone_of:
        ready(uow, request.ns, spec.clone_of, VM, VmState.HALTED)
    move = None if boot.state == DiskState.ASSIGNED else may(uow, boot, "assign")
    await _start(uow, request, found)
    if move is not None:
        hold(uow, request, boot, move)
    return None


async def _start(uow: UnitOfWork, request: Request, found: Object) -> Request | None:
    _lively(uow, request, spec_of(found, VmSpec))
    seen, node = vm_seen(found), str(args_of(request).get("node", ""))
    for clone in (known(uow, request.ns, id_, VM) for id_ in seen.clones):
        if clone.state == VmState.DEPLOYING:  # it is just being made of this one's disk
            raise HasClones(id=found.id, clones=clone.id)
    if node and request.actor == USER:
        raise NodeIsInternal(id=found.id)
    if node:
        node = await wanted_node(uow, request.ns, node, back=request.actor == CONTROLLER)
    else:
        node = await some_node(uow, found, present=seen.node)
    put_seen(uow, found, replace(seen, node=node, machine=machine_of(found.id, request.op)))
    return None


# --- going -----------------------------------------------------------------------------------------------------------


def _clones(uow: UnitOfWork, found: Object, *, living: bool) -> None:
    """Refuse while there are clones: living ones, or also those in the recycle bin."""
    clones = [uow.objects[Key(found.ns, id_)] for id_ in vm_seen(found).clones]
    standing = [one.id for one in clones if not living or one.state not in OUT]
    if standing:
        raise HasClones(id=found.id, clones=", ".join(standing))


async def _delete(uow: UnitOfWork, request: Request, found: Object) -> Request | None:
    _clones(uow, found, living=True)
    seen = vm_seen(found)
    disks = [known(uow, request.ns, id_, DISK) for id_ in seen.disks]
    taken = [(one, may(uow, one, "delete")) for one in disks if one.state not in LEFT_ALONE]
    for disk, move in taken:
        hold(uow, request, disk, move, bin=Stay(uow.now, found.id))
    put_seen(uow, found, replace(seen, bin=Stay(uow.now, _along(request))))
    return None


LEFT_ALONE = frozenset({DiskState.TOBEDELETED, DiskState.ERROR, DiskState.MODELED})
"""What a VM that goes to the recycle bin does not take along: what lies there already, and what is not whole."""


def _along(request: Request) -> str:
    """Return with whom it goes; only the controller acts for a parent."""
    return str(args_of(request).get("along", "")) if request.actor == CONTROLLER else ""


async def _restore(uow: UnitOfWork, request: Request, found: Object) -> Request | None:
    spec, seen = spec_of(found, VmSpec), vm_seen(found)
    if request.actor != CONTROLLER:
        for id_, lifecycle in ((spec.cloudspace, CLOUDSPACE), (spec.account, ACCOUNT)):
            refuse_below_bin(known(uow, request.ns, id_, lifecycle))
    disks = [known(uow, request.ns, id_, DISK) for id_ in seen.disks]
    back = [one for one in disks if (stay := disk_seen(one).bin) is not None and stay.along == found.id]
    for disk, move in [(one, may(uow, one, "restore")) for one in back]:
        hold(uow, request, disk, move)
    return None


async def _destroy(uow: UnitOfWork, request: Request, found: Object) -> Request | None:
    _clones(uow, found, living=False)
    disks = [known(uow, request.ns, id_, DISK) for id_ in vm_seen(found).disks]
    for disk, move in [(one, may(uow, one, "destroy")) for one in disks]:
        hold(uow, request, disk, move)
    return None


# --- disks -----------------------------------------------------------------------------------------------------------


def _free_slot(found: Object, seen: VmSeen) -> int:
    if len(seen.disks) >= MOST_DISKS:
        raise TooManyDisks(id=found.id, most=MOST_DISKS)
    return next(slot for slot in range(MOST_DISKS) if slot not in seen.disks.values())


async def _add_disk(uow: UnitOfWork, request: Request, found: Object) -> Request | None:
    await _enabled(uow, request, found)
    args, account = args_of(request), spec_of(found, VmSpec).account
    spec = new_spec(to_json({"name": args.get("name", ""), "gib": args.get("gib", 1), "account": account}), DiskSpec)
    slot = _free_slot(found, vm_seen(found))
    await refuse_taken(uow, request.ns, DISK, spec.name, account=account)
    disk = new_disk(uow, request, new_disk_of(request.op), spec, found.id, slot)
    hold(uow, request, disk, may(uow, disk, "assign"))
    return None


async def _attach_disk(uow: UnitOfWork, request: Request, found: Object) -> Request | None:
    await _enabled(uow, request, found)
    disk = known(uow, request.ns, str(args_of(request).get("disk", "")), DISK)
    spec = spec_of(disk, DiskSpec)
    _same_account(disk, spec.account, spec_of(found, VmSpec).account)
    _no_boot_disk(disk, spec)
    slot = _free_slot(found, vm_seen(found))
    held = hold(uow, request, disk, may(uow, disk, "attach"), vm=found.id, slot=slot)
    uow.save_object(held.key, replace(held, parent=found.id, queue=found.id))
    return None


async def _detach_disk(uow: UnitOfWork, request: Request, found: Object) -> Request | None:
    disk = known(uow, request.ns, str(args_of(request).get("disk", "")), DISK)
    if disk.id not in vm_seen(found).disks:
        raise NotAttached(disk=disk.id, id=found.id)
    _no_boot_disk(disk, spec_of(disk, DiskSpec))
    hold(uow, request, disk, may(uow, disk, "detach"))
    return None


def _no_boot_disk(disk: Object, spec: DiskSpec) -> None:
    if spec.boot:
        raise BootDisk(id=disk.id, vm=disk_seen(disk).vm)


# --- moving ----------------------------------------------------------------------------------------------------------


async def _migrate(uow: UnitOfWork, request: Request, found: Object) -> Request | None:
    seen, node = vm_seen(found), str(args_of(request).get("node", ""))
    if node and node == seen.node:
        raise Already(id=found.id, node=node)
    if node:
        node = await wanted_node(uow, request.ns, node, back=request.actor == CONTROLLER)
    else:
        node = await some_node(uow, found, avoid=seen.node)
    put_seen(uow, found, replace(seen, to=node))
    return None


# --- what its node shows ---------------------------------------------------------------------------------------------


async def _shown(uow: UnitOfWork, request: Request, found: Object) -> Request | None:
    """Take what a node shows of a VM at rest; what one without power may have left behind is swept later."""
    if uow.queue(Key(found.ns, found.queue)):
        raise NotAtRest(kind=short(found.kind), id=found.id)
    seen = vm_seen(found)
    if request.action == "shows off" and seen.machine:
        lost = Spot(seen.node, seen.machine)
        put_seen(uow, found, replace(seen, machine="", leftovers=(*seen.leftovers, lost)))
    return None


RULES: dict[str, Rule] = {
    "define": _define,
    "deploy": _deploy,
    "start": _start,
    "resume": _enabled,
    "reboot": _enabled,
    "reset": _enabled,
    "delete": _delete,
    "restore": _restore,
    "destroy": _destroy,
    "add disk": _add_disk,
    "attach disk": _attach_disk,
    "detach disk": _detach_disk,
    "migrate": _migrate,
    "shows off": _shown,
    "shows frozen": _shown,
    "shows on": _shown,
}
