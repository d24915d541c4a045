"""Post-commands: commands that run on VMs after their creation, if the driver offers a shell.

A command that fails (exit status other than 0, or no answer in time) is the last one on its VM. The MCI shows the
failure. The VM stays Running, so the policy on failed VMs does not apply.
"""

import asyncio
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.mci.handlers.cloud_vm_handlers import GrantedClientOf
from stateward.domains.mci.model import CommandRun, CommandRuns, PostCommand, vm_of, vm_seen
from stateward.drivers import CommandFailed, MachineHandle
from stateward.engine import Permanent
from stateward.store.records import Object

MAX_CONCURRENT = 20
NO_SHELL_OUTPUT = "(the driver offers no way in)"

MAX_VM_OUTPUT_CHARS, MIN_COMMAND_OUTPUT_CHARS, MAX_TOTAL_OUTPUT_CHARS = 65_536, 500, 4_000_000
"""Limits of stored output in characters: per VM, per command at least, and for all VMs."""


class PostCommandResults(Struct, frozen=True):
    """The results of the commands by VM, and the reason of the failure where the last one failed."""

    written: dict[str, CommandRuns] = {}
    failed: dict[str, str] = {}


async def run_post_command(
    granted_client_of: GrantedClientOf, command: PostCommand | None, vms: Sequence[Object]
) -> PostCommandResults:
    """Run the commands on each VM, several VMs concurrently."""
    if command is None or not command.commands:
        return PostCommandResults()
    room = asyncio.Semaphore(MAX_CONCURRENT)
    most = max(
        MIN_COMMAND_OUTPUT_CHARS,
        min(MAX_VM_OUTPUT_CHARS, MAX_TOTAL_OUTPUT_CHARS // max(1, len(vms))) // len(command.commands),
    )

    async def one(vm: Object) -> tuple[str, list[CommandRun], str]:
        async with room:
            return vm_of(vm).name, *(await _run(granted_client_of, command, vm))

    ran = await asyncio.gather(*(one(vm) for vm in vms))
    written: dict[str, CommandRuns] = {
        name: tuple(replace(run, written=tail_of(run.written, most)) for run in runs) for name, runs, _ in ran
    }
    return PostCommandResults(written, {name: why for name, _, why in ran if why})


def tail_of(text: str, most: int) -> str:
    """Return the end of a text that is too long, with a note about the omitted part: errors come last."""
    left_out = len(text) - most
    return text if left_out <= 0 else f"({left_out} signs left out)\n{text[left_out:]}"


async def _run(granted_client_of: GrantedClientOf, command: PostCommand, found: Object) -> tuple[list[CommandRun], str]:
    """Return the results of the commands on a VM, in order, and the reason if the last one failed."""
    vm = vm_of(found)
    try:
        driver = (await granted_client_of(vm.connection, found.ns)).driver
    except Permanent as error:  # the grant was revoked after the VM was created: the VM stays, without commands
        return [], str(error)
    if not driver.caps.runs_commands:
        return [CommandRun(NO_SHELL_OUTPUT)], ""
    ref = MachineHandle(vm.uid, vm_seen(found).native_id or None)
    runs: list[CommandRun] = []
    for line in command.commands:
        try:
            written = await driver.run(ref, line, command.user or vm.user, command.minutes * 60)
            runs.append(CommandRun(written, 0))
        except CommandFailed as error:
            return [*runs, CommandRun(error.written, error.status)], f"{line!r} ended with {error}"
        except (OSError, TimeoutError) as error:
            return [*runs, CommandRun()], f"{line!r} failed: {type(error).__name__} {error}".rstrip()
    return runs, ""
