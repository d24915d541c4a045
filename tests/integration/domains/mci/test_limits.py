"""The limits of a provider hold at the provider, for all MCIs and all processes together."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

from msgspec.structs import replace

from stateward.domains.mci.deployment_records import limit_of
from stateward.domains.mci.model import CloudConnection, SubGroup
from stateward.drivers import MachineState, ProviderRegion
from stateward.drivers.simulated import CALM, IMAGES, REGIONS, SPECS, SimulatedCloud
from stateward.drivers.simulated.machine import state_at
from stateward.store.port import Store
from stateward.store.records import LaneGroup, Status
from tests.integration.domains.mci.conftest import ANN, NS, MciHarness, mci, open_harness

PROVIDER, EACH = "ncp", 10
PLACES = [CloudConnection(f"ncp-r{number}", PROVIDER, f"r{number}") for number in range(1, 6)]
SLOW = replace(CALM, pending=0.05, suspending=0.05)
"""Slow enough that many are under way at once, whoever is quick."""

UNDER_WAY = (MachineState.PENDING, MachineState.SUSPENDING)


class Watcher:
    """Counts the concurrent calls at a provider, whenever one starts."""

    def __init__(self, cloud: SimulatedCloud) -> None:
        self._cloud = cloud
        self._regions = {one.region: cloud.region(ProviderRegion(one.provider, one.region)) for one in PLACES}
        self.most_vms: Counter[str] = Counter()
        self.most_regions: Counter[str] = Counter()
        for region in self._regions.values():
            region.listeners.append(self._heard)

    def _heard(self, _key: str, _at: float) -> None:
        now = self._cloud.clock()
        for state in UNDER_WAY:
            counts = [
                sum(state_at(one, now) is state for one in region.machines.values())
                for region in self._regions.values()
            ]
            self.most_vms[state] = max(self.most_vms[state], *counts)
            self.most_regions[state] = max(self.most_regions[state], sum(map(bool, counts)))


def groups() -> tuple[SubGroup, ...]:
    spec = f"{PROVIDER}+{REGIONS[PROVIDER][0]}+{SPECS[PROVIDER][0].name}"
    image = IMAGES[PROVIDER][0].name
    return tuple(SubGroup(one.name, EACH, spec, image, connection=one.name) for one in PLACES)


async def made_and_suspended(harness: MciHarness, name: str) -> None:
    assert (await harness.created(mci(name, *groups()))).status is Status.SUCCEEDED
    verdict = await harness.service.control(NS, name, "suspend", ANN)
    assert (await harness.ended(verdict.whole)).status is Status.SUCCEEDED


async def watched(new_store: Callable[[], Store], folder: Path, lanes: int | None = None) -> Watcher:
    """Make two MCIs in two processes at once, and suspend them."""
    cloud = SimulatedCloud(profile=SLOW, chance=Random(1))
    async with AsyncExitStack() as stack:
        harnesses = [
            await stack.enter_async_context(open_harness(new_store(), folder, cloud=cloud, lease=15.0))
            for _ in range(2)
        ]
        for one in PLACES:
            await harnesses[0].service.add_connection(one, ANN)
        if lanes is not None:
            await harnesses[0].engine.set_limits([LaneGroup(PROVIDER, lanes)], [])
        watcher = Watcher(cloud)
        await asyncio.gather(*(made_and_suspended(harness, f"m{n}") for n, harness in enumerate(harnesses, 1)))
        return watcher


async def test_two_processes_with_an_mci_each_keep_to_the_limits_of_the_provider_together(
    new_store: Callable[[], Store], tmp_path: Path
) -> None:
    watcher, limit = await watched(new_store, tmp_path), limit_of(PROVIDER)
    for state in UNDER_WAY:
        assert 1 < watcher.most_vms[state] <= limit.vms, state
        assert 1 < watcher.most_regions[state] <= limit.regions, state


async def test_limits_that_an_administrator_has_set_hold_instead(
    new_store: Callable[[], Store], tmp_path: Path
) -> None:
    watcher = await watched(new_store, tmp_path, lanes=1)
    assert set(watcher.most_regions.values()) == {1}
