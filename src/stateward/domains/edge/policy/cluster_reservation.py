"""Reservable clusters: an app on an autocluster reserves a free one, or a new one is created for it."""

from msgspec.structs import replace

from stateward.domains.edge.errors import LimitReached, Reserved
from stateward.domains.edge.lifecycle import ClusterInstState
from stateward.domains.edge.lookups import (
    existing_apps,
    existing_clusters,
    is_in_transition,
    list_instances,
    save_status,
)
from stateward.domains.edge.model import (
    MAX_RESERVABLE_CLUSTERS,
    RESERVABLE_PREFIX,
    AppSpec,
    ClusterInst,
    instance_status,
    local_name,
    read_spec,
)
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.records import Key, Object, Timer

IDLE_TIMEOUT_S = 30 * 60.0
"""Seconds that an unused reservable cluster is kept, unless a setting says otherwise."""


async def reserve_cluster(uow: UnitOfWork, ns: str, cloudlet: str, auto: str, app: AppSpec) -> str:
    """Return the cluster for an app on an autocluster: an existing one, now reserved, or the name of a new one."""
    instances = await list_instances(uow, ns, cloudlet)
    shared = _shared_cluster(instances, cloudlet, auto, app.organization)
    if shared is not None:
        return shared
    for cluster in existing_clusters(instances):
        if _is_free(cluster, app.flavor):
            save_status(uow, cluster, replace(instance_status(cluster), reserved_by=app.organization))
            uow.changes.timers_gone.append(Key(ns, idle_timer_id(cluster.id)))
            return local_name(cluster.id)
    promised = {instance_status(instance).cluster for instance in existing_apps(instances)}
    taken = {local_name(cluster.id) for cluster in existing_clusters(instances)} | promised
    name = next(
        (candidate for n in range(MAX_RESERVABLE_CLUSTERS) if (candidate := f"{RESERVABLE_PREFIX}{n}") not in taken),
        None,
    )
    if name is None:
        raise LimitReached(f"cloudlet {cloudlet}", "at most so many reservable clusters:", MAX_RESERVABLE_CLUSTERS)
    return name


def _shared_cluster(instances: list[Object], cloudlet: str, auto: str, organization: str) -> str | None:
    """Return the cluster behind an autocluster that already has other apps."""
    for instance in existing_apps(instances):
        if instance.id.startswith(f"{cloudlet}:{auto}:"):
            owner = str(_owner(instances, f"{cloudlet}:{instance_status(instance).cluster}") or organization)
            if owner != organization:
                raise Reserved(f"{cloudlet}:{auto}", owner)
            return instance_status(instance).cluster
    return None


def _owner(instances: list[Object], cluster: str) -> str:
    return next((instance_status(instance).reserved_by for instance in instances if instance.id == cluster), "")


def _is_free(cluster: Object, flavor: str) -> bool:
    status, spec = instance_status(cluster), read_spec(cluster, ClusterInst)
    ready = cluster.state == ClusterInstState.READY and not is_in_transition(cluster) and not status.missing
    return ready and spec.reservable and not status.reserved_by and spec.flavor == flavor


def idle_timer_id(cluster: str) -> str:
    """Return the id of the timer that deletes an idle cluster."""
    return f"idle {cluster}"


def free_cluster(uow: UnitOfWork, cluster: Object, idle_s: float) -> None:
    """End the reservation of an unused cluster, and start its idle timer."""
    save_status(uow, cluster, replace(instance_status(cluster), reserved_by=""))
    timer = Timer(cluster.ns, idle_timer_id(cluster.id), uow.now + idle_s, 0, cluster.id, "expire", "[]", "{}")
    uow.changes.timers.append(timer)
