"""The process driver under the suite: real processes, in a folder of their own."""

import os
import shutil
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from stateward.drivers import Driver, MachineSpec, Observation, ProviderRegion
from stateward.drivers.process import ProcessDriver
from tests.contract.drivers.conformance import Conformance
from tests.contract.drivers.driver_case import find
from tests.contract.drivers.fault_contract import BreakableDriverCase, FaultContract
from tests.integration.drivers.local.host_machines import kill_all_in, live_processes_in


class ProcessCase(BreakableDriverCase):
    """A folder of machines; without it, the provider is out of reach."""

    spec = "tiny"
    image = "sh"
    ssh_port = 0

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def make(self) -> Driver:
        region = ProviderRegion("local", "here", options={"folder": str(self.folder)})
        return ProcessDriver(region, self.count)

    def login_spec(self, keys: Sequence[str]) -> MachineSpec:
        return replace(self.machine_spec(), authorized_keys=tuple(keys))

    def reboots(self, seen: Observation) -> int:
        return int(seen.details["boots"]) - 1

    async def cut(self) -> None:
        self.folder.rename(self.folder.with_suffix(".away"))

    async def mend(self) -> None:
        self.folder.with_suffix(".away").rename(self.folder)

    async def kill(self, key: str) -> None:
        seen = await find(self.driver(), self, key)
        assert seen is not None
        os.kill(int(seen.details["pid"]), signal.SIGKILL)

    async def close(self) -> None:
        await super().close()
        for folder in (self.folder, self.folder.with_suffix(".away")):
            kill_all_in(folder)
            assert live_processes_in(folder) == []
            shutil.rmtree(folder, ignore_errors=True)


class TestProcess(Conformance, FaultContract):
    """Machines that are process groups."""

    @pytest.fixture
    async def case(self, tmp_path: Path) -> AsyncIterator[ProcessCase]:
        case = ProcessCase(tmp_path / "region")
        yield case
        await case.close()
