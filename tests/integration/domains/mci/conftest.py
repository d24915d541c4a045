"""The harness of mci tests: the domain on a real store, with fast simulated clouds."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from stateward.domains.mci.control.status_rollup import MciStatus, roll_up_status
from stateward.domains.mci.model import MciSpec, SubGroup
from stateward.domains.mci.runtime import MciRuntime
from stateward.domains.mci.service import Service
from stateward.drivers.simulated import SimulatedCloud
from stateward.drivers.simulated.faults import CALM
from stateward.engine import Accepted, Engine
from stateward.plugin.runtime import ProcessContext
from stateward.schemas.caller import Caller
from stateward.store.port import Store
from stateward.store.records import Operation
from tests.integration.domains.mci.api_harness import ApiHarness, open_api

NS = "default"
ANN = Caller("user", "ann")
QUICK = CALM
PATIENT = 60.0


def group(name: str = "g1", size: int = 2, spec: str = "aws+ap-northeast-2+t3.nano", **how: Any) -> SubGroup:
    """Return the spec of a subgroup."""
    return SubGroup(name, size, spec, how.pop("image", "ubuntu22.04"), **how)


def mci(name: str = "m1", *groups: SubGroup, **how: Any) -> MciSpec:
    """Return the spec of an MCI."""
    return MciSpec(name, f"uid-{name}", groups or (group(),), **how)


class MciHarness:
    """The domain with its engine, and helpers that wait."""

    def __init__(self, engine: Engine, plugin: MciRuntime) -> None:
        self.engine, self.plugin = engine, plugin

    @property
    def service(self) -> Service:
        return self.plugin.service

    @property
    def cloud(self) -> SimulatedCloud:
        return self.plugin.cloud

    async def grant_host(self, ns: str = NS, connection: str = "local") -> None:
        """Let a namespace have machines on this host, as an administrator does."""
        await self.service.grant(connection, [ns], ANN)

    async def ended(self, accepted: Accepted | None) -> Operation:
        """Wait for the end of an operation."""
        assert accepted is not None
        return await self.engine.wait_record(accepted.op.ns, accepted.op.id, PATIENT)

    async def created(self, spec: MciSpec) -> Operation:
        """Make an MCI, and wait until that has ended."""
        return await self.ended(await self.service.create(NS, spec, ANN))

    async def state(self, name: str = "m1") -> str:
        """Return the state of an MCI."""
        return (await self.engine.record(NS, name)).state

    async def until(self, condition: Callable[[str], bool], name: str = "m1") -> None:
        """Wait until an MCI is in a state."""
        async with asyncio.timeout(PATIENT):
            while not condition(await self.state(name)):
                await asyncio.sleep(0.02)

    async def status(self, name: str = "m1") -> MciStatus:
        """Return the status of an MCI."""
        found = await self.service.mci(NS, name)
        vms = await self.service.vms(NS, name)
        return roll_up_status(found.state, [one.state for one in vms])  # type: ignore[arg-type]


@asynccontextmanager
async def open_harness(
    store: Store,
    folder: Path,
    *,
    cloud: SimulatedCloud | None = None,
    works: bool = True,
    lease: float = 15.0,
    site: ProcessContext | None = None,
) -> AsyncIterator[MciHarness]:
    """Open the domain on a store."""
    site = site or ProcessContext(folder, random=Random(1))
    plugin = MciRuntime(site, cloud=cloud or SimulatedCloud(profile=QUICK, chance=Random(1)), tick=0.01, every=3600.0)
    engine = Engine(store, plugin.kinds, works=works, lease_s=lease)
    plugin.bind_engine(engine)
    async with engine, plugin.running(engine, works=works):
        yield MciHarness(engine, plugin)


@pytest.fixture
async def harness(new_store: Callable[[], Store], tmp_path: Path) -> AsyncIterator[MciHarness]:
    """An mci domain with a worker."""
    async with open_harness(new_store(), tmp_path) as opened:
        yield opened


@pytest.fixture
async def harnesses(new_store: Callable[[], Store], tmp_path: Path) -> AsyncIterator[list[MciHarness]]:
    """Two engines on one store, in front of the same clouds."""
    cloud = SimulatedCloud(profile=CALM, chance=Random(1))
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(open_harness(new_store(), tmp_path, cloud=cloud)) for _ in range(2)]
        yield opened


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiHarness]:
    """The application with the domain, on SQLite."""
    async with open_api(tmp_path) as opened:
        yield opened
