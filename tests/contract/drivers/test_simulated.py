"""The simulated driver under the suite, in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from stateward.drivers import Driver, Observation, ProviderRegion
from stateward.drivers.simulated import CallFate, FaultProfile, SimulatedCloud, SimulatedDriver
from tests.contract.drivers.conformance import Conformance
from tests.contract.drivers.fault_contract import BreakableDriverCase, FaultContract

VIRTUAL_TIME = True
REGION = ProviderRegion("aws", "ap-northeast-2")


class SimulatedCase(BreakableDriverCase):
    spec, image = "t3.nano", "ubuntu22.04"
    ssh_port = 0

    def __init__(self, path: Path | None = None) -> None:
        super().__init__()
        self.cloud = SimulatedCloud(path, clock=asyncio.get_running_loop().time, chance=Random(7))

    def make(self) -> Driver:
        return SimulatedDriver(REGION, self.cloud, self.count)

    async def pause(self) -> None:
        await asyncio.sleep(0.25)

    def reboots(self, seen: Observation) -> int | None:
        return int(seen.details.get("reboots", "0"))

    async def cut(self) -> None:
        self.cloud.set_profile(REGION, replace(FaultProfile(), dead=True))

    async def mend(self) -> None:
        self.cloud.set_profile(REGION, FaultProfile())

    async def kill(self, key: str) -> None:
        self.cloud.fail(REGION, key)

    async def close(self) -> None:
        await super().close()
        self.cloud.close()

    async def lose_next_answer(self) -> bool:
        self.cloud.region(REGION).fault_injector.script_next(CallFate.ANSWER_LOST)
        return True


class TestSimulated(Conformance, FaultContract):
    @pytest.fixture
    async def case(self) -> AsyncIterator[SimulatedCase]:
        case = SimulatedCase()
        yield case
        await case.close()


class TestSimulatedInAFile(TestSimulated):
    @pytest.fixture
    async def case(self, tmp_path: Path) -> AsyncIterator[SimulatedCase]:
        case = SimulatedCase(tmp_path / "cloud.db")
        yield case
        await case.close()
