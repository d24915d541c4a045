"""Post-commands: what is run on VMs after their creation, where their driver offers a way in."""

import asyncio
from collections.abc import Sequence

from stateward.domains.mci.model import PostCommand, vm_of, vm_seen
from stateward.domains.mci.vms import CloudOf
from stateward.drivers import Ref
from stateward.store.records import Object

AT_ONCE = 20
NO_WAY_IN = "(the driver offers no way in)"


async def run_post_command(cloud_of: CloudOf, command: PostCommand | None, vms: Sequence[Object]) -> dict[str, str]:
    """Run the commands on every VM, some at once; returns what they wrote, or why they could not be run."""
    if command is None or not command.commands:
        return {}
    room = asyncio.Semaphore(AT_ONCE)

    async def one(vm: Object) -> tuple[str, str]:
        async with room:
            return vm_of(vm).name, await _run(cloud_of, command, vm)

    return dict(await asyncio.gather(*(one(vm) for vm in vms)))


async def _run(cloud_of: CloudOf, command: PostCommand, found: Object) -> str:
    vm = vm_of(found)
    driver = (await cloud_of(vm.connection)).driver
    if not driver.caps.shell:
        return NO_WAY_IN
    ref = Ref(vm.uid, vm_seen(found).native_id or None)
    written: list[str] = []
    for line in command.commands:
        try:
            written.append(await driver.run(ref, line, command.user or vm.user, command.minutes * 60))
        except (OSError, TimeoutError) as error:
            return "\n".join([*written, f"failed: {type(error).__name__} {error}"])
    return "\n".join(written)
