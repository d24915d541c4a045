"""Post-commands: commands that run on VMs after their creation, over SSH, or by a driver that has a shell of its own.

Phases run one after the other, each on the VMs that it chooses. After a phase that fails, the others do not run, unless
it allows that. A command that fails (exit status other than 0, or no answer in time) is the last one on its VM. The MCI
shows the failure. The VM stays Running, so the policy on failed VMs does not apply.
"""

import asyncio
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.mci import model
from stateward.domains.mci.remote.begun_runs import BegunRuns
from stateward.domains.mci.remote.kept_output import KeptOutput
from stateward.domains.mci.remote.vm_shells import RunOrder, VmShells
from stateward.engine import Job
from stateward.store.records import Object

MAX_CONCURRENT = 20
FIRST_ANSWER_S = 300.0
"""How long a new machine may take until its SSH server answers."""


class PostCommandResults(Struct, frozen=True):
    """The results of the commands by VM, and the reason of the failure where the last one failed."""

    written: dict[str, model.CommandRuns] = {}
    failed: dict[str, str] = {}
    phases: tuple[model.PhaseSeen, ...] = ()


async def run_post_commands(
    shells: VmShells, job: Job, run: str, mci: model.MciSpec, vms: Sequence[Object]
) -> PostCommandResults:
    """Run the post-command and the phases on new VMs of an MCI; `run` is the id by which they run once."""
    first = await run_post_command(shells, job, run, mci.post_command, vms)
    made = {model.vm_of(vm).group for vm in vms}
    own = [
        replace(phase, choice=replace(phase.choice, group=group.name))
        for group in mci.groups
        for phase in group.post_phases
        if group.name in made
    ]
    wanted, phases, stopped = [*mci.post_phases, *own], list[model.PhaseSeen](), bool(first.failed)
    for number, phase in enumerate(wanted, 1):
        if stopped:
            phases.append(model.PhaseSeen(phase))
            continue
        chosen = [vm for vm in vms if model.is_chosen(vm, phase.choice)]
        ran = await run_post_command(shells, job, f"{run}-{number}", phase, chosen, len(wanted))
        phases.append(model.PhaseSeen(phase, True, ran.written, ran.failed))
        stopped = not phase.go_on and (bool(ran.failed) or not ran.written)
    return PostCommandResults(first.written, first.failed, tuple(phases))


async def run_post_command(
    shells: VmShells, job: Job, run: str, command: model.PostCommand | None, vms: Sequence[Object], phases: int = 1
) -> PostCommandResults:
    """Run the commands on each VM, several VMs concurrently; all phases together keep no more output than one."""
    if command is None or not command.commands:
        return PostCommandResults()
    room = asyncio.Semaphore(MAX_CONCURRENT)
    seconds = command.minutes * 60
    output = KeptOutput(len(vms), len(command.commands), phases)
    patience_s = min(FIRST_ANSWER_S, seconds)
    order = RunOrder(run, command.commands, command.user, {}, seconds, patience_s, output.stream_bytes)
    begun = BegunRuns(job, run, sorted(model.vm_of(vm).name for vm in vms))
    async with shells.open(vms) as group:

        async def run_on(vm: Object) -> tuple[str, model.VmCommandResult]:
            async with room:
                return model.vm_of(vm).name, output.keep(await group.run(vm, order, begun=begun))

        ran = await asyncio.gather(*(run_on(vm) for vm in vms))
    written: dict[str, model.CommandRuns] = {name: result.runs for name, result in ran}
    return PostCommandResults(written, {name: result.error for name, result in ran if result.error})
