"""The operations of the edge domain; each is one atomic request to the engine."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.edge.agents.cloudlet_hub import MEASURE_INTERVAL_S
from stateward.domains.edge.agents.measures import loads_on, store_reported_load
from stateward.domains.edge.cloudlet_guards import end_facts
from stateward.domains.edge.errors import AgentConnectionChanged
from stateward.domains.edge.handlers import instance_creation, related_ids
from stateward.domains.edge.lifecycle import (
    APP,
    APPINST,
    AUTOPROV,
    AUTOSCALE,
    CLOUDLET,
    CLUSTERINST,
    DEPENDENCIES,
)
from stateward.domains.edge.lookups import NOT_PRESENT
from stateward.domains.edge.model import (
    AUTOCLUSTER_PREFIX,
    AppSpec,
    AutoscaleSpec,
    CloudletSpec,
    ClusterInst,
    KeptLoad,
    ReportedLoad,
    app_id,
    cloudlet_of,
    cluster_id,
    local_name,
    read_spec,
    record_id,
)
from stateward.domains.edge.policy.capacity import ResourceAmounts, used_amounts
from stateward.domains.edge.policy.cluster_release import count_interval
from stateward.domains.edge.policy.demand import ClusterLoad, desired_nodes
from stateward.engine import Accepted, AlreadyExists, Denied, Engine, NotFound, Refused
from stateward.engine.errors import KeyReused
from stateward.engine.queries import list_all
from stateward.engine.requests import Creation
from stateward.errors import BadInput
from stateward.schemas.caller import Caller
from stateward.store.filters import Page, Selector
from stateward.store.records import Key, Object

FIX_TRIES = 3
REPORT_INTERVALS = 6
"""For how many intervals of measurement a reported load counts instead of the measured one."""


class Service:
    """The edge domain's operations, for its API, its policies and its demo."""

    def __init__(self, engine: Engine, *, report_s: float = REPORT_INTERVALS * MEASURE_INTERVAL_S) -> None:
        self.engine, self._report_s = engine, report_s

    # --- cloudlets ---------------------------------------------------------------------------------------------------

    async def create_cloudlet(self, ns: str, name: str, spec: CloudletSpec, by: Caller) -> Accepted:
        """Create a cloudlet, or create a deleted one again; it waits for its agent to connect."""
        return await self._create(ns, name, Creation(CLOUDLET.kind), by, spec=spec)

    async def fix(self, ns: str, name: str, by: Caller) -> Accepted:
        """Clear a failed upgrade: the cloudlet is Ready if its agent is connected, otherwise Offline.

        If the upgrade began in maintenance, it is in maintenance again.
        """
        return await self._bring_back(ns, name, "fix", by)

    async def resume(self, ns: str, name: str, by: Caller) -> Accepted:
        """End the maintenance of a cloudlet: it is Ready if its agent is connected, otherwise Offline."""
        return await self._bring_back(ns, name, "resume", by)

    async def _bring_back(self, ns: str, name: str, action: str, by: Caller) -> Accepted:
        for _ in range(FIX_TRIES):
            facts = by.facts | end_facts(await self.get(ns, name, CLOUDLET.kind), action)
            with suppress(AgentConnectionChanged):
                return await self.act(ns, name, CLOUDLET.kind, action, replace(by, facts=facts))
        raise AgentConnectionChanged(name)

    # --- instances ---------------------------------------------------------------------------------------------------

    async def create_cluster(self, ns: str, cloudlet: str, name: str, spec: ClusterInst, by: Caller) -> Accepted:
        """Create a cluster on a cloudlet."""
        if name.startswith(AUTOCLUSTER_PREFIX):
            raise BadInput("name", name, f"a name that does not begin with {AUTOCLUSTER_PREFIX}")
        creation = instance_creation(CLUSTERINST.kind, cloudlet)
        return await self._create(ns, cluster_id(cloudlet, name), creation, by, (cloudlet,), spec=spec)

    async def create_app(self, ns: str, cloudlet: str, cluster: str, app: str, by: Caller) -> Accepted:
        """Deploy an app in a cluster, or on an autocluster."""
        record = await self.get_record(ns, APP.kind, app)
        policy = read_spec(record, AppSpec).autoprov
        also_locks = [cloudlet, cluster_id(cloudlet, cluster), record.id]
        if policy:
            also_locks.append(record_id(AUTOPROV.kind, policy))
        facts = by.facts | {DEPENDENCIES} if cluster.startswith(AUTOCLUSTER_PREFIX) else by.facts
        caller = Caller(by.actor, by.who, facts, by.key)
        creation = instance_creation(APPINST.kind, cloudlet)
        return await self._create(ns, app_id(cloudlet, cluster, app), creation, caller, also_locks)

    async def update(self, ns: str, id_: str, kind: str, change: dict[str, Any], by: Caller) -> Accepted:
        """Update an instance."""
        return await self.act(ns, id_, kind, "update", by, args={"change": change})

    async def refresh(self, ns: str, id_: str, by: Caller) -> Accepted:
        """Update an AppInst to the current record of its app."""
        return await self.act(ns, id_, APPINST.kind, "update", by, args={"refresh": True})

    async def delete(self, ns: str, id_: str, kind: str, by: Caller) -> Accepted:
        """Delete a cloudlet or an instance."""
        return await self.act(ns, id_, kind, "delete", by)

    async def _create(
        self,
        ns: str,
        id_: str,
        creation: Creation,
        by: Caller,
        also_locks: Iterable[str] = (),
        spec: CloudletSpec | ClusterInst | None = None,
    ) -> Accepted:
        """Create a cloudlet or an instance, new or from an existing record. A repeated call gets the same answer.

        These are two different requests, and a verdict on one of them, even a refusal, uses the idempotency key. So the
        first request is the one that fits the record; the second is tried only if the key is not the first's.
        """
        how: dict[str, Any] = {"actor": by.actor, "who": by.who, "facts": by.facts, "spec": spec, "key": by.key}
        how["also_locks"] = tuple(also_locks)
        new = self.engine.request(ns, id_, "create", creates=creation, **how)
        again = self.engine.request(ns, id_, "create", **how)
        existing = await self.engine.store.reader.object(Key(ns, id_))
        is_there = existing is not None and not existing.removed and existing.kind == creation.kind
        first, second = (again, new) if is_there else (new, again)
        try:
            return await self.engine.submit(first)
        except (AlreadyExists, KeyReused) as denied:
            existing = await self.engine.store.reader.object(Key(ns, id_))
            is_keyed = by.key is not None and isinstance(denied, AlreadyExists)
            if is_keyed or existing is None or existing.kind != creation.kind:
                raise
        return await self.engine.submit(second)

    async def act(
        self, ns: str, id_: str, kind: str, action: str, by: Caller, args: dict[str, Any] | None = None
    ) -> Accepted:
        """Request an action on a cloudlet or an instance; its guard checks the arguments."""
        record = await self._get_even_removed(ns, id_, kind)
        how: dict[str, Any] = {"actor": by.actor, "who": by.who, "facts": by.facts, "args": args, "key": by.key}
        also_locks = related_ids(record) if kind in (CLUSTERINST.kind, APPINST.kind) else ()
        try:
            return await self.engine.act(ns, id_, action, also_locks=also_locks, **how)
        except Refused:
            if record.state == NOT_PRESENT:  # earlier versions kept such records
                raise NotFound(ns, id_) from None
            raise

    # --- flavors, apps, policies -------------------------------------------------------------------------------------

    async def put_record(self, ns: str, kind: str, name: str, spec: Struct, by: Caller) -> Object:
        """Create or replace a flavor, an app or a policy."""
        id_ = record_id(kind, name)
        how: dict[str, Any] = {"spec": spec, "actor": by.actor, "who": by.who}
        try:
            return (await self.engine.create(ns, id_, kind, **how)).object
        except AlreadyExists:
            return (await self.engine.act(ns, id_, "update", **how)).object

    async def delete_record(self, ns: str, kind: str, name: str, by: Caller) -> None:
        """Delete a flavor, an app or a policy."""
        await self.engine.act(ns, (await self.get_record(ns, kind, name)).id, "delete", actor=by.actor, who=by.who)

    async def get_record(self, ns: str, kind: str, name: str) -> Object:
        """Return a flavor, an app or a policy."""
        return await self.get(ns, record_id(kind, name), kind)

    # --- queries -----------------------------------------------------------------------------------------------------

    async def get(self, ns: str, id_: str, kind: str) -> Object:
        """Return an object of a kind; raises `NotFound` if there is none, or if it is NotPresent."""
        record = await self._get_even_removed(ns, id_, kind)
        if record.removed or record.state == NOT_PRESENT:
            raise NotFound(ns, id_)
        return record

    async def _get_even_removed(self, ns: str, id_: str, kind: str) -> Object:
        """Return an object of a kind, even a removed one, so that a repeated call gets the same answer."""
        record = await self.engine.store.reader.object(Key(ns, id_))
        if record is None or record.kind != kind:
            raise NotFound(ns, id_)
        return record

    async def list_page(self, ns: str, kind: str, page: Page, parent: str | None = None) -> list[Object]:
        """Return a page of the objects of a kind that exist."""
        return await self.engine.store.reader.list_objects(Selector(ns, kind, parent), page)

    async def list_all(self, ns: str, kind: str, parent: str | tuple[str, ...] | None = None) -> list[Object]:
        """Return all objects of a kind that exist."""
        records = list_all(self.engine.store.reader, Selector(ns, kind, parent))
        return [record async for record in records if record.state != NOT_PRESENT]

    async def loads_of(self, ns: str, instances: Sequence[Object]) -> dict[str, KeptLoad]:
        """Return the known loads of instances, by id; two queries read those of all cloudlets."""
        keys = [Key(ns, name) for name in dict.fromkeys(cloudlet_of(instance.id) for instance in instances)]
        cloudlets = await self.engine.store.reader.objects(keys) if keys else {}
        loads = await loads_on(self.engine.store.reader, list(cloudlets.values()))
        pairs = (
            (instance.id, loads.get(Key(ns, cloudlet_of(instance.id)), {}).get(local_name(instance.id)))
            for instance in instances
        )
        return {name: kept for name, kept in pairs if kept is not None}

    async def used_capacities(self, ns: str, cloudlets: Sequence[Object]) -> dict[str, ResourceAmounts]:
        """Return what the clusters on cloudlets take, by cloudlet."""
        below: dict[str | None, list[Object]] = {}
        for cluster in await self.list_all(ns, CLUSTERINST.kind, tuple(cloudlet.id for cloudlet in cloudlets)):
            below.setdefault(cluster.parent, []).append(cluster)
        return {cloudlet.id: used_amounts(below.get(cloudlet.id, ())) for cloudlet in cloudlets}

    # --- demand ------------------------------------------------------------------------------------------------------

    async def report_load(self, ns: str, cluster: str, load: ClusterLoad) -> Accepted | None:
        """Apply a cluster's load that a program reports; measured loads do not count for a while."""
        if read_spec(await self.get(ns, cluster, CLUSTERINST.kind), ClusterInst).autoscale:
            kept = ReportedLoad(self._report_s, load.cpu, load.mem, load.connections)
            await self.engine.store.transact(partial(store_reported_load, cluster=Key(ns, cluster), load=kept))
        return await self.apply_load(ns, cluster, load)

    async def apply_load(self, ns: str, cluster: str, load: ClusterLoad) -> Accepted | None:
        """Apply a cluster's load; its autoscale policy may change the number of nodes."""
        record = await self.get(ns, cluster, CLUSTERINST.kind)
        spec = read_spec(record, ClusterInst)
        if not spec.autoscale:
            return None
        policy = read_spec(await self.get_record(ns, AUTOSCALE.kind, spec.autoscale), AutoscaleSpec)
        nodes = desired_nodes(policy, spec.nodes, load)
        if nodes == spec.nodes:
            return None
        try:
            return await self.update(ns, cluster, CLUSTERINST.kind, {"nodes": nodes}, Caller(who="autoscale"))
        except Denied:
            return None  # another operation runs; the policy controller tries again

    async def report_demand(self, ns: str, app: str, requests: dict[str, int]) -> None:
        """Count an interval of an app's requests, by cloudlet."""
        await self.get_record(ns, APP.kind, app)
        await self.engine.store.transact(lambda tx: count_interval(tx, ns, app, requests))
