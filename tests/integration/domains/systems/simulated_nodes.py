"""Simulated nodes: real agents, hub and backend in one process, with sites that run nothing."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import msgspec

from stateward.agents.agent import Agent
from stateward.agents.inprocess import InProcessDialer
from stateward.agents.messages import (
    AgentOrder,
    CommandRequest,
    Existing,
    LogPart,
    LogRequest,
    OrderAction,
    SiteBackend,
)
from stateward.agents.node_messages import FoundImage, ImageAnswer, ImageRequest, VolumeRemoval, VolumesRemoved
from stateward.agents.self_upgrade import NoUpgrade
from stateward.agents.site import (
    AgentSite,
    ReportProgress,
    SiteCapacity,
    SiteCommandResult,
    SiteError,
    ThingStatus,
)
from stateward.aio.supervise import cancel_tasks
from stateward.domains.systems.backends.nodes_backend import NodesBackend
from stateward.domains.systems.backends.port import InstancePhase, ServiceInstance
from stateward.domains.systems.definition import read
from stateward.domains.systems.job_service import JobActions
from stateward.domains.systems.nodes.node_actions import NodeActions
from stateward.domains.systems.nodes.node_model import NodeOrder, node_status
from stateward.domains.systems.nodes.node_records import lose_node
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.domains.systems.service import SystemActions
from stateward.domains.systems.settings import SystemsSettings
from stateward.engine import Accepted, Engine
from stateward.lifecycle import ADMIN
from stateward.schemas.caller import Caller
from stateward.store.port import Store
from stateward.store.records import Key, Operation, to_json
from tests.integration.domains.systems.conftest import NS, PATIENT
from tests.waiting import until

SIZE = SiteCapacity(4.0, 2**30, 10, "127.0.0.1")


class SimulatedNodeSite(AgentSite):
    """The instances of a node that runs nothing: each one is up, or has ended with a status."""

    def __init__(self) -> None:
        self.orders: dict[str, tuple[int, NodeOrder]] = {}
        self.ends: dict[str, int] = {}
        """The exit statuses of instances that run once, by the names of the instances; the others run on."""
        self.started: Counter[str] = Counter()
        self.halted: set[str] = set()
        self.failure = ""
        self.volumes: set[str] = set()
        """The systems that have volumes here; while the engine is down, none can be removed."""
        self.is_engine_down = False
        self.had_volumes: list[bool] = []
        """Whether there were volumes of its system, at each start of an instance that needs some."""

    async def observe(self) -> Mapping[str, Existing]:
        """Return what was ordered."""
        return {name: Existing(generation) for name, (generation, _) in self.orders.items()}

    async def execute(self, order: AgentOrder, report_progress: ReportProgress) -> None:
        """Note an order."""
        if order.work is OrderAction.DELETE:
            self.orders.pop(order.name, None)
            return
        if order.work is OrderAction.UPDATE:
            self.halted.add(order.name)
            self.orders[order.name] = order.generation, msgspec.json.decode(order.spec, type=NodeOrder)
            return
        self.started[order.name] += 1
        if self.failure:
            raise SiteError(self.failure)
        wanted = msgspec.json.decode(order.spec, type=NodeOrder)
        if wanted.want.service.volumes:
            self.had_volumes.append(wanted.system in self.volumes)
            self.volumes.add(wanted.system)
        self.orders[order.name] = order.generation, wanted

    async def statuses(self) -> AsyncIterator[ThingStatus]:
        """Yield the states of the instances that have changed."""
        told: dict[str, ThingStatus] = {}
        while True:
            current = {name: self._status(name, *found) for name, found in self.orders.items()}
            for name, one in current.items():
                if told.get(name) != one:
                    yield one
            told = current
            await asyncio.sleep(0.01)

    def _status(self, name: str, generation: int, order: NodeOrder) -> ThingStatus:
        want = order.want
        seen = ServiceInstance(want.name, want.revision, InstancePhase.UP, ready=True)
        if name in self.halted or (want.run_once and want.name in self.ends):
            status = None if name in self.halted else self.ends[want.name]
            seen = ServiceInstance(
                want.name, want.revision, InstancePhase.ENDED, exit_status=status, why=f"ended with {status}"
            )
        return ThingStatus(name, generation, to_json(seen))

    async def read_log(self, request: LogRequest) -> Sequence[LogPart]:
        """Return a line."""
        _, order = self.orders[request.name]
        return [LogPart(order.want.name, f"output of {order.want.name}\n", "1")]

    async def run_command(self, request: CommandRequest) -> SiteCommandResult:
        """Return the words of a command."""
        return SiteCommandResult(0, " ".join(request.argv))

    async def find_images(self, request: ImageRequest) -> ImageAnswer:
        """Return the names of images as their ids."""
        found = tuple(FoundImage(one.image) for one in request.images)
        return ImageAnswer(request.request, request.notify, found)

    async def remove_volumes(self, request: VolumeRemoval) -> VolumesRemoved:
        """Remove the volumes of systems."""
        if self.is_engine_down:
            raise SiteError("the engine is down")
        self.volumes -= set(request.systems)
        return VolumesRemoved(request.request, request.notify)

    async def close(self) -> None:
        """Do nothing."""


class EndlessLease:
    """A lease that does not end by itself."""

    def __init__(self) -> None:
        self._number = 0

    async def settle(self) -> bool:
        """Stop nothing."""
        return False

    def begin(self, seconds: float) -> None:
        """Note nothing."""

    def note_heartbeat(self) -> int:
        """Return the next number."""
        self._number += 1
        return self._number

    def renew(self, number: int) -> None:
        """Renew nothing."""


class SimulatedNode:
    """A node with its agent."""

    def __init__(self, name: str, site: SimulatedNodeSite | None = None, capacity: SiteCapacity = SIZE) -> None:
        self.name, self.site, self._capacity = name, site or SimulatedNodeSite(), capacity
        self.dialer = InProcessDialer(None, NS, name)
        self._task: asyncio.Task[None] | None = None

    def connect(self, nodes: "SimulatedNodes", *, has_engine: bool = True) -> None:
        """Start the agent, with or without a container engine, or let it connect again."""
        self.dialer.handler = nodes.plugin.nodes.hub
        if self._task is None:
            agent = Agent(
                self.site,
                self.dialer,
                "1.0",
                NoUpgrade(),
                installation=self.name,
                capacity=self._capacity,
                lease=EndlessLease(),
                statuses=self.site.statuses,
                backends=dict.fromkeys(tuple(SiteBackend) if has_engine else (SiteBackend.PROCESS,), self.site),
                engine=self.site if has_engine else None,
            )
            self._task = asyncio.create_task(agent.run())

    def cut(self) -> None:
        """Break the connection; no other one is made."""
        self.dialer.handler = None
        self.dialer.break_connections()

    async def stop(self) -> None:
        """End the agent."""
        if self._task is not None:
            await cancel_tasks([self._task])
            self._task = None


class SimulatedNodes:
    """The domain with a system `shop` on simulated nodes."""

    def __init__(self, engine: Engine, plugin: SystemsRuntime, backend: NodesBackend) -> None:
        self.engine, self.plugin, self.backend = engine, plugin, backend
        self.nodes: dict[str, SimulatedNode] = {}
        self.node_actions = NodeActions(engine, NS, Caller(ADMIN, "ann"))
        self.actions, self.jobs = SystemActions(engine, NS, "ann"), JobActions(engine, NS, "ann")

    async def join(self, *names: str, capacity: SiteCapacity = SIZE) -> None:
        """Register nodes, start their agents, and wait for them."""
        for name in names:
            await self.node_actions.register(name, {})
            self.nodes[name] = SimulatedNode(name, capacity=capacity)
            self.nodes[name].connect(self)
        for name in names:
            await until(lambda name=name: self.is_node(name, "ready"))  # type: ignore[misc]

    async def is_node(self, name: str, state: str) -> bool:
        """Tell whether a node is in a state."""
        return (await self.node_actions.node(name)).state == state

    async def lose(self, name: str) -> None:
        """Cut a node off, and declare it lost as if its lease had ended."""
        self.nodes[name].cut()
        await until(lambda: self.is_disconnected(name))
        known = node_status(await self.node_actions.node(name)).renewals
        kinds = self.engine.kinds
        assert await self.engine.store.transact(lambda tx: lose_node(tx, kinds, Key(NS, name), known))

    async def is_disconnected(self, name: str) -> bool:
        """Tell whether no agent of a node is connected."""
        return not node_status(await self.node_actions.node(name)).connected

    async def deploy(self, text: str) -> Operation:
        """Deploy a definition, and wait for the end."""
        return await self.ended(await self.actions.deploy("shop", "/", read(text)))

    async def ended(self, accepted: Accepted) -> Operation:
        """Wait for the end of an operation."""
        return await self.engine.wait_record(accepted.op.ns, accepted.op.id, PATIENT)

    def started(self) -> dict[str, list[str]]:
        """Return the instances that nodes have started, by their names, with the nodes; twice if twice."""
        found: dict[str, list[str]] = {}
        for node in self.nodes.values():
            for name in node.site.started.elements():
                found.setdefault(name.rpartition("~")[2], []).append(node.name)
        return found


@asynccontextmanager
async def simulated_nodes(store: Store, folder: Path, *, is_new: bool = True) -> AsyncIterator[SimulatedNodes]:
    """Run the domain, without any node yet, or on the store of a former process."""
    backend = NodesBackend(folder / "addresses", Random(1))
    plugin = SystemsRuntime({"nodes": backend}, SystemsSettings(node_lease=60.0))
    engine = Engine(store, plugin.kinds)
    plugin.bind_engine(engine)
    async with engine, plugin.running(engine, works=True):
        opened = SimulatedNodes(engine, plugin, backend)
        if is_new:
            await opened.ended(await opened.actions.create("shop", "nodes"))
        try:
            yield opened
        finally:
            for node in opened.nodes.values():
                await node.stop()
