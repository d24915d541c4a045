"""A container site on a simulated engine whose agent can be killed, or whose engine can fail, at any call."""

from collections.abc import Awaitable, Callable
from enum import Enum
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from stateward.agents.messages import AgentOrder, OrderAction
from stateward.containers import ContainerState, EngineRefusal, EngineRefused, EngineUnavailable
from stateward.domains.edge.sites.app_manifest import AppPart, PartPort, PartVolume
from stateward.domains.edge.sites.container_identity import GENERATION_LABEL, INSTANCE_LABEL, NUMBER_LABEL, PART_LABEL
from stateward.domains.edge.sites.container_site import ContainerOptions, ContainerSite
from stateward.store.records import to_json
from stateward.testing.containers import SimulatedEngine

INSTALLATION = "0f8fad5bd9cb469fa165708c7a3d3c11"
OPTIONS = ContainerOptions(patience_s=5.0, stable_after_s=0.0)
IMAGE = "web:1"


class Killed(BaseException):
    """The agent was killed; no handler of errors runs."""


class Fault(Enum):
    """What happens at a call."""

    KILLED_BEFORE = "the agent is killed before the call"
    KILLED_AFTER = "the agent is killed when the call has been carried out"
    NO_ANSWER = "the call is carried out, and its answer lost"
    DOWN = "the engine is down for a moment"
    REFUSED = "the engine refuses the call"


class FaultyEngine:
    """An engine that has a fault at one of its calls, which are counted from 0."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self.engine = engine
        self.calls: list[str] = []
        self.fault: tuple[int, Fault] | None = None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.engine, name)
        if name in ("pull_image", "read_logs", "close"):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            number = len(self.calls)
            self.calls.append(name)
            fault = self.fault[1] if self.fault is not None and self.fault[0] == number else None
            match fault:
                case Fault.KILLED_BEFORE:
                    raise Killed
                case Fault.DOWN:
                    raise EngineUnavailable(name, "connection refused", sent=False)
                case Fault.REFUSED:
                    raise EngineRefused(EngineRefusal.FAILED, name, "refused to order")
            answer = await method(*args, **kwargs)
            if fault is Fault.KILLED_AFTER:
                raise Killed
            if fault is Fault.NO_ANSWER:
                raise EngineUnavailable(name, "the connection was closed", sent=True)
            return answer

        return call


class ContainerWorld:
    """The controller's orders, the agent's folder, and an engine."""

    def __init__(self, folder: Path, engine: SimulatedEngine | None = None) -> None:
        self.folder = folder
        self.engine = engine or SimulatedEngine([IMAGE], registry={"remote:1": 1000})
        self.faulty = FaultyEngine(self.engine)
        self.lines: list[str] = []
        self.restart()

    def restart(self) -> None:
        """Start the agent anew: it knows what its folder and its engine have."""
        self.site = ContainerSite(self.folder, self.faulty, INSTALLATION, OPTIONS)

    def report(self, text: str, done: int | None = None, total: int | None = None) -> None:
        self.lines.append(text)

    async def execute(self, order: AgentOrder) -> None:
        """Execute an order."""
        await self.site.execute(order, self.report)

    async def whole(self) -> dict[str, tuple[int, bool]]:
        """Return what the agent sees: generations, and whether they are whole."""
        return {name: (one.generation, one.whole) for name, one in (await self.site.observe()).items()}

    async def running(self) -> list[tuple[str, ...]]:
        """Return the containers that run: instance, generation, part and number."""
        found = await self.engine.list_containers()
        assert all(one.state is ContainerState.RUNNING for one in found), found
        names = (INSTANCE_LABEL, GENERATION_LABEL, PART_LABEL, NUMBER_LABEL)
        return sorted(tuple(one.labels[name] for name in names) for one in found)

    async def left(self) -> tuple[int, int, int]:
        """Return how many containers, networks and volumes there are."""
        engine = self.engine
        return len(await engine.list_containers()), len(await engine.list_networks()), len(await engine.list_volumes())


def part(name: str = "web", count: int = 1, **fields: Any) -> AppPart:
    return AppPart(name, IMAGE, count=count, **fields)


def create(name: str, generation: int, spec: dict[str, Any], work: OrderAction = OrderAction.CREATE) -> AgentOrder:
    host = name.rpartition(":")[0]
    kind = "appinst" if host else "clusterinst"
    return AgentOrder(work, 10 * generation, generation, 1, name, host, spec=to_json({**spec, "kind": kind}))


def update(name: str, generation: int, spec: dict[str, Any]) -> AgentOrder:
    return create(name, generation, spec, OrderAction.UPDATE)


def delete(name: str, generation: int) -> AgentOrder:
    return replace(create(name, generation, {}, OrderAction.DELETE), spec="")


def cluster(nodes: int = 1, **fields: Any) -> dict[str, Any]:
    return {"nodes": nodes, **fields}


def app(*parts: AppPart) -> dict[str, Any]:
    return {"parts": parts}


DATA = PartVolume("/data", "data")
PORT = PartPort(80, published=True, host_port=8080)
Step = Callable[[ContainerWorld], Awaitable[None]]
