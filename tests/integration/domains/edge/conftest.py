"""The edge domain on a real store, with agents on simulated sites and in-process connections."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from stateward.access.quotas import quota_kind
from stateward.access.tokens import token_kind
from stateward.agents.agent import Agent
from stateward.agents.inprocess import InProcessDialer
from stateward.agents.self_upgrade import NoUpgrade
from stateward.agents.simulation import SimulatedSite
from stateward.agents.site import UNKNOWN_CAPACITY, SiteCapacity
from stateward.domains.edge.agents.cloudlet_hub import CloudletHub
from stateward.domains.edge.lifecycle import APP, AUTOPROV, AUTOSCALE, FLAVOR
from stateward.domains.edge.model import (
    AppSpec,
    AutoprovSpec,
    AutoscaleSpec,
    CloudletSpec,
    ClusterInst,
    FlavorSpec,
    InstanceStatus,
    cloudlet_status,
    instance_status,
)
from stateward.domains.edge.runtime import EdgeRuntime
from stateward.domains.edge.service import Service
from stateward.engine import Accepted, Engine, HistoryEntry, NotFound
from stateward.plugin.runtime import ProcessContext
from stateward.schemas.caller import Caller
from stateward.store.changes import Changes
from stateward.store.port import Store, Tx
from stateward.store.records import Key, Object, Operation
from tests.waiting import until

NS = "lab"
ANN = Caller("user", "ann")
ADA = Caller("admin", "ada")
PATIENT = 60.0


class AgentRunner:
    """An agent at work in this process, with its site."""

    def __init__(
        self,
        cloudlet: str,
        site: SimulatedSite,
        version: str = "1.0",
        installation: str = "",
        capacity: SiteCapacity = UNKNOWN_CAPACITY,
        backends: Sequence[str] = (),
    ) -> None:
        self.backends = dict.fromkeys(backends, site) or None
        self.site, self.dialer, self.version = site, InProcessDialer(None, NS, cloudlet), version
        self.installation, self.capacity = installation, capacity
        self.task: asyncio.Task[None] | None = None

    def start(self, hub: CloudletHub) -> None:
        self.dialer.handler = hub
        self.agent = Agent(
            self.site,
            self.dialer,
            self.version,
            NoUpgrade(),
            observe_interval_s=0.05,
            installation=self.installation,
            capacity=self.capacity,
            backends=self.backends,
        )
        self.task = asyncio.create_task(self.agent.run())

    async def kill(self) -> None:
        """End the agent as if it had crashed; its site stays."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        self.dialer.break_connections()


class EdgeHarness:
    """The domain with its engine, and waits for states and conditions."""

    def __init__(self, engine: Engine, plugin: EdgeRuntime) -> None:
        self.engine, self.plugin = engine, plugin
        self.runners: list[AgentRunner] = []

    @property
    def service(self) -> Service:
        return self.plugin.service

    @property
    def hub(self) -> CloudletHub:
        return self.plugin.agent_hub

    async def cloudlet(self, name: str = "munich", runner: AgentRunner | None = None, **spec: Any) -> AgentRunner:
        """Create a cloudlet with an agent, and wait until it is ready."""
        accepted = await self.service.create_cloudlet(NS, name, CloudletSpec(**spec), ANN)
        runner = self.start(runner or AgentRunner(name, SimulatedSite()))
        await self.ended(accepted)
        return runner

    def start(self, runner: AgentRunner) -> AgentRunner:
        """Start an agent."""
        self.runners.append(runner)
        runner.start(self.hub)
        return runner

    async def cluster(self, name: str = "c1", cloudlet: str = "munich", **spec: Any) -> Operation:
        """Create a cluster, and wait for the end of the operation."""
        return await self.ended(await self.service.create_cluster(NS, cloudlet, name, ClusterInst(**spec), ANN))

    async def app(self, name: str = "web", **spec: Any) -> Object:
        """Define an app."""
        return await self.service.put_record(
            NS, APP.kind, name, AppSpec(spec.pop("command", "sleep 1000"), **spec), ANN
        )

    async def flavor(self, name: str = "m4") -> Object:
        return await self.service.put_record(NS, FLAVOR.kind, name, FlavorSpec("tiny"), ANN)

    async def autoprov(self, name: str, *cloudlets: str, **spec: Any) -> Object:
        return await self.service.put_record(NS, AUTOPROV.kind, name, AutoprovSpec(cloudlets, **spec), ANN)

    async def autoscale(self, name: str, **spec: Any) -> Object:
        return await self.service.put_record(NS, AUTOSCALE.kind, name, AutoscaleSpec(**spec), ANN)

    async def deployed(self, app: str = "web", cluster: str = "c1", cloudlet: str = "munich") -> Operation:
        """Deploy an app, and wait for the end of the operation."""
        return await self.ended(await self.service.create_app(NS, cloudlet, cluster, app, ANN))

    async def ended(self, accepted: Accepted) -> Operation:
        """Wait for the end of an operation."""
        return await self.engine.wait_record(accepted.op.ns, accepted.op.id, PATIENT)

    async def get(self, id_: str) -> Object:
        """Return an object, even a removed one: a NotPresent instance is removed."""
        found = await self.engine.store.reader.object(Key(NS, id_))
        if found is None:
            raise NotFound(NS, id_)
        return found

    async def state(self, id_: str) -> str:
        return (await self.get(id_)).state

    async def history(self, id_: str) -> list[HistoryEntry]:
        return await self.engine.history(NS, id_)

    async def until(self, id_: str, *states: str) -> Object:
        """Wait until an object is in one of these states."""
        return await self.until_true(id_, lambda one: one.state in states)

    async def until_true(self, id_: str, condition: Callable[[Object], bool]) -> Object:
        async with asyncio.timeout(PATIENT):
            while True:
                found = await self.get(id_)
                if condition(found):
                    return found
                await asyncio.sleep(0.005)

    async def until_renewed(self, id_: str, generation: int) -> None:
        """Wait until an instance is Ready in a later generation."""
        await self.until_true(id_, lambda one: one.state == "Ready" and instance_status(one).generation > generation)

    async def until_progress(self, accepted: Accepted, lines: int) -> None:
        """Wait until an operation has so many lines of progress."""
        await until(
            lambda: self.engine.store.reader.progress_of(accepted.op.key, 0), lambda entries: len(entries) >= lines
        )

    async def online(self, name: str = "munich") -> Object:
        return await self.until_true(name, lambda one: one.state == "Ready" and cloudlet_status(one).serving > 0)

    async def instance_status(self, id_: str) -> InstanceStatus:
        return instance_status(await self.get(id_))

    async def close(self) -> None:
        for runner in self.runners:
            await runner.kill()


def hold_work(runner: AgentRunner) -> asyncio.Event:
    """Make creates and updates of an agent wait for the returned event; deletes do not wait."""
    gate = asyncio.Event()
    runner.site.gate = lambda order: gate if order.work != "delete" else None
    return gate


async def pass_deadline(harness: EdgeHarness, op: str) -> None:
    """Move the deadline of an operation into the past."""

    async def expire(tx: Tx) -> None:
        (work,) = (await tx.work([Key(NS, op)])).values()
        await tx.apply(Changes(work=[replace(work, deadline=tx.now - 1, not_before=tx.now - 1)]))

    await harness.engine.store.transact(expire)


@asynccontextmanager
async def open_harness(store: Store, folder: Path, *, works: bool = True, **times: float) -> AsyncIterator[EdgeHarness]:
    """Open the domain on a store."""
    plugin = EdgeRuntime(
        ProcessContext(folder, random=Random(1)),
        **{"retry_s": 0.5, "policy_interval_s": 3600.0, "lease_s": 30.0, "measure_s": 0.05, **times},
    )
    engine = Engine(store, [token_kind(), quota_kind(), *plugin.kinds], works=works, lease_s=30.0)
    plugin.bind_engine(engine)
    async with engine, plugin.running(engine, works=works):
        harness = EdgeHarness(engine, plugin)
        try:
            yield harness
        finally:
            await harness.close()


@pytest.fixture
async def harness(new_store: Callable[[], Store], tmp_path: Path) -> AsyncIterator[EdgeHarness]:
    """The edge domain with its background tasks."""
    async with open_harness(new_store(), tmp_path) as opened:
        yield opened
