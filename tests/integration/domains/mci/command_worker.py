"""A process that creates machines on this host, runs a command on them, and is killed by its test meanwhile."""

import asyncio
import sys
from pathlib import Path

from stateward.domains.mci.model import CommandInput, CommandSpec, SubGroup, VmChoice
from stateward.domains.mci.remote.command_requests import submit_command
from stateward.store import open_store
from tests.integration.domains.mci.conftest import ANN, NS, mci, open_harness

MACHINES = SubGroup("g1", 2, "local+here+tiny", "sh")
COMMAND = "echo run >>marker; while [ ! -e go ]; do sleep 0.05; done; cat marker"


async def main(folder: Path) -> None:
    """Start the command, print its operation and its record, and wait for the end of the process."""
    async with open_harness(open_store(str(folder / "stateward.db")), folder) as harness:
        await harness.grant_host()
        await harness.created(mci("m1", MACHINES))
        spec = CommandSpec("m1", (), (COMMAND,))
        accepted = await submit_command(harness.service, NS, VmChoice(), spec, CommandInput(), ANN)
        sys.stdout.write(f"{accepted.op.id} {accepted.object.id}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
