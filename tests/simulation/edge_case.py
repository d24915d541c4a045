"""Cloudlets with agents on simulated sites: reserved clusters have apps, policies keep min and max."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Any, ClassVar

from stateward.access.quotas import quota_kind
from stateward.access.tokens import token_kind
from stateward.agents.agent import Agent
from stateward.agents.connection import AgentConnection, ConnectionHandler
from stateward.agents.inprocess import AgentEnd, ControllerEnd, InProcessDialer, PipeClosed
from stateward.agents.self_upgrade import NoUpgrade
from stateward.agents.simulation import SimulatedSite
from stateward.domains.edge.lifecycle import APP, APPINST, AUTOPROV, CLOUDLET, CLUSTERINST
from stateward.domains.edge.model import (
    AppInst,
    AppSpec,
    AutoprovSpec,
    CloudletSpec,
    ClusterInst,
    cloudlet_status,
    instance_status,
    local_name,
    read_spec,
)
from stateward.domains.edge.runtime import EdgeRuntime
from stateward.schemas.caller import Caller
from stateward.store.errors import StoreError
from stateward.store.filters import Page, Selector
from stateward.store.records import Object
from tests.simulation.domain_case import NS, Action, DomainCase, Server

ANN = Caller("user", "ann")
CLOUDLETS = ("berlin", "munich", "turin")
MIN, MAX = 2, 2
GONE = "NotPresent"


class SiteDialer(InProcessDialer):
    """Connects an agent to any living process; the connection ends with it."""

    def __init__(self, case: "EdgeCase", cloudlet: str) -> None:
        super().__init__(None, NS, cloudlet, retry_delay_s=0.5)
        self._case = case
        self._chance = case.chance(f"{cloudlet}/dialer")
        self.ends: list[tuple[Any, AgentEnd]] = []

    async def dial(self) -> AgentEnd:
        up = [one for one in self._case.processes if one.up]
        if not up:
            raise PipeClosed("no controller is there")
        process = self._chance.choice(up)
        ours, theirs = AgentEnd(), ControllerEnd()
        ours.other, theirs.other = theirs, ours
        loop = asyncio.get_running_loop()
        connection = AgentConnection(theirs, self.ns, self.site_name, loop.time)
        serving = self._serve_to_the_end(connection, process.runtime.agent_hub, theirs)
        self._serving.add(loop.create_task(serving, context=process.context))
        self.ends.append((process.runtime, ours))
        return ours

    async def _serve_to_the_end(
        self, connection: AgentConnection, handler: ConnectionHandler, end: ControllerEnd
    ) -> None:
        """Serve a connection; as in a server, an error closes it."""
        try:
            await self._serve(connection, handler, end)
        except StoreError:
            end.close_both()


class EdgeCase(DomainCase):
    """Three cloudlets, an app with a policy, and apps on clusters of their own."""

    name = "edge"
    pairs: ClassVar = [
        ("maintain", "maintain another"),
        ("redeploy", "undeploy"),
        ("deploy in a cluster", "delete a cluster"),
    ]
    before: ClassVar = {
        "undeploy": ["deploy"],
        "redeploy": ["deploy"],
        "delete a cluster": ["create a cluster"],
        "deploy in a cluster": ["create a cluster"],
        "resume": ["maintain"],
    }

    def __init__(self, clock: Any, chance: Any) -> None:
        super().__init__(clock, chance)
        self.sites = {name: SimulatedSite(pace=0.1) for name in CLOUDLETS}
        self.dialers = {name: SiteDialer(self, name) for name in CLOUDLETS}
        self.agents: list[asyncio.Task[None]] = []

    def make_runtime(self, name: str) -> EdgeRuntime:
        runtime = EdgeRuntime(self.context(name), retry_s=0.5, policy_interval_s=10.0, lease_s=5.0, measure_s=60.0)
        runtime.kinds = [token_kind(), quota_kind(), *runtime.kinds]
        return runtime

    async def prepare(self, server: Server) -> None:
        service = server.runtime.service
        there = {one.id for one in await service.list_all(NS, CLOUDLET.kind)}
        for name in CLOUDLETS:
            if name not in there:
                await service.create_cloudlet(NS, name, CloudletSpec(), ANN)
        for name, site in self.sites.items() if not self.agents else ():
            agent = Agent(site, self.dialers[name], "1.0", NoUpgrade(), observe_interval_s=1.0)
            self.agents.append(asyncio.create_task(agent.run()))
        await service.put_record(NS, AUTOPROV.kind, "near", AutoprovSpec(CLOUDLETS, min=MIN, max=MAX), ANN)
        await service.put_record(NS, APP.kind, "web", AppSpec("sleep 1", autoprov="near"), ANN)
        await service.put_record(NS, APP.kind, "api", AppSpec("sleep 2"), ANN)
        async with asyncio.timeout(600.0):
            while len([one for one in await self._all(server, APPINST.kind) if one.state == "Ready"]) < MIN:
                await asyncio.sleep(1.0)

    async def _all(self, server: Server, kind: str) -> list[Object]:
        found: list[Object] = await server.engine.store.reader.list_objects(Selector(NS, kind), Page(None, 1000))
        return found

    @property
    def actions(self) -> Mapping[str, Action]:
        return {
            "maintain": partial(self._maintain, CLOUDLETS),
            "maintain another": partial(self._maintain, (CLOUDLETS[1], *CLOUDLETS)),
            "resume": lambda server, chance: server.runtime.service.resume(NS, chance.choice(CLOUDLETS), ANN),
            "deploy": partial(self._deploy, ("autocluster1",)),
            "deploy in a cluster": partial(self._deploy, ("c1",)),
            "undeploy": self._undeploy,
            "redeploy": self._redeploy,
            "create a cluster": self._create_cluster,
            "delete a cluster": self._delete_cluster,
            "break a connection": self._break,
            "lose an instance": self._lose,
        }

    def _maintain(self, names: tuple[str, ...], server: Server, chance: Random) -> Any:
        return server.runtime.service.act(NS, chance.choice(names), CLOUDLET.kind, "maintain", ANN)

    def _deploy(self, clusters: tuple[str, ...], server: Server, chance: Random) -> Any:
        return server.runtime.service.create_app(NS, chance.choice(CLOUDLETS), chance.choice(clusters), "api", ANN)

    async def _undeploy(self, server: Server, chance: Random) -> Any:
        found = [one for one in await self._all(server, APPINST.kind) if one.id.endswith(":api")]
        name = chance.choice([one.id for one in found] or ["berlin:autocluster1:api"])
        return await server.runtime.service.delete(NS, name, APPINST.kind, ANN)

    async def _redeploy(self, server: Server, chance: Random) -> None:
        name = f"{chance.choice(CLOUDLETS)}:autocluster1:api"
        deleted = await server.runtime.service.delete(NS, name, APPINST.kind, ANN)
        await server.engine.wait_record(NS, deleted.op.id, 60.0)
        await server.runtime.service.create_app(NS, name.partition(":")[0], "autocluster1", "api", ANN)

    def _create_cluster(self, server: Server, chance: Random) -> Any:
        return server.runtime.service.create_cluster(NS, chance.choice(CLOUDLETS), "c1", ClusterInst(), ANN)

    def _delete_cluster(self, server: Server, chance: Random) -> Any:
        return server.runtime.service.delete(NS, f"{chance.choice(CLOUDLETS)}:c1", CLUSTERINST.kind, ANN)

    async def _break(self, server: Server, chance: Random) -> None:
        for _, end in self.dialers[chance.choice(CLOUDLETS)].ends:
            end.close_both()

    async def _lose(self, server: Server, chance: Random) -> None:
        things = self.sites[chance.choice(CLOUDLETS)].things
        if things:
            things.pop(chance.choice(sorted(things)))

    def lose_process(self, runtime: Any) -> None:
        for dialer in self.dialers.values():
            for of, end in dialer.ends:
                if of is runtime:
                    end.close_both()

    # --- what must be true -------------------------------------------------------------------------------------------

    def broken(self, objects: Iterable[Object]) -> Iterator[str]:
        """Say which policy has more instances than its maximum, and which clusters are used by two apps."""
        apps = [one for one in objects if one.kind == APPINST.kind and not one.removed and one.state != GONE]
        taken: dict[tuple[str, str], str] = {}
        for one in apps:
            cloudlet, cluster, _ = one.id.split(":")
            real = read_spec(one, AppInst).cluster
            if cluster.startswith("autocluster") and real:
                first = taken.setdefault((cloudlet, real), one.id)
                if first != one.id:
                    yield f"{first} and {one.id} both have {cloudlet}:{real}"

    def unsettled(self, objects: Iterable[Object]) -> Iterator[str]:
        for one in objects:
            if one.kind == CLOUDLET.kind and one.state not in ("Ready", "Maintenance"):
                yield f"{one.id} is {one.state}"
            elif one.kind == CLOUDLET.kind and not cloudlet_status(one).serving:
                yield f"{one.id} is {one.state}, and no agent serves it"

    async def broken_at_rest(self, server: Server) -> list[str]:
        for name in CLOUDLETS:
            if (await server.engine.record(NS, name)).state == "Maintenance":
                await server.runtime.service.resume(NS, name, ANN)
        await asyncio.sleep(120.0)  # policies have been applied, and missing instances created again, by then
        apps, clusters = await self._all(server, APPINST.kind), await self._all(server, CLUSTERINST.kind)
        web = [one.id for one in apps if one.id.endswith(":web") and one.state == "Ready"]
        wrong = [] if MIN <= len(web) <= MAX else [f"web is on {web}, and its policy asks for {MIN} to {MAX}"]
        used = {f"{one.id.partition(':')[0]}:{read_spec(one, AppInst).cluster}" for one in apps if one.state != GONE}
        idle = [one for one in clusters if one.id not in used and one.state == "Ready"]
        reserved = [(one.id, by) for one in idle if (by := instance_status(one).reserved_by)]
        wrong += [f"{name} is reserved by {by}, and has no app" for name, by in reserved]
        for name, site in self.sites.items():
            known = {local_name(one.id) for one in (*apps, *clusters) if one.id.startswith(f"{name}:")}
            wrong += [f"{thing} is at {name}, and has no record" for thing in site.things if thing not in known]
            ready = {
                local_name(one.id)
                for one in (*apps, *clusters)
                if one.id.startswith(f"{name}:") and one.state == "Ready"
            }
            wrong += [f"{thing} is Ready, and not at {name}" for thing in ready if thing not in site.things]
        return wrong
