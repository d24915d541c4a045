"""Systems on simulated instances: each service has the instances that its definition asks for, and no other exists."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Any, ClassVar

from stateward.domains.systems.backends.port import InstanceSpec, ServiceRef
from stateward.domains.systems.backends.simulated_backend import SimulatedBackend
from stateward.domains.systems.definition import read
from stateward.domains.systems.job_service import JobActions
from stateward.domains.systems.lifecycle import JOB, JOBRUN, SERVICE, SYSTEM
from stateward.domains.systems.model import DesiredService, spec_of
from stateward.domains.systems.object_ids import system_of
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.domains.systems.service import SystemActions
from stateward.store.filters import Page, Selector
from stateward.store.records import Object
from tests.simulation.domain_case import NS, Action, DomainCase, Server

DEFINITIONS = (
    "services: {web: {command: web v1, instances: 2}, db: {command: db v1}}",
    "services: {web: {command: web v2, instances: 1}, db: {command: db v1}}",
    "services: {web: {command: web v3, instances: 3}}",
    "{services: {db: {command: db v2}}, jobs: {report: {command: report, backoff: 1, parallelism: 2, completions: 3}}}",
)


class CountingBackend(SimulatedBackend):
    """Counts the copies of each instance that runs once: it is started once, whatever happens to its process."""

    def __init__(self) -> None:
        super().__init__(delay=1.0, stop_delay=0.5)
        self.starts: Counter[tuple[str, str, str]] = Counter()

    async def start(self, ref: ServiceRef, want: InstanceSpec) -> None:
        if want.run_once and want.name not in self._instances.get(ref, ()):
            self.starts[str(ref.system), ref.path, want.name] += 1
        await super().start(ref, want)


class SystemsCase(DomainCase):
    """A shop with two services and a job."""

    name = "systems"
    pairs: ClassVar = [("deploy", "delete"), ("deploy", "teardown"), ("teardown", "deploy anew")]
    before: ClassVar = {"create": ["delete"], "run the job": ["deploy anew"], "cancel a run": ["deploy anew"]}

    def __init__(self, clock: Any, chance: Any) -> None:
        super().__init__(clock, chance)
        self.backend = CountingBackend()

    def make_runtime(self, name: str) -> SystemsRuntime:
        return SystemsRuntime({"simulated": self.backend}, random=self.chance(f"{name}/runtime"))

    async def prepare(self, server: Server) -> None:
        made = await self._systems(server).create("shop", "simulated", "first")
        await server.engine.wait_record(NS, made.op.id, 600.0)
        begun = await self._systems(server).deploy("shop", "/", read(DEFINITIONS[0]), None, "second")
        await server.engine.wait_record(NS, begun.op.id, 600.0)

    def _systems(self, server: Server) -> SystemActions:
        return SystemActions(server.engine, NS, "ann")

    @property
    def actions(self) -> Mapping[str, Action]:
        return {
            "deploy": partial(self._deploy, "/", DEFINITIONS),
            "deploy anew": partial(self._deploy, "/", DEFINITIONS[::-1]),
            "deploy web": partial(self._deploy, "/web", ("{command: web v9, instances: 2}", "{command: web v8}")),
            "roll back": lambda server, chance: self._systems(server).rollback("shop", None, None, 30.0),
            "cancel a deploy": self._cancel,
            "teardown": lambda server, chance: self._systems(server).teardown("shop", 30.0),
            "delete": lambda server, chance: self._systems(server).delete("shop", force=chance.random() < 0.5),
            "create": lambda server, chance: self._systems(server).create("shop", "simulated"),
            "run the job": lambda server, chance: JobActions(server.engine, NS, "ann").run("shop", "/report"),
            "cancel a run": self._cancel_run,
            "crash an instance": self._crash,
        }

    def _deploy(self, path: str, texts: tuple[str, ...], server: Server, chance: Random) -> Any:
        tree = read(chance.choice(texts))
        return self._systems(server).deploy("shop", path, tree, chance.choice((30.0, None)))

    async def _cancel(self, server: Server, chance: Random) -> None:
        for one in (await self._systems(server).open_deploys("shop"))[:1]:
            await self._systems(server).cancel("shop", one.id)

    async def _cancel_run(self, server: Server, chance: Random) -> None:
        for one in await self._objects(server, JOBRUN.kind, "pending", "running"):
            await JobActions(server.engine, NS, "ann").cancel("shop", one.id)

    async def _crash(self, server: Server, chance: Random) -> None:
        refs = sorted((ref for ref, found in self.backend._instances.items() if found), key=str)
        services = [ref for ref in refs if "@" not in ref.path]
        if services:
            ref = chance.choice(services)
            self.backend.crash(ref)
            await asyncio.sleep(chance.random() * 5)
            self.backend.mend(ref)

    async def _objects(self, server: Server, kind: str, *states: str) -> list[Object]:
        found = await server.engine.store.reader.list_objects(Selector(NS, kind), Page(None, 1000))
        return [one for one in found if not states or one.state in states]

    # --- what must be true -------------------------------------------------------------------------------------------

    def broken(self, objects: Iterable[Object]) -> Iterator[str]:
        for (_, path, name), number in self.backend.starts.items():
            if number > 1:
                yield f"{name} of {path} runs once, and was started {number} times"

    async def broken_at_rest(self, server: Server) -> list[str]:
        await asyncio.sleep(60.0)
        wrong, wanted = list[str](), dict[str, Object]()
        for one in await self._objects(server, SERVICE.kind):
            path = "/" + one.id.partition(":")[2].replace(".", "/")
            wanted[path] = one
            spec = spec_of(one, DesiredService)
            ref = next((ref for ref in self.backend._instances if ref.path == path), None)
            instances = [] if ref is None else list(await self.backend.instances(ref))
            if one.state == "stable" and spec is not None and len(instances) != spec.service.instances:
                wrong.append(f"{path} is stable with {len(instances)} of {spec.service.instances} instances")
        for ref, found in self.backend._instances.items():
            if found and ref.path not in wanted and "@" not in ref.path:
                wrong.append(f"instances {sorted(found)} of {ref.path} run, and there is no such service")
        systems = {one.id for one in await self._objects(server, SYSTEM.kind)}
        parts = [one for kind in (SERVICE.kind, JOB.kind) for one in await self._objects(server, kind)]
        wrong += [f"{one.id} outlives its system" for one in parts if system_of(one.id) not in systems]
        return wrong
