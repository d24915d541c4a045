"""Apps of containers: 1,000 apps over 50 agents against the ideal schedule, and the cost of their status.

The ideal schedule knows no overhead at all. To start an app of one container takes six calls to its engine, one after
the other, of 0.5 s each, as the start of a real container takes: the image, the creation, what there was before (its
containers and volumes), the start, and the look. Then there is the half second that an app must run. An agent changes 8
containers at a time, so the creations and starts of its 20 apps need ceil(2 * 20 / 8) rounds; all other calls of all
apps are made at the same time, and all agents work at the same time.

Controller and agents share one process here, and the engines are simulated: no container takes a processor from them.
The agents' folders are in memory: in reality each agent has a disk of its own, and here one would write for all.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import ceil
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from bench.engine.databases import new_file, store_at
from bench.figures import Line, plain, ratio
from bench.loops import run
from stateward.access.quotas import quota_kind
from stateward.access.tokens import token_kind
from stateward.agents.agent import Agent
from stateward.agents.inprocess import InProcessDialer
from stateward.agents.messages import AgentOrder, OrderAction, SiteBackend
from stateward.agents.self_upgrade import NoUpgrade
from stateward.aio.supervise import cancel_tasks
from stateward.domains.edge.lifecycle import APP
from stateward.domains.edge.model import AppSpec, CloudletSpec, ClusterInst
from stateward.domains.edge.runtime import EdgeRuntime
from stateward.domains.edge.sites.app_manifest import AppPart
from stateward.domains.edge.sites.container_calls import PARALLEL_CALLS
from stateward.domains.edge.sites.container_site import STABLE_AFTER_S, ContainerSite
from stateward.engine import Accepted, Engine
from stateward.lifecycle import USER
from stateward.plugin.runtime import ProcessContext
from stateward.schemas.caller import Caller
from stateward.store.records import to_json
from stateward.testing.containers import SimulatedEngine

NS, IMAGE = "lab", "web:1"
BY = Caller(USER, "bench")
AGENTS, EACH = 50, 20
APPS = AGENTS * EACH
CALL_S = 0.5
ROUNDS_OF_ALL, LIMITED_CALLS = 4, 2
"""How many calls of an app all apps make at once, and how many are limited."""

TARGET = 1.5
"""How many times the ideal schedule it may take."""

HOUR_S = 3600.0
MEMORY = Path("/dev/shm")


def ideal() -> float:
    """Return how many seconds the ideal schedule takes."""
    return (ROUNDS_OF_ALL + ceil(LIMITED_CALLS * EACH / PARALLEL_CALLS)) * CALL_S + STABLE_AFTER_S


class ContainerFleet:
    """A controller, and agents with an engine each."""

    def __init__(self, engine: Engine, plugin: EdgeRuntime, folder: Path) -> None:
        self.engine, self.plugin = engine, plugin
        self.engines = [SimulatedEngine([IMAGE]) for _ in range(AGENTS)]
        self.sites = [
            ContainerSite(folder / f"site{number}", one, f"{number:032x}") for number, one in enumerate(self.engines)
        ]
        self.tasks: list[asyncio.Task[None]] = []

    async def prepare(self) -> None:
        """Make the cloudlets, their agents, a cluster each, and the apps."""
        service, backend = self.plugin.service, CloudletSpec(backend=SiteBackend.CONTAINER)
        made = await asyncio.gather(*(service.create_cloudlet(NS, f"s{n}", backend, BY) for n in range(AGENTS)))
        for number, site in enumerate(self.sites):
            dialer = InProcessDialer(self.plugin.agent_hub, NS, f"s{number}")
            agent = Agent(
                site, dialer, "1", NoUpgrade(), observe_interval_s=HOUR_S, backends={SiteBackend.CONTAINER: site}
            )
            self.tasks.append(asyncio.create_task(agent.run()))
        await self.end(made)
        clusters = (service.create_cluster(NS, f"s{n}", "c1", ClusterInst(nodes=4), BY) for n in range(AGENTS))
        await self.end(await asyncio.gather(*clusters))
        for number in range(EACH):
            await service.put_record(NS, APP.kind, f"a{number}", AppSpec(parts=(AppPart("web", IMAGE),)), BY)

    async def end(self, accepted: list[Accepted]) -> None:
        """Wait for the end of operations, which succeed."""
        ended = await asyncio.gather(*(self.engine.wait_record(NS, one.op.id) for one in accepted))
        assert all(one.status == "succeeded" for one in ended), {one.error for one in ended}

    async def deploy(self) -> float:
        """Deploy all apps; returns the seconds until all were accepted."""
        began, service = perf_counter(), self.plugin.service
        made = [service.create_app(NS, f"s{n}", "c1", f"a{app}", BY) for app in range(EACH) for n in range(AGENTS)]
        accepted = await asyncio.gather(*made)
        seconds = perf_counter() - began
        await self.end(list(accepted))
        return seconds


@asynccontextmanager
async def new_container_fleet() -> AsyncIterator[ContainerFleet]:
    """Open a fleet on a new database."""
    with TemporaryDirectory(prefix="stateward-bench-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        context = ProcessContext(Path(folder), random=Random(1))
        plugin = EdgeRuntime(context, heartbeat_s=600.0, retry_s=600.0, policy_interval_s=HOUR_S, measure_s=HOUR_S)
        engine = Engine(store_at(new_file()), [token_kind(), quota_kind(), *plugin.kinds], slots=1000, lease_s=60.0)
        plugin.bind_engine(engine)
        async with engine, plugin.running(engine, works=True):
            fleet = ContainerFleet(engine, plugin, Path(folder))
            await fleet.prepare()
            yield fleet
            await cancel_tasks(fleet.tasks)


async def deployment() -> list[Line]:
    """Deploy all apps over all agents."""
    async with new_container_fleet() as fleet:
        for one in fleet.engines:
            one.faults.latency_s = CALL_S
        began, used = perf_counter(), process_time()
        accepted = await fleet.deploy()
        seconds, used = perf_counter() - began, process_time() - used
        containers = [len(await one.list_containers()) for one in fleet.engines]
        assert containers == [EACH] * AGENTS, containers
    what = f"{APPS:,} apps of containers over {AGENTS} agents"
    return [
        f"{what}, {CALL_S * 1e3:g} ms a call; ideally {ideal():.1f} s",
        ratio(what, seconds / ideal(), "the ideal schedule", TARGET),
        plain(what, used / seconds, "cores used", 1),
        plain(what, used / APPS * 1e3, "ms of a processor for an app, controller and agent together"),
        f"  accepted in {accepted:.2f} s, settled in {seconds:.2f} s",
    ]


async def status() -> list[Line]:
    """Observe and measure 1,000 containers of one engine."""
    with TemporaryDirectory(prefix="stateward-bench-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        engine = SimulatedEngine([IMAGE])
        site = ContainerSite(Path(folder), engine, "0" * 32)
        await prepare_status(site)
        lines: list[Line] = []
        for ask, what in ((site.observe, "observed"), (site.measure, "measured")):
            engine.faults.calls.clear()
            began = perf_counter()
            found = await ask()
            seconds = perf_counter() - began
            assert len(found) == APPS + 1
            calls = engine.faults.calls.count("list containers")
            lines += [
                plain(f"{APPS:,} apps are {what}", seconds * 1e3, "ms"),
                plain(f"{APPS:,} apps are {what}", calls, "listings of containers", 1),
            ]
        await site.close()
        return lines


async def prepare_status(site: ContainerSite) -> None:
    """Make a cluster with all apps."""

    def ignore(text: str, done: int | None = None, total: int | None = None) -> None:
        """Do nothing with a line of progress."""

    cluster, app = to_json({"kind": "clusterinst"}), {"kind": "appinst", "parts": (AppPart("web", IMAGE),)}
    await site.execute(AgentOrder(OrderAction.CREATE, 1, 1, 1, "c1", spec=cluster), ignore)
    spec = to_json(app)
    orders = (AgentOrder(OrderAction.CREATE, n, n, 1, f"c1:a{n}", "c1", spec=spec) for n in range(2, APPS + 2))
    await asyncio.gather(*(site.execute(one, ignore) for one in orders))


def report() -> list[Line]:
    """Measure and return lines to print."""
    return [*run(deployment()), *run(status())]
