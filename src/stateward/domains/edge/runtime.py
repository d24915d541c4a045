"""The plug-in of the edge domain: its kinds, its API, the agents' connections, and its policies."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cached_property, partial

from litestar.types import ControllerRouterHandler

from stateward.access.lifecycle import TOKEN
from stateward.agents.measure_messages import Load
from stateward.aio.supervise import Loop, background, supervise
from stateward.domains.edge.agents.cloudlet_hub import (
    HEARTBEAT_INTERVAL_S,
    MEASURE_INTERVAL_S,
    ORDER_RETRY_S,
    CloudletHub,
)
from stateward.domains.edge.agents.controller_lease import CONTROLLER_LEASE_S, ControllerLease
from stateward.domains.edge.api.routes import routes
from stateward.domains.edge.cloudlet_maintenance import MaintenanceHandler
from stateward.domains.edge.demo import run_demo
from stateward.domains.edge.handlers import Handlers
from stateward.domains.edge.lifecycle import (
    APP,
    AUTOPROV,
    AUTOSCALE,
    CLOUDLET,
    CLUSTERINST,
    FLAVOR,
    LISTENER,
    MEASURES,
    OVERRIDES,
)
from stateward.domains.edge.lookups import NOT_PRESENT
from stateward.domains.edge.model import ClusterInst, read_spec
from stateward.domains.edge.policy.demand import ClusterLoad
from stateward.domains.edge.policy.policy_controller import POLICY_INTERVAL_S, PolicyController
from stateward.domains.edge.references import guard_record, referenced_records
from stateward.domains.edge.service import REPORT_INTERVALS, Service
from stateward.domains.edge.settings import EdgeSettings
from stateward.engine import Engine, Kind, NotFound, Request
from stateward.plugin.runtime import DomainRuntime, ExpectedChange, PartAction, ProcessContext
from stateward.store.errors import StoreError
from stateward.store.filters import Selector
from stateward.store.records import JournalEntry, Object

log = logging.getLogger("stateward.edge")


class EdgeRuntime(DomainRuntime):
    """The edge domain in a process."""

    service: Service
    agent_hub: CloudletHub
    policy_controller: PolicyController

    def __init__(
        self,
        context: ProcessContext,
        *,
        heartbeat_s: float = HEARTBEAT_INTERVAL_S,
        retry_s: float = ORDER_RETRY_S,
        lease_s: float = CONTROLLER_LEASE_S,
        policy_interval_s: float = POLICY_INTERVAL_S,
        measure_s: float = MEASURE_INTERVAL_S,
    ) -> None:
        self._context = context
        self._settings: EdgeSettings = context.settings.get("edge") or EdgeSettings()
        self._times = {"heartbeat_s": heartbeat_s, "retry_s": retry_s, "measure_s": measure_s}
        self._lease_s, self._policy_interval_s = lease_s, policy_interval_s
        self._handlers = Handlers()
        records = [
            Kind(lifecycle, guard=guard_record, lock_set=referenced_records, spec_actions=("update",))
            for lifecycle in (FLAVOR, APP, AUTOSCALE, AUTOPROV)
        ]
        kinds = [
            *self._handlers.kinds(MaintenanceHandler(self._handlers).enter_maintenance, self._settings),
            *records,
            Kind(LISTENER, general=False),
            Kind(MEASURES, general=False),
        ]
        super().__init__(kinds)

    @cached_property
    def routes(self) -> Sequence[ControllerRouterHandler]:
        """Its HTTP routes, made when a server asks for them."""
        return routes(lambda: self.service, lambda: self.agent_hub, lambda: self.policy_controller)

    def bind_engine(self, engine: Engine) -> None:
        """Create the parts of the domain that need the engine."""
        self._handlers.engine = engine
        self.service = Service(engine, report_s=REPORT_INTERVALS * self._times["measure_s"])
        self.controller_lease = ControllerLease(
            engine, self._context.server_url, lambda: self.agent_hub.disconnect_all(), lease_s=self._lease_s
        )
        times = {"interval_s": self._policy_interval_s, "idle_s": self._settings.idle}
        self.policy_controller = PolicyController(self.service, self.controller_lease.is_first_worker, **times)
        hub = {**self._times, "idle_s": self._settings.idle}
        self.agent_hub = CloudletHub(engine, self.controller_lease.id, self._context.random, self._on_load, **hub)

    async def find_part_actions(self, request: Request, record: Object) -> Sequence[PartAction]:
        """Return the instances that are deleted with their cluster or their cloudlet."""
        if request.action != "delete" or record.kind not in (CLUSTERINST.kind, CLOUDLET.kind):
            return ()
        apps = await self._handlers.instances_below(record)
        facts = request.facts & OVERRIDES
        return [PartAction(Selector(record.ns, ids=tuple(app.id for app in apps)), "delete", facts)] if apps else ()

    async def describe_effects(self, request: Request, changes: Sequence[ExpectedChange]) -> Sequence[str]:  # noqa: ARG002
        """Return how many nodes of cloudlets the deletion of clusters frees."""
        clusters = [
            change.object
            for change in changes
            if change.object.kind == CLUSTERINST.kind and change.desired == NOT_PRESENT
        ]
        nodes = sum(read_spec(cluster, ClusterInst).nodes for cluster in clusters)
        return (f"{nodes:,} {'node is' if nodes == 1 else 'nodes are'} freed",) if nodes else ()

    async def _on_load(self, ns: str, cluster: str, load: Load) -> None:
        with suppress(NotFound):  # it was deleted meanwhile
            await self.service.apply_load(ns, cluster, ClusterLoad(load.cpu, load.mem, load.connections))

    @asynccontextmanager
    async def running(self, engine: Engine, *, works: bool) -> AsyncIterator[None]:
        """Serve the agents; where there is a worker, apply policies."""
        last_seq = await engine.store.reader.last_journal_seq()
        await self.controller_lease.acquire(works=works)
        await self.agent_hub.record_disconnects(await self.controller_lease.lost_connections())
        loops: dict[str, Loop] = {"edge controller lease": self.controller_lease.keep_renewing}
        if works:
            loops["edge policy controller"] = self.policy_controller.run
        supervised = [supervise(name, loop, log, transient=StoreError) for name, loop in loops.items()]
        agents = self.agent_hub.running(last_seq, partial(self._on_journal, works=works))
        try:
            async with agents, background(*supervised):
                yield
        finally:
            await self.controller_lease.release()

    async def _on_journal(self, page: Sequence[JournalEntry], *, works: bool) -> None:
        """Pass new journal entries to the agent hub and the policy controller."""
        entries = [entry for entry in page if entry.kind.startswith("edge.") or entry.kind == TOKEN.kind]
        if any(entry.kind == LISTENER.kind and entry.event != "listen" for entry in entries):
            await self.agent_hub.record_disconnects(await self.controller_lease.lost_connections())
        self.agent_hub.on_journal(entries)
        if works:
            await self.policy_controller.on_journal(entries)

    async def demo(self, engine: Engine) -> None:  # noqa: ARG002 - the service has it
        """Run the demo until cancelled."""
        await run_demo(self.service, self.agent_hub, self._context.random)


def create_runtime(context: ProcessContext) -> DomainRuntime:
    """Create the plug-in."""
    settings: EdgeSettings = context.settings.get("edge") or EdgeSettings()
    return EdgeRuntime(
        context,
        heartbeat_s=settings.beat,
        measure_s=settings.measures,
        policy_interval_s=settings.policies,
    )
