"""Commands on 1,000 machines over SSH: through the whole engine and domain, and by bare asyncssh, in one run.

The machines are those of the process driver: 1,000 shells of 0.3 MiB each, and the driver's one SSH server for all of
them. Both sides reach the same machines, and keep as many connections at once.
`python -m bench.mci_commands [MACHINES]` measures them alone, for example with 50 machines on a busy host. There the
ratio of the processor's time says more than that of the time: both sides wait for the same SSH server.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from time import perf_counter, process_time

import asyncssh
from msgspec import Struct

from bench.figures import TIMES, Figure, Line, plain
from bench.loops import run
from bench.mci_fleet import ANN, NS, Fleet, new_fleet
from stateward.domains.mci.handlers.command_handlers import MAX_CONCURRENT
from stateward.domains.mci.model import (
    CommandInput,
    CommandSpec,
    MciSpec,
    SubGroup,
    VmChoice,
    VmSeen,
    command_seen,
    vm_seen,
)
from stateward.domains.mci.remote.command_requests import submit_command
from tools import reaper

MACHINES = 1_000
USER, COMMAND = "ubuntu", "echo done"
TARGET = 1.5
MCI = "commands"


class Cost(Struct, frozen=True):
    """How long something took, and the time of a processor that this process used meanwhile."""

    seconds: float
    used: float

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s ({self.used:.2f} s of a processor)"


def report(machines: int = MACHINES) -> list[Line]:
    """Measure and return lines to print."""
    return [f"a command on {machines} machines over SSH", *run(_compare(machines))]


async def _compare(machines: int) -> list[Line]:
    async with _fleet_of_machines(machines) as fleet:
        seen = [vm_seen(one) for one in await fleet.plugin.service.vms(NS, MCI)]
        await _ours(fleet, machines)  # host keys are pinned now, as with machines that are known
        bare, ours = await _measure(_bare(fleet, seen)), await _measure(_ours(fleet, machines))
    what = f"a command on {machines} machines"
    return [
        f"  bare asyncssh {bare}, ours {ours}",
        plain(f"{what}, each", ours.seconds / machines * 1e3, "ms"),
        Figure(what, ours.seconds / bare.seconds, "bare asyncssh", target=TARGET, unit=TIMES),
        Figure(f"{what}, time of a processor", ours.used / bare.used, "bare asyncssh", unit=TIMES),
    ]


@asynccontextmanager
async def _fleet_of_machines(machines: int) -> AsyncIterator[Fleet]:
    """Open a fleet with machines on this host, and terminate them in the end."""
    async with new_fleet(tick=0.05) as fleet:
        await fleet.plugin.service.grant("local", [NS], ANN)
        try:
            await fleet.made(MciSpec(MCI, "uid-commands", (SubGroup("g", machines, "local+here+tiny", "sh"),)))
            states = await fleet.states(MCI)
            assert states == {"Running": machines}, states
            yield fleet
        finally:
            verdict = await fleet.plugin.service.control(NS, MCI, "terminate", ANN, force=True)
            assert verdict.whole is not None
            await fleet.engine.wait_record(NS, verdict.whole.op.id)


async def _measure(work: Awaitable[None]) -> Cost:
    began, used = perf_counter(), process_time()
    await work
    return Cost(perf_counter() - began, process_time() - used)


async def _ours(fleet: Fleet, machines: int) -> None:
    spec, service = CommandSpec(MCI, (), (COMMAND,), user=USER), fleet.plugin.service
    accepted = await submit_command(service, NS, VmChoice(), spec, CommandInput(), ANN)
    await fleet.engine.wait_record(NS, accepted.op.id)
    results = command_seen(await fleet.engine.record(NS, accepted.object.id)).results
    assert len(results) == machines
    assert all(one.runs and one.runs[0].written == "done\n" for one in results.values()), next(iter(results.values()))


async def _bare(fleet: Fleet, machines: Sequence[VmSeen]) -> None:
    key = asyncssh.import_private_key(fleet.plugin.access_keys.pair(NS).private)
    room = asyncio.Semaphore(MAX_CONCURRENT)

    async def one(machine: VmSeen) -> None:
        known = asyncssh.import_known_hosts(f"* {machine.host_key}\n") if machine.host_key else None
        async with (
            room,
            asyncssh.connect(
                "127.0.0.1",
                machine.ssh_port,
                config=(),
                known_hosts=known,
                username=USER,
                client_keys=[key],
                agent_path=None,
            ) as connection,
        ):
            done = await connection.run(COMMAND)
            assert done.stdout == "done\n", done

    await asyncio.gather(*(one(machine) for machine in machines))


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    for line in report(int(arguments[0]) if arguments else MACHINES):
        print(line)


if __name__ == "__main__":  # below a reaper: a run that is killed cannot end its machines itself
    sys.exit(
        reaper.main(
            [sys.executable, "-c", "import sys; from bench.mci_commands import main; main(sys.argv[1:])", *sys.argv[1:]]
        )
    )
