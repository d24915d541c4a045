"""A worker process that tests kill: the domain with simulated instances, and a file that lists the started instances.

python -m tests.integration.domains.systems.worker_process STORE LEDGER NAME
"""

# real time: kills and pauses come at times that a seed draws; each outcome is judged, none is expected
import asyncio
import os
import sys
from pathlib import Path

from stateward.domains.systems.backends.port import InstanceSpec, ServiceRef
from stateward.domains.systems.backends.simulated_backend import SimulatedBackend
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.engine import Engine
from stateward.store import open_store

LEASE = 5.0
READY = "at work"


class RecordingBackend(SimulatedBackend):
    """Writes the path and the command of each instance to a file before it starts."""

    def __init__(self, ledger: Path) -> None:
        super().__init__(delay=0.1)
        self._ledger = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def start(self, ref: ServiceRef, want: InstanceSpec) -> None:
        """Write the entry, and start the instance."""
        os.write(self._ledger, f"{ref.path} {want.service.command[-1]}\n".encode())
        await super().start(ref, want)


async def main(store: str, ledger: str, name: str) -> None:
    """Work until killed."""
    plugin = SystemsRuntime({"simulated": RecordingBackend(Path(ledger))})
    engine = Engine(open_store(store), plugin.kinds, lease_s=LEASE, process=name)
    plugin.bind_engine(engine)
    async with engine, plugin.running(engine, works=True):
        sys.stdout.write(READY + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
