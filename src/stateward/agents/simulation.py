"""A simulated site, and a fleet of agents with such sites, for tests, demos and benchmarks."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random

import msgspec

from stateward.agents.agent import Agent
from stateward.agents.dialer import WebSocketDialer
from stateward.agents.messages import AgentOrder, CommandRequest, Existing, LogPart, LogRequest, OrderAction
from stateward.agents.published_ports import PublishedAddress
from stateward.agents.self_upgrade import NoUpgrade
from stateward.agents.site import InstanceMeasure, ReportProgress, SiteCommandResult, SiteError
from stateward.aio.supervise import cancel_tasks

FAILING_SETUP = "fail"
"""A set-up script with this text fails."""


MAX_APPLIED = 10_000
"""How many orders a simulated site remembers."""


class SimulatedSite:
    """Things in memory; an order takes `steps` steps of `pace` seconds, and waits for the event of its gate."""

    def __init__(self, pace: float = 0.0, steps: int = 1) -> None:
        self.things: dict[str, Existing] = {}
        self.measures: dict[str, InstanceMeasure] = {}
        self.applied: list[tuple[str, OrderAction, int]] = []
        self.logs: dict[str, str] = {}
        self._pace, self._steps = pace, steps
        self.gate: Callable[[AgentOrder], asyncio.Event | None] = lambda _: None

    async def observe(self) -> Mapping[str, Existing]:
        """Return what exists."""
        return dict(self.things)

    async def execute(self, order: AgentOrder, report_progress: ReportProgress) -> None:
        """Create, update or delete a thing, in steps."""
        spec = msgspec.json.decode(order.spec) if order.spec else {}
        if order.work is not OrderAction.DELETE:
            self.things[order.name] = Existing(order.generation, whole=False)
        for step in range(self._steps):
            report_progress(f"step {step + 1}", step + 1, self._steps)
            await asyncio.sleep(self._pace)
        gate = self.gate(order)
        if gate is not None:
            await gate.wait()
        if spec.get("setup") == FAILING_SETUP and order.work is not OrderAction.DELETE:
            raise SiteError("it was to fail")
        self.applied.append((order.name, order.work, order.operation))
        del self.applied[:-MAX_APPLIED]
        if order.keep_data:
            self.things[order.name] = Existing(order.generation, whole=False, problem="only its data is left")
        elif order.work is OrderAction.DELETE:
            self.things.pop(order.name, None)
            self.logs.pop(order.name, None)
        else:
            self.things[order.name] = Existing(order.generation)
            self.logs[order.name] = f"{self.logs.get(order.name, '')}generation {order.generation} runs\n"

    def ports_of(self, name: str) -> tuple[PublishedAddress, ...]:
        """Return the published ports of a thing that exists."""
        return self.things.get(name, Existing()).ports

    async def read_log(self, request: LogRequest) -> Sequence[LogPart]:
        """Return the log of a thing."""
        text = self.logs.get(request.name, "")
        if request.after and not request.after.isdecimal():
            raise SiteError(f"{request.after!r} is not the cursor of an earlier answer")
        begin = int(request.after) if request.after else max(0, len(text) - request.most)
        return [LogPart("0", text[begin : begin + request.most], str(min(len(text), begin + request.most)))]

    async def run_command(self, request: CommandRequest) -> SiteCommandResult:
        """Return the words of a command as its output."""
        if request.name not in self.things:
            raise SiteError(f"there is no {request.name!r} here")
        return SiteCommandResult(0, " ".join(request.argv) + "\n")

    async def measure(self) -> Mapping[str, InstanceMeasure]:
        """Return the measures that were set, of what exists."""
        return {name: measure for name, measure in self.measures.items() if name in self.things}

    async def close(self) -> None:
        """Do nothing."""


FLEET_OBSERVE_INTERVAL_S = 3600.0


class SimulatedFleet:
    """Many agents in one process, one for each site, each with a simulated site."""

    def __init__(self, controllers: Sequence[str], path: str, ns: str, sites: Sequence[str], token: str) -> None:
        chance = Random(1)  # noqa: S311 - for jitter
        self.sites = {name: SimulatedSite() for name in sites}
        self.agents = {
            name: Agent(
                site,
                WebSocketDialer(controllers, path, ns, name, token, chance),
                "1.0",
                NoUpgrade(),
                observe_interval_s=FLEET_OBSERVE_INTERVAL_S,
            )
            for name, site in self.sites.items()
        }
        self._tasks: list[asyncio.Task[None]] = []

    def add_existing(self, things: dict[str, dict[str, int]]) -> None:
        """Add things that exist already: by site and name, with their generations."""
        for site, numbers in things.items():
            self.sites[site].things.update({name: Existing(number) for name, number in numbers.items()})

    def start(self) -> None:
        """Start all agents."""
        self._tasks = [asyncio.create_task(agent.run()) for agent in self.agents.values()]

    async def wait_synced(self) -> None:
        """Wait until all agents are connected and have sent their inventories."""
        await asyncio.gather(*(agent.synced.wait() for agent in self.agents.values()))

    async def wait_disconnected(self) -> None:
        """Wait until no agent is connected."""
        while any(agent.notify for agent in self.agents.values()):
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Stop all agents."""
        await cancel_tasks(self._tasks)
