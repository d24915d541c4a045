"""A simulated world, and short ways to ask for things in it."""

import asyncio
from collections import Counter
from itertools import count
from pathlib import Path
from random import Random

from msgspec.structs import replace

from stateward.drivers import (
    MachineAction,
    MachineHandle,
    MachineListing,
    MachineSpec,
    MachineState,
    Outcome,
    ProviderRegion,
)
from stateward.drivers.simulated import CALM, CallFate, FaultProfile, SimulatedCloud, SimulatedDriver

SEOUL = ProviderRegion("aws", "ap-northeast-2")
TOKYO = ProviderRegion("aws", "ap-northeast-1")


class World:
    """A cloud with a driver of one of its regions."""

    def __init__(self, profile: FaultProfile = CALM, path: Path | None = None, seed: int = 1) -> None:
        self.calls: Counter[str] = Counter()
        self.cloud = SimulatedCloud(path, profile=profile, clock=asyncio.get_running_loop().time, chance=Random(seed))
        self.driver = self.driver_of(SEOUL)
        self._numbers = count(1)

    def driver_of(self, place: ProviderRegion) -> SimulatedDriver:
        return SimulatedDriver(place, self.cloud, lambda call: self.calls.update([call]))

    def behave(self, **settings: object) -> None:
        """Change the region's profile."""
        self.cloud.set_profile(SEOUL, replace(self.cloud.region(SEOUL).profile, **settings))

    def script_next(self, *fates: CallFate) -> None:
        self.cloud.region(SEOUL).fault_injector.script_next(*fates)

    def want(self, key: str = "") -> MachineSpec:
        number = next(self._numbers)
        return MachineSpec(key or f"key-{number}", f"vm-{number}", "t3.nano", "ubuntu22.04")

    async def create(self, key: str) -> Outcome:
        (outcome,) = await self.driver.create([self.want(key)])
        return outcome

    async def act(self, action: MachineAction, key: str, token: str = "") -> Outcome:
        (outcome,) = await self.driver.act(action, [MachineHandle(key, None, token)])
        return outcome

    async def state(self, key: str) -> MachineState | None:
        """Return what a machine is shown as, if it is."""
        return (await self.states()).get(key)

    async def states(self) -> dict[str, MachineState]:
        return states(await self.driver.observe())


def states(listing: MachineListing) -> dict[str, MachineState]:
    """Return what a complete listing shows."""
    assert listing.complete, listing.problem
    return {one.key: one.state for one in listing.machines}
