"""The QEMU driver under the suite: real virtual machines, in software."""

import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stateward.drivers import Driver, Observation, ProviderRegion
from stateward.drivers.qemu import QemuDriver
from tests.contract.drivers.conformance import REAL_MACHINES, Conformance
from tests.contract.drivers.driver_case import find
from tests.contract.drivers.fault_contract import BreakableDriverCase, FaultContract
from tests.integration.drivers.local.host_machines import ARCHITECTURES, kill_all_in, live_processes_in


class QemuCase(BreakableDriverCase):
    """A folder of machines; without it, the provider is out of reach."""

    spec = "tiny"
    image = "tick"
    ssh_port = 0

    def __init__(self, folder: Path, arch: str) -> None:
        super().__init__()
        self.folder, self.arch = folder, arch

    def make(self) -> Driver:
        region = ProviderRegion("local", "here", options={"folder": str(self.folder), "arch": self.arch})
        return QemuDriver(region, self.count)

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


class TestQemu(Conformance, FaultContract):
    """Machines under QEMU, on the boards of both architectures."""

    short_form = REAL_MACHINES

    @pytest.fixture(params=ARCHITECTURES)
    async def case(self, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[QemuCase]:
        case = QemuCase(tmp_path / "region", request.param)
        yield case
        await case.close()
