"""A controller that is killed at a chosen point: `python -m tests.integration.drivers.local.controller ...`.

Arguments: the driver (`process` or `qemu`), its folder, a deed or `create`, after which milestone to die, how many
machines. Milestones are those that the drivers tell of; with `never`, it lives to the end.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable

from stateward.drivers import Driver, MachineAction, ProviderRegion
from stateward.drivers.process import ProcessDriver
from stateward.drivers.qemu import QemuDriver
from tests.integration.drivers.local.host import refs, wants


def make(kind: str, folder: str, milestone: Callable[[str], None] = lambda _: None) -> Driver:
    """Make a driver for a folder."""
    place = ProviderRegion("local", "here", options={"folder": folder})
    return (ProcessDriver if kind == "process" else QemuDriver)(place, milestone=milestone)


async def control(kind: str, folder: str, deed: str, last: str, number: int) -> None:
    """Do one thing to some machines."""

    def milestone(name: str) -> None:
        sys.stdout.write(f"{name}\n")
        sys.stdout.flush()
        if name == last:
            os.kill(os.getpid(), signal.SIGKILL)

    driver = make(kind, folder, milestone)
    if deed == "create":
        await driver.create(wants(number, "tiny", "sh" if kind == "process" else "tick"))
    else:
        await driver.act(MachineAction(deed), refs(number, "the-token"))
    await driver.close()


if __name__ == "__main__":
    kind, folder, deed, last, number = sys.argv[1:]
    asyncio.run(control(kind, folder, deed, last, int(number)))
