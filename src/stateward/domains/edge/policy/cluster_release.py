"""Release of instances: an AppInst in a stable state updates its app, and its unused cluster is freed.

A cluster is freed in the transaction that ends its last app. Later, an app of the same name may already be in another
cluster, and nobody would know the former one.
"""

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from stateward.domains.edge.lifecycle import APP, APPINST, CLUSTERINST, AppInstState, ClusterInstState
from stateward.domains.edge.lookups import (
    apps_in_cluster,
    cluster_of,
    list_instances,
    loaded_object,
    save_status,
    unit_of_work,
)
from stateward.domains.edge.model import (
    AppSpec,
    ClusterInst,
    CountedRequests,
    cloudlet_of,
    instance_status,
    local_name,
    read_spec,
    record_id,
)
from stateward.domains.edge.policy.app_members import app_status, find_policy, refresh_member
from stateward.domains.edge.policy.cluster_reservation import IDLE_TIMEOUT_S, free_cluster
from stateward.domains.edge.policy.demand import measured_requests, record_interval, unmeasured_requests
from stateward.domains.edge.references import check_cloudlets
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.port import Tx
from stateward.store.records import Key, Object

MIN_INTERVAL = 0.9
"""The part of an interval that must have passed: several controllers count, and their clocks tick at other times."""


async def release_instance(tx: Tx, ns: str, instance: str) -> None:
    """Update the app of an AppInst by its current state."""
    record = Key(ns, record_id(APP.kind, instance.rpartition(":")[2]))
    async with unit_of_work(tx, {record, Key(ns, instance)}) as uow:
        stored, app = uow.objects.get(Key(ns, instance)), loaded_object(uow, record, APP.kind)
        if app is None:
            return
        state = None if stored is None else stored.state
        status = refresh_member(app_status(app), instance, state)
        if state == AppInstState.CREATE_ERROR:
            status = replace(status, avoided=tuple(dict.fromkeys((*status.avoided, cloudlet_of(instance)))))
        save_status(uow, app, status)


async def free_unused_clusters(uow: UnitOfWork, keys: Collection[Key], idle_s: float) -> None:
    """End the reservations of those clusters that no app is in any more; their cloudlets are locked first."""
    await uow.load({Key(key.ns, cloudlet_of(key.id)) for key in keys})
    await uow.load(keys)
    for key in keys:
        cluster, cloudlet = loaded_object(uow, key, CLUSTERINST.kind), cloudlet_of(key.id)
        if cluster is None or not is_reserved(cluster):
            continue
        if not apps_in_cluster(await list_instances(uow, key.ns, cloudlet), cloudlet, local_name(key.id)):
            free_cluster(uow, cluster, idle_s)


async def free_clusters_of_gone_apps(uow: UnitOfWork, instances: Iterable[Object], idle_s: float) -> None:
    """Free the clusters of AppInsts that are gone, unless other apps are in them."""
    gone = [
        instance
        for instance in instances
        if instance.kind == APPINST.kind and instance.state == AppInstState.NOT_PRESENT
    ]
    await free_unused_clusters(uow, {Key(instance.ns, cluster_of(instance)) for instance in gone}, idle_s)


async def free_clusters(tx: Tx, keys: Collection[Key], idle_s: float) -> None:
    """Free clusters that are reserved and unused."""
    async with unit_of_work(tx, {Key(key.ns, cloudlet_of(key.id)) for key in keys}) as uow:
        await free_unused_clusters(uow, keys, idle_s)


def is_reserved(cluster: Object) -> bool:
    """Tell whether a cluster is reserved for apps on autoclusters."""
    return bool(instance_status(cluster).reserved_by) and read_spec(cluster, ClusterInst).reservable


async def remove_absent(tx: Tx, keys: Sequence[Key]) -> None:
    """Remove the records of NotPresent instances."""
    async with unit_of_work(tx, {*keys, *(Key(key.ns, cloudlet_of(key.id)) for key in keys)}) as uow:
        for key in keys:
            record = uow.objects.get(key)
            if record is not None and record.state == AppInstState.NOT_PRESENT and not record.removed:
                uow.save_object(key, replace(record, removed=True, version=uow.next_version(key)))


async def restart_idle_timer(tx: Tx, key: Key, idle_s: float = IDLE_TIMEOUT_S) -> None:
    """Restart the idle timer of an unused cluster whose delete failed."""
    async with unit_of_work(tx, {Key(key.ns, cloudlet_of(key.id)), key}) as uow:
        cluster = uow.objects.get(key)
        if cluster is None or cluster.state != ClusterInstState.READY or instance_status(cluster).reserved_by:
            return
        if read_spec(cluster, ClusterInst).reservable:
            free_cluster(uow, cluster, idle_s)


async def count_interval(tx: Tx, ns: str, app: str, requests: dict[str, int]) -> None:
    """Count an interval of an app's reported demand; refuses cloudlets that do not exist."""
    record = Key(ns, record_id(APP.kind, app))
    async with unit_of_work(tx, [record]) as uow:
        await check_cloudlets(uow, ns, "requests", requests)
        stored = loaded_object(uow, record, APP.kind)
        policy = None if stored is None else await find_policy(uow, ns, read_spec(stored, AppSpec))
        if stored is not None and policy is not None:
            status = app_status(stored)
            counted = unmeasured_requests(policy, status, requests)
            save_status(uow, stored, record_interval(policy, status, counted))


async def count_measured_interval(
    tx: Tx, ns: str, app: str, totals: dict[str, CountedRequests], interval_s: float
) -> None:
    """Count an interval of an app's measured requests, unless another controller has counted it already."""
    record = Key(ns, app)
    async with unit_of_work(tx, [record]) as uow:
        stored = loaded_object(uow, record, APP.kind)
        policy = None if stored is None else await find_policy(uow, ns, read_spec(stored, AppSpec))
        if stored is None or policy is None or policy.demand != "measured":
            return
        status = app_status(stored)
        if uow.now < status.interval_end + MIN_INTERVAL * interval_s:
            return
        after = record_interval(policy, status, measured_requests(status.counted, totals))
        save_status(uow, stored, replace(after, counted=totals, interval_end=uow.now))
