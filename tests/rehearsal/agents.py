"""A hundred agents over real sockets, whose effects are recorded outside of the deployment and its database."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from stateward.agents.agent import Agent
from stateward.agents.dialer import WebSocketDialer
from stateward.agents.messages import AgentOrder, Existing
from stateward.agents.self_upgrade import NoUpgrade
from stateward.agents.simulation import SimulatedSite
from stateward.agents.site import ReportProgress
from stateward.domains.edge.api.routes import AGENTS_PATH
from tests.chaos.ledger import Ledger, What

PACE, STEPS = 0.1, 2


class WitnessedSite(SimulatedSite):
    """A site that records in the ledger what is done there, and when."""

    def __init__(self, cloudlet: str, ledger: Ledger) -> None:
        super().__init__(PACE, STEPS)
        self._cloudlet, self._ledger = cloudlet, ledger

    async def execute(self, order: AgentOrder, tell: ReportProgress) -> None:
        facts = {"op": order.id, "object": f"{self._cloudlet}:{order.name}", "epoch": order.operation}
        self._ledger.note(What.BEGIN, **facts)
        try:
            await super().execute(order, tell)
            self._ledger.note(What.APPLY, **facts)
        finally:
            self._ledger.note(What.END, **facts)


class Agents:
    """Agents of some cloudlets; each connects to the first controller that answers, in an order of its own."""

    def __init__(self, controllers: Sequence[str], ns: str, cloudlets: Sequence[str], token: str, ledger: Path) -> None:
        records, chance = Ledger(ledger, "agents"), Random(1)
        self._sites = {name: WitnessedSite(name, records) for name in cloudlets}
        self._agents: list[Agent] = []
        for number, (name, site) in enumerate(self._sites.items()):
            turned = [*controllers[number % len(controllers) :], *controllers[: number % len(controllers)]]
            caller = WebSocketDialer(turned, AGENTS_PATH, ns, name, token, chance)
            self._agents.append(Agent(site, caller, "1.0", NoUpgrade(), observe_interval_s=3600.0))
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start all agents."""
        self._tasks = [asyncio.create_task(one.run()) for one in self._agents]

    async def settled(self) -> None:
        """Wait until all are connected and have sent their inventories."""
        await asyncio.gather(*(one.synced.wait() for one in self._agents))

    async def stop(self) -> None:
        """Stop all agents."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def things(self) -> Mapping[str, Existing]:
        """All that exists at the sites, by cloudlet and name."""
        return {f"{name}:{thing}": what for name, site in self._sites.items() for thing, what in site.things.items()}
