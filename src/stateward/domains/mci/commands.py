"""Post-commands: what is run on VMs after their creation, where their driver offers a way in.

A command that fails (another status than 0, no answer in time) is the last one on its VM, and is told with the MCI. The
VM is there all the same, and runs: a policy on VMs that failed has nothing to do with it.
"""

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from stateward.domains.mci.model import PostCommand, vm_of, vm_seen
from stateward.domains.mci.vms import CloudOf
from stateward.drivers import CommandFailed, Ref
from stateward.store.records import Object

AT_ONCE = 20
NO_WAY_IN = "(the driver offers no way in)"

LONGEST, SHORTEST, ALTOGETHER = 65_536, 500, 4_000_000
"""How many signs are kept of what a VM wrote, at most and in any case, and of all VMs: it is in the MCI's record."""


class Ran(Struct, frozen=True):
    """What the commands wrote, and why they failed where they did; by VM."""

    written: dict[str, str] = {}
    failed: dict[str, str] = {}


async def run_post_command(cloud_of: CloudOf, command: PostCommand | None, vms: Sequence[Object]) -> Ran:
    """Run the commands on every VM, some at once."""
    if command is None or not command.commands:
        return Ran()
    room = asyncio.Semaphore(AT_ONCE)

    async def one(vm: Object) -> tuple[str, str, str]:
        async with room:
            return vm_of(vm).name, *(await _run(cloud_of, command, vm))

    ran = await asyncio.gather(*(one(vm) for vm in vms))
    most = max(SHORTEST, min(LONGEST, ALTOGETHER // max(1, len(vms))))
    return Ran({name: shortened(written, most) for name, written, _ in ran}, {name: why for name, _, why in ran if why})


def shortened(text: str, most: int) -> str:
    """Return the end of a text that is too long, with a word on what was left out: errors come last."""
    left_out = len(text) - most
    return text if left_out <= 0 else f"({left_out} signs left out)\n{text[left_out:]}"


async def _run(cloud_of: CloudOf, command: PostCommand, found: Object) -> tuple[str, str]:
    """Return what the commands wrote on a VM, and what was wrong with the last one, if something was."""
    vm = vm_of(found)
    driver = (await cloud_of(vm.connection)).driver
    if not driver.caps.shell:
        return NO_WAY_IN, ""
    ref = Ref(vm.uid, vm_seen(found).native_id or None)
    written: list[str] = []
    for line in command.commands:
        try:
            written.append(await driver.run(ref, line, command.user or vm.user, command.minutes * 60))
        except CommandFailed as error:
            return "\n".join([*written, error.written]), f"{line!r} ended with {error}"
        except (OSError, TimeoutError) as error:
            return "\n".join(written), f"{line!r} failed: {type(error).__name__} {error}".rstrip()
    return "\n".join(written), ""
