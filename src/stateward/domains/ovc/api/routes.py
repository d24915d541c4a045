"""Routes of single kinds: creation, disks of a VM, migration, maintenance, queues, healing."""

from typing import Annotated

from litestar import delete, get, post
from litestar.params import JSONBody, QueryParameter
from litestar.types import ControllerRouterHandler

from stateward.access import Right
from stateward.domains.ovc import model
from stateward.domains.ovc.api.collection_routes import COLLECTIONS, act_on, routes_of, service_of
from stateward.domains.ovc.api.schemas import (
    AddedDisk,
    Call,
    ItemId,
    MaintenanceRequest,
    MigrationRequest,
    NamedDisk,
    NewAccount,
    NewClone,
    NewCloudspace,
    NewDisk,
    NewImage,
    NewMachine,
    NewNode,
    caller_of,
)
from stateward.domains.ovc.api.views import (
    HealingView,
    ItemView,
    ObjectQueueView,
    OvcAcceptedView,
    accepted_view,
    healing_view,
    item_view,
    queue_view,
)
from stateward.domains.ovc.lifecycle import CLOUDSPACE, NODE, VM
from stateward.lifecycle import ADMIN
from stateward.plugin.owned_router import OwnedRouter
from stateward.plugin.request_params import IdempotencyKey, Ns
from stateward.plugin.route_options import actor_of, can_dry_run, disclosure_of, needs

BASE = "/api/v1/ovc/{ns:str}"
ACT = needs(Right.ACT)
GOVERN = needs(Right.GOVERN)


async def _create(
    request: Call, ns: str, spec: model.OvcSpec, key: str | None, *, deploy: bool = True
) -> OvcAcceptedView:
    made = await service_of(request).create(ns, spec, caller_of(request), key, deploy=deploy)
    return accepted_view(made, disclosure_of(request))


# --- creation --------------------------------------------------------------------------------------------------------


@post("/accounts", opt=ACT | can_dry_run(), status_code=202, summary="Create an account")
async def make_account(
    request: Call, ns: Ns, data: JSONBody[NewAccount], key: IdempotencyKey = None
) -> OvcAcceptedView:
    """Create an account."""
    return await _create(request, ns, model.AccountSpec(data.name, data.retention), key)


@post("/cloudspaces", opt=ACT | can_dry_run(), status_code=202, summary="Create a cloudspace")
async def make_cloudspace(
    request: Call, ns: Ns, data: JSONBody[NewCloudspace], key: IdempotencyKey = None
) -> OvcAcceptedView:
    """Create a cloudspace, and deploy it."""
    return await _create(request, ns, model.CloudspaceSpec(data.name, data.account), key)


@post("/machines", opt=ACT | can_dry_run(), status_code=202, summary="Create a VM")
async def make_machine(
    request: Call, ns: Ns, data: JSONBody[NewMachine], key: IdempotencyKey = None
) -> OvcAcceptedView:
    """Create a VM, and deploy it."""
    box = model.read_spec(await service_of(request).get(ns, CLOUDSPACE.kind, data.cloudspace), model.CloudspaceSpec)
    spec = model.OvcVmSpec(data.name, box.account, data.cloudspace, data.image, data.size, data.gib)
    return await _create(request, ns, spec, key, deploy=data.deploy)


@post("/machines/{id:str}/clone", opt=ACT, status_code=202, summary="Clone a VM")
async def clone_machine(
    request: Call, ns: Ns, id: ItemId, data: JSONBody[NewClone], key: IdempotencyKey = None
) -> OvcAcceptedView:
    """Create a VM whose disk starts with the contents of this VM's disk; this VM must be HALTED meanwhile."""
    of = model.read_spec(await service_of(request).get(ns, VM.kind, id), model.OvcVmSpec)
    spec = model.OvcVmSpec(data.name, of.account, of.cloudspace, of.image, of.size, of.gib, clone_of=id)
    return await _create(request, ns, spec, key)


@post("/disks", opt=ACT | can_dry_run(), status_code=202, summary="Create a disk")
async def make_disk(request: Call, ns: Ns, data: JSONBody[NewDisk], key: IdempotencyKey = None) -> OvcAcceptedView:
    """Create a disk that belongs to no VM."""
    return await _create(request, ns, model.DiskSpec(data.name, data.account, data.gib), key)


@post("/images", opt=ACT | can_dry_run(), status_code=202, summary="Create an image")
async def make_image(request: Call, ns: Ns, data: JSONBody[NewImage], key: IdempotencyKey = None) -> OvcAcceptedView:
    """Create an image."""
    return await _create(request, ns, model.ImageSpec(data.name, data.account, data.source), key)


@post("/nodes", opt=GOVERN | can_dry_run(), status_code=202, summary="Register a node")
async def register_node(request: Call, ns: Ns, data: JSONBody[NewNode], key: IdempotencyKey = None) -> OvcAcceptedView:
    """Register a node; one that runs programs on the server's host, only as an administrator of all namespaces."""
    return await _create(request, ns, model.NodeSpec(data.name, data.driver, data.options), key)


# --- a VM and its disks ----------------------------------------------------------------------------------------------


@get("/machines/{id:str}/disks", opt=needs(Right.READ), summary="List the disks of a VM")
async def list_disks(request: Call, ns: Ns, id: ItemId) -> list[ItemView]:
    """Return the disks of a VM, those in the recycle bin included."""
    service = service_of(request)
    await service.get(ns, VM.kind, id)
    return [item_view(disk, disclosure_of(request)) for disk in await service.disks_of(ns, id)]


@post("/machines/{id:str}/disks", opt=ACT, status_code=202, summary="Add a disk to a VM")
async def add_disk(
    request: Call, ns: Ns, id: ItemId, data: JSONBody[AddedDisk], key: IdempotencyKey = None
) -> OvcAcceptedView:
    """Create a disk for a VM, and attach it; if one of both fails, neither is done."""
    return await act_on(request, ns, VM.kind, id, "add disk", args={"name": data.name, "gib": data.gib}, key=key)


@post("/machines/{id:str}/attach", opt=ACT, status_code=202, summary="Attach a disk to a VM")
async def attach_disk(request: Call, ns: Ns, id: ItemId, data: JSONBody[NamedDisk]) -> OvcAcceptedView:
    """Attach a disk: the VM and the disk change their states together."""
    return await act_on(request, ns, VM.kind, id, "attach disk", args={"disk": data.disk})


@post("/machines/{id:str}/detach", opt=ACT, status_code=202, summary="Detach a disk from a VM")
async def detach_disk(request: Call, ns: Ns, id: ItemId, data: JSONBody[NamedDisk]) -> OvcAcceptedView:
    """Detach a disk: the VM and the disk change their states together."""
    return await act_on(request, ns, VM.kind, id, "detach disk", args={"disk": data.disk})


# --- nodes -----------------------------------------------------------------------------------------------------------


@post("/machines/{id:str}/migrate", opt=GOVERN, status_code=202, summary="Migrate a VM")
async def migrate(request: Call, ns: Ns, id: ItemId, data: JSONBody[MigrationRequest]) -> OvcAcceptedView:
    """Move a VM to another node while it runs; its state does not change."""
    args = {} if data.node is None else {"node": data.node}
    return await act_on(request, ns, VM.kind, id, "migrate", args=args)


@post("/nodes/{id:str}/maintenance", opt=GOVERN, status_code=202, summary="Put a node in maintenance")
async def maintenance(request: Call, ns: Ns, id: ItemId, data: JSONBody[MaintenanceRequest]) -> OvcAcceptedView:
    """Move a node's VMs away, or stop them; they return when it is enabled."""
    return await act_on(request, ns, NODE.kind, id, "maintenance", args={"vmaction": data.vmaction})


# --- queues and healing ----------------------------------------------------------------------------------------------


@get("/queues/{id:str}", opt=needs(Right.READ), summary="Show an object's queue")
async def show_queue(request: Call, ns: Ns, id: ItemId) -> ObjectQueueView:
    """Return the operations of an object's queue, in order."""
    return queue_view(await service_of(request).queuer.queue(ns, id), disclosure_of(request))


@delete("/queues/{id:str}", opt=ACT, status_code=200, summary="Stop an object's queue")
async def stop_queue(request: Call, ns: Ns, id: ItemId) -> ObjectQueueView:
    """Refuse new actions, and answer when the queue is drained."""
    queuer = service_of(request).queuer
    await queuer.stop(ns, id)
    return queue_view(await queuer.queue(ns, id), disclosure_of(request))


@delete("/queues", opt=GOVERN, status_code=200, summary="Stop all queues")
async def terminate_queues(request: Call, ns: Ns) -> dict[str, int]:
    """Stop all queues of the namespace; answers with their number when all are drained."""
    return {"stopped": await service_of(request).queuer.terminate(ns)}


@get("/healing", opt=needs(Right.READ), summary="Show what was healed")
async def show_healing(
    request: Call,
    ns: Ns,
    seconds: Annotated[float, QueryParameter(ge=0, description="of the last so many seconds")] = 86_400.0,
) -> HealingView:
    """Return stuck work, recoveries by the healer, a timer or drift detection, and orphans."""
    service = service_of(request)
    now = await service.engine.store.reader.time()
    healing = await service.healing(ns, now - seconds, disclosure_of(request))
    return healing_view(healing, orphans=actor_of(request) == ADMIN)


ROUTES = (
    make_account,
    make_cloudspace,
    make_machine,
    clone_machine,
    make_disk,
    make_image,
    register_node,
    list_disks,
    add_disk,
    attach_disk,
    detach_disk,
    migrate,
    maintenance,
    show_queue,
    stop_queue,
    terminate_queues,
    show_healing,
)


def ovc_routes() -> list[ControllerRouterHandler]:
    """Return the routes of the domain: those that every kind has, and those of one kind alone."""
    shared = [route for collection in COLLECTIONS for route in routes_of(collection)]
    return [OwnedRouter(BASE, route_handlers=[*shared, *ROUTES], tags=["ovc"])]
