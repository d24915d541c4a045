"""Many simulated agents in one process, as a thousand sites would look to a controller."""

import asyncio
from collections.abc import Sequence
from random import Random

from stateward.agents.agent import Agent
from stateward.agents.calling import Caller
from stateward.agents.messages import Existing
from stateward.agents.simulated import SimulatedSite
from stateward.agents.succession import Unsucceeded

LOOK_EVERY = 3600.0


class Fleet:
    """Agents of the cloudlets named, each with a site of its own."""

    def __init__(self, controllers: Sequence[str], ns: str, cloudlets: Sequence[str], token: str) -> None:
        chance = Random(1)  # noqa: S311 - for jitter
        self.sites = {name: SimulatedSite() for name in cloudlets}
        self.agents = {
            name: Agent(site, Caller(controllers, ns, name, token, chance), "1.0", Unsucceeded(), look_every=LOOK_EVERY)
            for name, site in self.sites.items()
        }
        self._tasks: list[asyncio.Task[None]] = []

    def has(self, things: dict[str, dict[str, int]]) -> None:
        """Let things exist at sites already: by cloudlet and name, with their generations."""
        for cloudlet, found in things.items():
            self.sites[cloudlet].things.update({name: Existing(number) for name, number in found.items()})

    def start(self) -> None:
        """Let them all dial."""
        self._tasks = [asyncio.create_task(one.run()) for one in self.agents.values()]

    async def settled(self) -> None:
        """Wait until all are connected and have told what they have."""
        await asyncio.gather(*(one.settled.wait() for one in self.agents.values()))

    async def lost(self) -> None:
        """Wait until none is connected."""
        while any(one.connection for one in self.agents.values()):
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Let them all go."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
