"""The policy controller: keeps app members up to date, and deploys apps by demand.

Each process with a worker has one, and the first of these processes does the rounds over all apps. Each transaction
checks its conditions again, so two rounds at the same time do no harm. A round reads each object once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial

from stateward.domains.edge.agents.measures import KnownLoads, loads_on, reported_loads_on
from stateward.domains.edge.lifecycle import APP, APPINST, AUTOPROV, AUTOSCALE, CLOUDLET, CLUSTERINST, AppInstState
from stateward.domains.edge.lookups import NOT_PRESENT, cluster_of, is_online
from stateward.domains.edge.model import (
    AUTOCLUSTER_PREFIX,
    AppSpec,
    AutoprovSpec,
    AutoscaleSpec,
    ClusterInst,
    CountedRequests,
    ReportedLoad,
    cloudlet_of,
    instance_status,
    local_name,
    read_spec,
    record_id,
)
from stateward.domains.edge.policy.app_members import app_status, refresh_member
from stateward.domains.edge.policy.capacity import has_stale_alert, update_capacity_alert
from stateward.domains.edge.policy.cluster_release import (
    count_measured_interval,
    free_clusters,
    is_reserved,
    release_instance,
    remove_absent,
    restart_idle_timer,
)
from stateward.domains.edge.policy.cluster_reservation import IDLE_TIMEOUT_S
from stateward.domains.edge.policy.crash_loops import end_crash_loops, is_looping
from stateward.domains.edge.policy.demand import ClusterLoad, desired_nodes, plan_deployment
from stateward.domains.edge.records.restarts import is_stable
from stateward.domains.edge.service import Service
from stateward.engine import Denied, NotFound
from stateward.engine.troubles import FaultIsolation
from stateward.schemas.caller import Caller
from stateward.store.errors import StoreError
from stateward.store.filters import Page, Selector
from stateward.store.records import JournalEntry, Key, Object

log = logging.getLogger("stateward.edge")

POLICY_INTERVAL_S = 30.0
"""Seconds between two reconciliations of all apps."""

PAGE_SIZE = 500

STABLE_STATES = (AppInstState.NOT_PRESENT, AppInstState.READY, AppInstState.CREATE_ERROR)
AUTOPROV_CALLER = Caller(who="autoprov")


class PolicyController:
    """Reconciles apps and clusters with their policies."""

    def __init__(
        self,
        service: Service,
        is_first: Callable[[], Awaitable[bool]],
        *,
        interval_s: float = POLICY_INTERVAL_S,
        idle_s: float = IDLE_TIMEOUT_S,
    ) -> None:
        self._service, self._is_first, self._interval_s, self._idle_s = service, is_first, interval_s, idle_s
        self._reader = service.engine.store.reader
        self._faults = FaultIsolation(log)

    async def on_journal(self, entries: Sequence[JournalEntry]) -> None:
        """Release instances that have entered a stable state."""
        settled = [entry for entry in entries if entry.kind == APPINST.kind and entry.target in STABLE_STATES]
        for key in dict.fromkeys(Key(entry.ns, entry.object) for entry in settled):
            with self._faults.isolate(f"release of {key.id} in {key.ns}"):
                await self.release(key)
        undone = [entry for entry in entries if entry.kind == CLUSTERINST.kind and entry.event == "undone"]
        for key in [Key(entry.ns, entry.object) for entry in undone]:
            with self._faults.isolate(f"release of {key.id} in {key.ns}"):
                await self._service.engine.store.transact(partial(restart_idle_timer, key=key, idle_s=self._idle_s))

    async def release(self, key: Key) -> None:
        """Update the app of an AppInst by its current state."""
        await self._service.engine.store.transact(lambda tx: release_instance(tx, key.ns, key.id))

    async def run(self) -> None:
        """Remove the records of absent instances once; then reconcile all apps, in a loop."""
        await self._remove_absent()
        while True:
            with suppress(StoreError):
                if await self._is_first():
                    await self._reconcile_all()
            await asyncio.sleep(self._interval_s)

    async def _remove_absent(self) -> None:
        """Remove the records of NotPresent instances, which earlier versions kept."""
        for ns in await self._reader.namespaces():
            for kind in (CLUSTERINST.kind, APPINST.kind):
                absent = Selector(ns, kind, states=(NOT_PRESENT,))
                while records := await self._reader.list_objects(absent, Page(limit=PAGE_SIZE)):
                    keys = [record.key for record in records]
                    await self._service.engine.store.transact(partial(remove_absent, keys=keys))

    async def _reconcile_all(self) -> None:
        for ns in await self._reader.namespaces():
            cloudlets = await self._service.list_all(ns, CLOUDLET.kind)
            if not cloudlets:
                continue
            online = [cloudlet for cloudlet in cloudlets if is_online(cloudlet)]
            loads = {key.id: known for key, known in (await loads_on(self._reader, online)).items() if known}
            clusters = await self._service.list_all(ns, CLUSTERINST.kind)
            with self._faults.isolate(f"capacity of cloudlets in {ns}"):
                await self._check_capacities(cloudlets, clusters)
            apps = await self._service.list_all(ns, APPINST.kind)
            with self._faults.isolate(f"crash loops in {ns}"):
                await self._end_crash_loops([*clusters, *apps])
            with self._faults.isolate(f"unused clusters in {ns}"):
                await self._free_unused_clusters(clusters, apps)
            with self._faults.isolate(f"scaling of clusters in {ns}"):
                await self._scale_clusters(ns, clusters, loads, await reported_loads_on(self._reader, online))
            instances, serving = {instance.id: instance for instance in apps}, {cloudlet.id for cloudlet in online}
            policies = {policy.id: policy for policy in await self._service.list_all(ns, AUTOPROV.kind)}
            for app in await self._service.list_all(ns, APP.kind):
                policy = policies.get(record_id(AUTOPROV.kind, read_spec(app, AppSpec).autoprov))
                with self._faults.isolate(f"measured demand of {app.id} in {ns}"):
                    if policy is not None and read_spec(policy, AutoprovSpec).demand == "measured":
                        await self._count_demand(ns, app, loads)
                with self._faults.isolate(f"reconciliation of {app.id} in {ns}"):
                    await self._refresh_members(ns, app, instances)
                    if policy is not None:
                        await self._deploy(ns, app, read_spec(policy, AutoprovSpec), serving, instances)

    async def _check_capacities(self, cloudlets: Sequence[Object], clusters: Sequence[Object]) -> None:
        """Begin and end the alerts of cloudlets whose clusters take more than there is."""
        below: dict[str | None, list[Object]] = {}
        for cluster in clusters:
            below.setdefault(cluster.parent, []).append(cluster)
        for cloudlet in cloudlets:
            if has_stale_alert(cloudlet, below.get(cloudlet.id, ())):
                await self._service.engine.store.transact(partial(update_capacity_alert, key=cloudlet.key))

    async def _free_unused_clusters(self, clusters: Sequence[Object], apps: Sequence[Object]) -> None:
        """Free reserved clusters without an app, which earlier versions could leave behind."""
        used = {Key(app.ns, cluster_of(app)) for app in apps}
        unused = [cluster.key for cluster in clusters if is_reserved(cluster) and cluster.key not in used]
        if unused:
            free = partial(free_clusters, keys=unused, idle_s=self._idle_s)
            await self._service.engine.store.transact(free)

    async def _end_crash_loops(self, instances: Sequence[Object]) -> None:
        """End the alerts of instances that have run for long enough."""
        looping = [instance for instance in instances if is_looping(instance_status(instance))]
        if looping:
            now = await self._reader.time()
            stable = [instance.key for instance in looping if is_stable(instance_status(instance).restarted, now)]
            if stable:
                await self._service.engine.store.transact(partial(end_crash_loops, keys=stable))

    async def _scale_clusters(
        self,
        ns: str,
        clusters: Sequence[Object],
        loads: Mapping[str, KnownLoads],
        reported: Mapping[str, ReportedLoad],
    ) -> None:
        """Apply known loads again: a change may have been refused when the load was reported, and is now possible."""
        policies = {
            record.id: read_spec(record, AutoscaleSpec) for record in await self._service.list_all(ns, AUTOSCALE.kind)
        }
        for cluster in clusters:
            kept = loads.get(cloudlet_of(cluster.id), {}).get(local_name(cluster.id))
            known = reported.get(cluster.id) or (None if kept is None else kept.load)
            spec = read_spec(cluster, ClusterInst)
            policy = policies.get(record_id(AUTOSCALE.kind, spec.autoscale))
            if known is None or policy is None:
                continue
            load = ClusterLoad(known.cpu, known.mem, known.connections)
            if desired_nodes(policy, spec.nodes, load) != spec.nodes:
                with suppress(NotFound):
                    await self._service.apply_load(ns, cluster.id, load)

    async def _count_demand(self, ns: str, app: Object, loads: Mapping[str, KnownLoads]) -> None:
        """Count an interval of an app's measured requests."""
        totals: dict[str, CountedRequests] = {}
        for member in app_status(app).members:
            cloudlet = cloudlet_of(member)
            kept = loads.get(cloudlet, {}).get(local_name(member))
            if kept is not None and kept.load.connections is not None:
                before = totals[cloudlet].total if cloudlet in totals else 0
                totals[cloudlet] = CountedRequests(kept.notify, before + kept.load.requests)
        count = partial(count_measured_interval, ns=ns, app=app.id, totals=totals, interval_s=self._interval_s)
        await self._service.engine.store.transact(count)

    async def _refresh_members(self, ns: str, app: Object, instances: Mapping[str, Object]) -> None:
        """Release the members that have settled; one that is newer than the listing only costs a transaction."""
        status = app_status(app)
        for member in status.members:
            instance = instances.get(member)
            if refresh_member(status, member, None if instance is None else instance.state) != status:
                await self.release(Key(ns, member))

    async def reconcile_app(self, ns: str, app: Object) -> None:
        """Deploy and remove instances of an app by its auto-provisioning policy."""
        name = read_spec(app, AppSpec).autoprov
        record = await self._reader.object(Key(ns, record_id(AUTOPROV.kind, name))) if name else None
        if record is None or record.removed:
            return
        policy, members = read_spec(record, AutoprovSpec), app_status(app).members
        keys = [Key(ns, id_) for id_ in {*policy.cloudlets, *members}]
        objects = {key.id: stored for key, stored in (await self._reader.objects(keys)).items() if not stored.removed}
        online = {cloudlet for cloudlet in policy.cloudlets if cloudlet in objects and is_online(objects[cloudlet])}
        await self._deploy(ns, app, policy, online, objects)

    async def _deploy(
        self, ns: str, app: Object, policy: AutoprovSpec, online: Collection[str], instances: Mapping[str, Object]
    ) -> None:
        """Carry out the plan for an app; `instances` has its members, as far as they exist."""
        name, status = app.id.partition(".")[2], app_status(app)
        deployed = (instances[member] for member in status.members if member in instances)
        missing = {instance.id for instance in deployed if instance_status(instance).missing}
        plan = plan_deployment(policy, status, online, missing)
        for cloudlet in plan.deploy:
            with suppress(Denied):
                await self._service.create_app(ns, cloudlet, f"{AUTOCLUSTER_PREFIX}-{name}"[:63], name, AUTOPROV_CALLER)
        for member in plan.remove:
            with suppress(Denied):
                await self._service.delete(ns, member, APPINST.kind, AUTOPROV_CALLER)
