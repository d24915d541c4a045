"""Records within a transaction: lookups of cloudlets and instances, and the unit of work that loads and writes them.

Every transaction on a cloudlet locks the cloudlet's row first, so what it reads stays true until its end. Objects that
the unit of work has changed take precedence over the stored ones.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.edge.errors import InMaintenance, ReferenceBeingDeleted, Upgrading
from stateward.domains.edge.lifecycle import APPINST, CLOUDLET, CLUSTERINST, CloudletState
from stateward.domains.edge.model import agent_slots, cloudlet_status, cluster_id, instance_status
from stateward.domains.edge.records.instance_record import ERROR_STATES
from stateward.engine import NotFound, Request
from stateward.engine.unit_of_work import UnitOfWork, promote_waiters
from stateward.lifecycle import CLOCK
from stateward.store.filters import Selector
from stateward.store.port import Tx
from stateward.store.records import Key, Object, Operation, to_json

NOT_PRESENT = "NotPresent"
MAINTENANCE_STATES = (CloudletState.PREPARE_MAINTENANCE, CloudletState.MAINTENANCE)
CREATE_ACTIONS = ("create", "re-create")
DELETING_STATES = ("DeletePrepare", "DeleteRequested", "Deleting")


async def get_object(uow: UnitOfWork, ns: str, name: str, kind: str) -> Object:
    """Return an object of a kind, locked, or raise if there is none."""
    record = await find_object(uow, ns, name, kind)
    if record is None:
        raise NotFound(ns, name)
    return record


async def find_object(uow: UnitOfWork, ns: str, name: str, kind: str) -> Object | None:
    """Return an object of a kind, locked, if there is one."""
    key = Key(ns, name)
    if key not in uow.objects:
        await uow.load([key])
    return loaded_object(uow, key, kind)


def loaded_object(uow: UnitOfWork, key: Key, kind: str) -> Object | None:
    """Return an object of a kind that the unit of work has loaded, if there is one."""
    record = uow.objects.get(key)
    return None if record is None or record.removed or record.kind != kind else record


async def get_open_cloudlet(uow: UnitOfWork, request: Request, name: str) -> Object:
    """Return a cloudlet whose instances may be changed now; raises if it is being deleted, upgraded or maintained.

    Its own delete operation may change its instances. For a timer, the refusal of an upgrade is one to retry.
    """
    ns, within = request.ns, request.parent
    cloudlet = await get_object(uow, ns, name, CLOUDLET.kind)
    if cloudlet.state == CloudletState.DELETE_PREPARE and (within is None or within != cloudlet.op):
        raise ReferenceBeingDeleted(f"cloudlet {name}")
    slots = agent_slots(cloudlet, await current_operation(uow, cloudlet))
    if cloudlet.state in MAINTENANCE_STATES and request.action in CREATE_ACTIONS:
        raise InMaintenance(name, cloudlet.state)
    if cloudlet.state == CloudletState.UPDATE_ERROR or slots.is_upgrading:
        raise Upgrading(name, cloudlet.state, patient=request.actor == CLOCK)
    return cloudlet


async def current_operation(uow: UnitOfWork, record: Object) -> Operation | None:
    """Return the operation that currently runs on an object."""
    if record.op is None:
        return None
    key = Key(record.ns, record.op)
    await uow.load_operations([key])
    return uow.operations.get(key)


async def list_instances(uow: UnitOfWork, ns: str, cloudlet: str) -> list[Object]:
    """Return all instances on a cloudlet, locked; the caller has locked the cloudlet."""
    instances = await uow.select(Selector(ns, parent=cloudlet))
    await uow.load([], [instance for instance in instances if instance.key not in uow.objects])
    return sorted(instances, key=lambda instance: instance.key)


def apps_in_cluster(instances: list[Object], cloudlet: str, cluster: str) -> list[Object]:
    """Return the AppInsts of a cluster, also those still being created."""
    return [app for app in existing_apps(instances) if cluster_of(app) == cluster_id(cloudlet, cluster)]


def cluster_of(app: Object) -> str:
    """Return the id of the cluster that an AppInst is in."""
    return cluster_id(app.id.partition(":")[0], instance_status(app).cluster)


def existing_apps(instances: list[Object]) -> list[Object]:
    """Return the AppInsts that exist."""
    return [instance for instance in instances if instance.kind == APPINST.kind and instance.state != NOT_PRESENT]


def existing_clusters(instances: list[Object]) -> list[Object]:
    """Return the ClusterInsts that exist."""
    return [instance for instance in instances if instance.kind == CLUSTERINST.kind and instance.state != NOT_PRESENT]


def is_in_transition(instance: Object) -> bool:
    """Tell whether an operation or an undo runs on an instance."""
    return instance.op is not None or (instance.state in ERROR_STATES and instance_status(instance).undoing)


def is_online(cloudlet: Object) -> bool:
    """Tell whether an agent serves a cloudlet."""
    return cloudlet.state == CloudletState.READY and cloudlet_status(cloudlet).serving > 0


def save_status(uow: UnitOfWork, record: Object, status: Struct) -> Object:
    """Write an object's status, without a transition."""
    seen = to_json(status)
    if seen == record.seen:
        return record
    changed = replace(record, seen=seen, version=uow.next_version(record.key))
    uow.save_object(record.key, changed)
    return changed


@asynccontextmanager
async def unit_of_work(tx: Tx, keys: Iterable[Key]) -> AsyncIterator[UnitOfWork]:
    """Yield a unit of work with these objects locked, and their current operations; its changes are written at the end.

    The operations that wait for an ended one are promoted with it.
    """
    uow = UnitOfWork(tx)
    await uow.load(set(keys))
    await uow.load_operations({Key(record.ns, record.op) for record in uow.objects.values() if record.op is not None})
    await uow.load_locks(
        {Key(operation.ns, operation.tree) for operation in uow.operations.values() if operation.tree is not None}
    )
    yield uow
    await promote_waiters(uow)
    await uow.apply()
