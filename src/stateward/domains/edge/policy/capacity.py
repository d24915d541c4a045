"""Capacity of a cloudlet: what its agent has, what its clusters take, and what is left.

Clusters take what their flavors say, node by node; apps run inside them. A cluster takes it from the acceptance of its
create until it is gone. The check is made in the transaction that accepts a request and has locked the cloudlet's row.
So concurrent requests end at exactly the limit.
"""

from collections.abc import Iterable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.edge.errors import CapacityExceeded
from stateward.domains.edge.lifecycle import CLOUDLET
from stateward.domains.edge.lookups import existing_clusters, list_instances, loaded_object, save_status, unit_of_work
from stateward.domains.edge.model import CloudletStatus, ClusterInst, cloudlet_status, instance_status, read_spec
from stateward.domains.edge.records.alert_names import AlertName
from stateward.engine.alerts import save_alerts, with_alert, without_alerts
from stateward.store.port import Tx
from stateward.store.records import Key, Object

RESOURCES = (("cores", "cores"), ("memory", "bytes of memory"))
"""The fields of a capacity, with their names for people."""

ROUNDING = 1e-9
"""Sums of cores that differ by less are equal: the cores of a flavor may be a fraction."""


class ResourceAmounts(Struct, frozen=True):
    """Cores, and bytes of memory."""

    cores: float = 0.0
    memory: int = 0


def amounts_of(spec: ClusterInst) -> ResourceAmounts:
    """Return what a cluster takes."""
    return ResourceAmounts(spec.nodes * spec.cores, spec.nodes * spec.memory)


def used_amounts(instances: Iterable[Object], besides: str = "") -> ResourceAmounts:
    """Return what the clusters among the instances take; one of them may be left out.

    While an update or its undo runs, both specs may exist, and the larger one counts.
    """
    cores, memory = 0.0, 0
    for cluster in existing_clusters(list(instances)):
        if cluster.id == besides:
            continue
        now, before = amounts_of(read_spec(cluster, ClusterInst)), instance_status(cluster).spec
        then = amounts_of(msgspec.json.decode(before, type=ClusterInst)) if before and cluster.op else now
        cores, memory = cores + max(now.cores, then.cores), memory + max(now.memory, then.memory)
    return ResourceAmounts(cores, memory)


def check_capacity(
    cloudlet: str, capacity: CloudletStatus, used: ResourceAmounts, wanted: ResourceAmounts, before: ResourceAmounts
) -> None:
    """Refuse a cluster that needs more than before, and more than is left; unknown capacity is no limit."""
    for field, name in RESOURCES:
        limit, taken, needed = getattr(capacity, field), getattr(used, field), getattr(wanted, field)
        if limit and needed > getattr(before, field) and taken + needed > limit + ROUNDING:
            raise CapacityExceeded(cloudlet, name, needed, taken, max(0, limit - taken))


async def update_capacity_alert(tx: Tx, key: Key) -> None:
    """Begin or end the alert of a cloudlet whose clusters take more than it has."""
    async with unit_of_work(tx, [key]) as uow:
        cloudlet = loaded_object(uow, key, CLOUDLET.kind)
        if cloudlet is None:
            return
        status = cloudlet_status(cloudlet)
        excess = excess_text(status, used_amounts(await list_instances(uow, key.ns, key.id)))
        alerts = without_alerts(status.alerts, AlertName.OVER_CAPACITY)
        if excess:
            alerts = with_alert(status.alerts, AlertName.OVER_CAPACITY, excess, uow.now)
        if alerts != status.alerts:
            save_alerts(uow, save_status(uow, cloudlet, replace(status, alerts=alerts)), status.alerts, alerts)


def has_stale_alert(cloudlet: Object, clusters: Iterable[Object]) -> bool:
    """Tell whether the alert of a cloudlet's capacity has to begin or to end."""
    status = cloudlet_status(cloudlet)
    has_alert = any(alert.name == AlertName.OVER_CAPACITY for alert in status.alerts)
    return has_alert != bool(excess_text(status, used_amounts(clusters)))


def excess_text(capacity: CloudletStatus, used: ResourceAmounts) -> str:
    """Return what is taken beyond the capacity, as after an agent has come back with less; empty if nothing is."""
    pairs = [(name, getattr(capacity, field), getattr(used, field)) for field, name in RESOURCES]
    over = [f"{taken:,g} of {limit:,g} {name}" for name, limit, taken in pairs if limit and taken > limit + ROUNDING]
    return f"clusters take {' and '.join(over)}" if over else ""
