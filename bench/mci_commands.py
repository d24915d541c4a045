"""Commands on 1,000 machines over SSH: through the whole server, and by bare asyncssh, in one run.

The machines are SSH servers of a few processes, each with a folder and a port of its own, whose sessions run a shell.
`python -m bench.mci_commands [MACHINES]` measures them alone, for example with 50 machines on a busy host.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import asyncssh
import msgspec
from msgspec.structs import replace

from bench.figures import TIMES, Figure, Line, plain
from bench.loops import run
from bench.mci_fleet import ANN, NS, Fleet, new_fleet
from stateward.domains.mci.handlers.command_handlers import MAX_CONCURRENT
from stateward.domains.mci.model import CommandInput, CommandSpec, MciSpec, SubGroup, VmChoice, command_seen
from stateward.domains.mci.remote.command_requests import submit_command
from stateward.drivers import Capabilities, MachineListing
from stateward.drivers.simulated import SimulatedDriver

MACHINES, SERVERS = 1_000, 2
USER, COMMAND = "ubuntu", "echo done"
TARGET = 1.5
MCI = "commands"


def report(machines: int = MACHINES) -> list[Line]:
    """Measure and return lines to print."""
    return [f"a command on {machines} machines over SSH", *run(_compare(machines))]


async def _compare(machines: int) -> list[Line]:
    with TemporaryDirectory(prefix="stateward-bench-ssh-") as folder:
        async with new_fleet(tick=0.05) as fleet:
            public = Path(folder, "key.pub")
            public.write_text(fleet.plugin.access_keys.public_key(NS))
            with _servers(Path(folder), public, machines) as ports, _shown_by_clouds(ports):
                await fleet.made(MciSpec(MCI, "uid-commands", (_group(machines),)))
                await _ours(fleet, machines)  # host keys are pinned now, as with machines that are known
                seconds = {"bare asyncssh": await _bare(fleet, ports), "ours": await _ours(fleet, machines)}
    words = ", ".join(f"{name} {taken:.2f} s" for name, taken in seconds.items())
    ratio = seconds["ours"] / seconds["bare asyncssh"]
    return [
        f"  {words}",
        plain(f"a command on {machines} machines, each", seconds["ours"] / machines * 1e3, "ms"),
        Figure(f"a command on {machines} machines", ratio, "bare asyncssh", target=TARGET, unit=TIMES),
    ]


def _group(machines: int) -> SubGroup:
    return SubGroup("g", machines, "aws+ap-northeast-2+t3.nano", "ubuntu22.04", user=USER)


async def _ours(fleet: Fleet, machines: int) -> float:
    began = perf_counter()
    spec, service = CommandSpec(MCI, (), (COMMAND,)), fleet.plugin.service
    accepted = await submit_command(service, NS, VmChoice(), spec, CommandInput(), ANN)
    await fleet.engine.wait_record(NS, accepted.op.id)
    taken = perf_counter() - began
    results = command_seen(await fleet.engine.record(NS, accepted.object.id)).results
    assert len(results) == machines
    assert all(one.runs and one.runs[0].written == "done\n" for one in results.values()), next(iter(results.values()))
    return taken


async def _bare(fleet: Fleet, ports: list[int]) -> float:
    key, room = (
        asyncssh.import_private_key(fleet.plugin.access_keys.pair(NS).private),
        asyncio.Semaphore(MAX_CONCURRENT),
    )

    async def one(port: int) -> None:
        async with (
            room,
            asyncssh.connect(
                "127.0.0.1", port, config=(), known_hosts=None, username=USER, client_keys=[key], agent_path=None
            ) as connection,
        ):
            done = await connection.run(COMMAND)
            assert done.stdout == "done\n", done

    began = perf_counter()
    await asyncio.gather(*(one(port) for port in ports))
    return perf_counter() - began


@contextmanager
def _shown_by_clouds(ports: list[int]) -> Iterator[None]:
    """Let simulated clouds show machines with the ports of the servers."""
    observe, capabilities, given = SimulatedDriver.observe, SimulatedDriver._capabilities, dict[str, int]()
    free = iter(ports)

    async def shown(self: SimulatedDriver, keys: Collection[str] | None = None) -> MachineListing:
        listing = await observe(self, keys)
        for one in listing.machines:
            if one.key not in given:
                given[one.key] = next(free)
        return replace(
            listing,
            machines=[replace(one, public_ip="127.0.0.1", ssh_port=given[one.key]) for one in listing.machines],
        )

    def with_ssh(self: SimulatedDriver, profile: Any) -> Capabilities:  # noqa: ANN401 - as the driver has it
        return replace(capabilities(self, profile), has_ssh=True)

    SimulatedDriver.observe, SimulatedDriver._capabilities = shown, with_ssh  # type: ignore[method-assign]
    try:
        yield
    finally:
        SimulatedDriver.observe, SimulatedDriver._capabilities = observe, capabilities  # type: ignore[method-assign]


# --- the servers, in processes of their own --------------------------------------------------------------------------


@contextmanager
def _servers(folder: Path, public: Path, machines: int) -> Iterator[list[int]]:
    """Run the SSH servers of all machines; yields their ports."""
    words = [sys.executable, "-m", "bench.mci_commands", "--serve", str(public), str(folder)]
    shares = [machines // SERVERS + (number < machines % SERVERS) for number in range(SERVERS)]
    children = [
        subprocess.Popen([*words, str(number), str(share)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for number, share in enumerate(shares)
    ]
    try:
        yield [
            port for one in children if one.stdout is not None for port in msgspec.json.decode(one.stdout.readline())
        ]
    finally:
        for one in children:
            one.terminate()
            one.wait()
            for stream in (one.stdin, one.stdout):
                if stream is not None:
                    stream.close()


async def _serve(public: Path, folder: Path, number: int, machines: int) -> None:
    keys, host_key = asyncssh.import_authorized_keys(public.read_text()), asyncssh.generate_private_key("ssh-ed25519")
    ports = []
    for machine in range(machines):
        home = folder / f"{number}-{machine}"
        home.mkdir()
        acceptor = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[host_key],
            authorized_client_keys=keys,
            process_factory=lambda process, home=home: _session(process, home),
            encoding=None,
        )
        ports.append(acceptor.get_port())
    sys.stdout.write(msgspec.json.encode(ports).decode() + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


async def _session(process: "asyncssh.SSHServerProcess[bytes]", home: Path) -> None:
    async with _shell(process, home) as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        feeding = asyncio.ensure_future(_feed(process, shell.stdin))
        while data := await shell.stdout.read(65_536):
            process.stdout.write(data)
        status = await shell.wait()
        feeding.cancel()
        process.exit(status)


@asynccontextmanager
async def _shell(process: "asyncssh.SSHServerProcess[bytes]", home: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe, env = asyncio.subprocess.PIPE, {"HOME": str(home), "PATH": os.environ["PATH"]}
    words = ("/bin/sh", "-c", process.command or "exit 1")
    yield await asyncio.create_subprocess_exec(
        *words, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT, env=env, cwd=home, start_new_session=True
    )


async def _feed(process: "asyncssh.SSHServerProcess[bytes]", shell: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await process.stdin.read(65_536):
            shell.write(data)
            await shell.drain()
    shell.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        run(_serve(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])))
    else:
        for line in report(int(sys.argv[1]) if len(sys.argv) > 1 else MACHINES):
            print(line)
