"""A controller that is killed at a chosen point: `python -m tests.integration.drivers.local.killed_controller ...`.

Arguments: the driver (`process` or `qemu`), its folder, a action or `create`, after which milestone to die, how many
machines. Milestones are those that the drivers tell of; with `never`, it lives to the end.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable

from stateward.drivers import Driver, MachineAction, MachineHandle, MachineSpec, ProviderRegion
from stateward.drivers.process import ProcessDriver
from stateward.drivers.qemu import QemuDriver


def make(kind: str, folder: str, milestone: Callable[[str], None] = lambda _: None) -> Driver:
    """Make a driver for a folder."""
    place = ProviderRegion("local", "here", options={"folder": folder})
    return (ProcessDriver if kind == "process" else QemuDriver)(place, milestone=milestone)


def machine_specs(number: int, spec: str, image: str) -> list[MachineSpec]:
    """Return what is to be made; here, because `host_machines` imports pytest, which takes as long as all of this."""
    return [MachineSpec(f"key-{one}", f"machine-{one}", spec, image) for one in range(number)]


def machine_handles(number: int, token: str = "") -> list[MachineHandle]:
    """Name what was made."""
    return [MachineHandle(f"key-{one}", None, token) for one in range(number)]


async def control(kind: str, folder: str, action: str, last: str, number: int) -> None:
    """Do one thing to some machines."""

    def milestone(name: str) -> None:
        sys.stdout.write(f"{name}\n")
        sys.stdout.flush()
        if name == last:
            os.kill(os.getpid(), signal.SIGKILL)

    driver = make(kind, folder, milestone)
    if action == "create":
        await driver.create(machine_specs(number, "tiny", "sh" if kind == "process" else "tick"))
    else:
        await driver.act(MachineAction(action), machine_handles(number, "the-token"))
    await driver.close()


if __name__ == "__main__":
    kind, folder, action, last, number = sys.argv[1:]
    asyncio.run(control(kind, folder, action, last, int(number)))
