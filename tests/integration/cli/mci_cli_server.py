"""A server with the mci domain on fast simulated clouds and real processes, and a command line that uses it."""

from pathlib import Path
from random import Random
from typing import Any

from stateward.domains.mci.runtime import MciRuntime
from stateward.drivers.simulated import CALM, SimulatedCloud
from stateward.plugin.runtime import ProcessContext
from tests.integration.cli.cli_server import DomainCliServer


class MciServer(DomainCliServer):
    """A server with the mci domain."""

    command = "mci"
    plugin: MciRuntime

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.cloud = SimulatedCloud(profile=CALM, chance=Random(1))

    def make_runtime(self) -> MciRuntime:
        context = ProcessContext(self.folder, random=Random(1))
        self.plugin = MciRuntime(context, cloud=self.cloud, tick=0.01, every=3600.0)
        return self.plugin

    def made(self, fleet: str) -> Any:
        """Make an MCI from a text, and see it made."""
        return self.json("mci", "create", "-f", "-", "--wait", stdin=fleet)
