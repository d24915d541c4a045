"""Post-commands: commands that run on VMs after their creation, over SSH, or by a driver that has a shell of its own.

A command that fails (exit status other than 0, or no answer in time) is the last one on its VM. The MCI shows the
failure. The VM stays Running, so the policy on failed VMs does not apply.
"""

import asyncio
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.mci.handlers.command_handlers import (
    MAX_TOTAL_OUTPUT_CHARS,
    MAX_VM_OUTPUT_CHARS,
    MIN_COMMAND_OUTPUT_CHARS,
    tail_of,
)
from stateward.domains.mci.model import CommandRuns, PostCommand, VmCommandResult, vm_of
from stateward.domains.mci.remote.vm_shells import RunOrder, VmShells
from stateward.store.records import Object

MAX_CONCURRENT = 20
FIRST_ANSWER_S = 300.0
"""How long a new machine may take until its SSH server answers."""


class PostCommandResults(Struct, frozen=True):
    """The results of the commands by VM, and the reason of the failure where the last one failed."""

    written: dict[str, CommandRuns] = {}
    failed: dict[str, str] = {}


async def run_post_command(
    shells: VmShells, run: str, command: PostCommand | None, vms: Sequence[Object]
) -> PostCommandResults:
    """Run the commands on each VM, several VMs concurrently; `run` is the id by which they run once."""
    if command is None or not command.commands:
        return PostCommandResults()
    room = asyncio.Semaphore(MAX_CONCURRENT)
    seconds = command.minutes * 60
    order = RunOrder(run, command.commands, command.user, {}, seconds, min(FIRST_ANSWER_S, seconds))
    most = max(
        MIN_COMMAND_OUTPUT_CHARS,
        min(MAX_VM_OUTPUT_CHARS, MAX_TOTAL_OUTPUT_CHARS // max(1, len(vms))) // len(command.commands),
    )
    async with shells.open(vms) as group:

        async def one(vm: Object) -> tuple[str, VmCommandResult]:
            async with room:
                return vm_of(vm).name, await group.run(vm, order)

        ran = await asyncio.gather(*(one(vm) for vm in vms))
    written: dict[str, CommandRuns] = {
        name: tuple(
            replace(run, written=tail_of(run.written, most), stderr=tail_of(run.stderr, most)) for run in result.runs
        )
        for name, result in ran
    }
    return PostCommandResults(written, {name: result.error for name, result in ran if result.error})
