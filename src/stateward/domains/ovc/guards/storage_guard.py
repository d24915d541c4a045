"""Guards of disks and images.

Actions that change a disk together with its VM are asked of the VM. An image that VMs use cannot be destroyed.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from stateward.domains.ovc import model
from stateward.domains.ovc.errors import BootDisk, ChangedWithVm, ImageInUse
from stateward.domains.ovc.guards import common_guard
from stateward.domains.ovc.lifecycle import ACCOUNT, DISK, IMAGE, VM, AccountState
from stateward.domains.ovc.nodes import DiskStore
from stateward.engine import Request
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.store.records import Key, Object, to_json

VM_ACTIONS = {"assign": "add", "attach": "attach", "detach": "detach"}
"""Actions of a disk that are asked of its VM, with the VM's name for each."""


def disk_lock_set(request: Request, disk: Object | None) -> Iterable[Key]:
    """Return the keys of the objects that the guard of a disk reads."""
    try:
        spec = model.parse_spec(request.spec, model.DiskSpec) if request.action == "define" else None
    except BadInput:
        return ()
    if spec is not None:
        return [Key(request.ns, spec.account)]
    if disk is None or disk.kind != DISK.kind:
        return ()
    if request.action == "create":
        return [Key(request.ns, model.read_spec(disk, model.DiskSpec).account)]
    return [Key(request.ns, disk.parent or "")] if request.action == "restore" else ()


async def guard_disk(uow: UnitOfWork, request: Request, disk: Object) -> Request | None:
    """Check a request about a disk."""
    disk = common_guard.check_request(uow, request, disk)
    if request.action in VM_ACTIONS:
        raise ChangedWithVm(id=disk.id, action=VM_ACTIONS[request.action])
    match request.action:
        case "define":
            spec = model.parse_spec(request.spec, model.DiskSpec)
            if spec.boot or disk.parent != spec.account or disk.queue != disk.id:
                raise BadInput("spec", request.spec, "a disk without a VM, below its account")
            common_guard.require_state(uow, request.ns, spec.account, ACCOUNT, AccountState.CONFIRMED)
            await common_guard.require_free_name(uow, request.ns, DISK, spec.name, account=spec.account)
            return replace(request, seen=to_json(model.DiskSeen(scoped=True)))
        case "create":
            common_guard.require_enabled(uow, request, model.read_spec(disk, model.DiskSpec).account)
        case "delete" | "destroy":
            seen = model.disk_seen(disk)
            if model.read_spec(disk, model.DiskSpec).boot:
                raise BootDisk(id=disk.id, vm=seen.vm)
            if request.action == "delete":
                common_guard.put_in_bin(uow, request, disk)
        case "restore":
            parent = VM if model.disk_seen(disk).vm else ACCOUNT
            common_guard.require_parent_not_binned(uow, request, disk.parent or "", parent)
    return None


async def guard_image(disk_store: DiskStore, uow: UnitOfWork, request: Request, image: Object) -> Request | None:
    """Check a request about an image; its source must be in the library of the disk store."""
    image = common_guard.check_request(uow, request, image)
    seen = model.image_seen(image)
    match request.action:
        case "define":
            spec = model.parse_spec(request.spec, model.ImageSpec)
            if image.parent != spec.account or image.queue != image.id:
                raise BadInput("parent", image.parent, f"the image's account, {spec.account}")
            common_guard.require_state(uow, request.ns, spec.account, ACCOUNT, AccountState.CONFIRMED)
            await common_guard.require_free_name(uow, request.ns, IMAGE, spec.name, parent=spec.account)
            _check_source(disk_store, spec.source)
            return replace(request, seen=to_json(model.ImageSeen(scoped=True)))
        case "create" | "enable":
            common_guard.require_enabled(uow, request, image.parent or "")
            if request.action == "create":
                _check_source(disk_store, model.read_spec(image, model.ImageSpec).source)
        case "destroy" if seen.users:
            raise ImageInUse(id=image.id, users=seen.users)
        case "delete":
            common_guard.put_in_bin(uow, request, image)
        case "restore":
            common_guard.require_parent_not_binned(uow, request, image.parent or "", ACCOUNT)
    return None


def _check_source(disk_store: DiskStore, source: str) -> None:
    trouble = disk_store.image_problem(source)
    if trouble:
        raise BadInput("source", source, f"an image that can be used: {trouble}")
