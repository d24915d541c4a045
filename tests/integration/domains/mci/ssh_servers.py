"""Real SSH servers over loopback whose sessions run a real shell, and simulated clouds that show them as machines."""

import asyncio
import os
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from signal import SIGKILL
from typing import Any

import asyncssh
import pytest
from msgspec.structs import replace

from stateward.drivers import Capabilities, MachineListing
from stateward.drivers.simulated.driver import SimulatedDriver
from stateward.drivers.ssh.host_key import fingerprint

USER = "ubuntu"


class LoopbackServer:
    """An SSH server with a home folder of its own; it lets in who has one of its keys."""

    def __init__(self, home: Path) -> None:
        self.home, self.keys = home, list[str]()
        self.forwarded: list[tuple[str, int]] = []
        self.logins = 0
        self.connections: list[asyncssh.SSHServerConnection] = []
        self.has_own_sessions = True  # as with most SSH servers; machines that are process groups have none
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        self._acceptor: asyncssh.SSHAcceptor | None = None
        self._sessions: set[asyncio.Task[None]] = set()
        self._shells: set[asyncio.subprocess.Process] = set()
        self.port = 0

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.host_key.export_public_key().decode())

    async def start(self) -> None:
        self._acceptor = await asyncssh.create_server(
            lambda: _Login(self),
            "127.0.0.1",
            self.port,
            server_host_keys=[self.host_key],
            process_factory=self._serve,
            encoding=None,
        )
        self.port = self._acceptor.get_port()

    async def stop(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
            await self._acceptor.wait_closed()
            self._acceptor = None

    async def close(self) -> None:
        """Stop, and end the shells that outlive their clients: the loop must hear of their ends before it is closed."""
        await self.stop()
        async with asyncio.timeout(30):
            while self._sessions:
                for shell in self._shells:
                    with suppress(ProcessLookupError):
                        os.killpg(shell.pid, SIGKILL) if self.has_own_sessions else shell.kill()
                await asyncio.wait(self._sessions, timeout=0.1)

    async def replace_host_key(self) -> None:
        """Be another machine at the same address."""
        await self.stop()
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        await self.start()

    def _serve(self, process: "asyncssh.SSHServerProcess[bytes]") -> None:
        session = asyncio.ensure_future(self._run_shell(process))
        self._sessions.add(session)
        session.add_done_callback(self._sessions.discard)

    async def _run_shell(self, process: "asyncssh.SSHServerProcess[bytes]") -> None:
        environment = {"HOME": str(self.home), "PATH": os.environ["PATH"]}
        shell = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", process.command or "exit 1"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            cwd=self.home,
            start_new_session=self.has_own_sessions,
        )
        self._shells.add(shell)
        feeding = asyncio.ensure_future(_feed(process, shell))
        await asyncio.gather(
            _pump(shell.stdout, process.stdout), _pump(shell.stderr, process.stderr), return_exceptions=True
        )
        status = await shell.wait()
        self._shells.discard(shell)
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        with suppress(asyncssh.Error, OSError):
            process.exit(status if status >= 0 else 255)


async def _feed(process: "asyncssh.SSHServerProcess[bytes]", shell: asyncio.subprocess.Process) -> None:
    """Pass on the input of a session; its end is the end of the shell's input."""
    assert shell.stdin is not None
    try:
        while data := await process.stdin.read(65_536):
            shell.stdin.write(data)
            await shell.stdin.drain()
    finally:
        shell.stdin.close()


async def _pump(source: asyncio.StreamReader | None, target: "asyncssh.SSHWriter[bytes]") -> None:
    """Pass on the output of a shell; one whose client is gone goes on, as with any SSH server."""
    assert source is not None
    while data := await source.read(65_536):
        with suppress(asyncssh.Error, OSError):
            target.write(data)
            await target.drain()


class _Login(asyncssh.SSHServer):
    def __init__(self, server: LoopbackServer) -> None:
        self._server = server

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._server.connections.append(conn)

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        known = [" ".join(one.split()[:2]) for one in self._server.keys]
        is_known = username == USER and " ".join(key.export_public_key().decode().split()[:2]) in known
        self._server.logins += is_known
        return is_known

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        self._server.forwarded.append((dest_host, dest_port))
        return True


class LoopbackMachines:
    """The servers of machines, in the order in which a listing shows the machines by name."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self._folder, self._stack = folder, stack
        self.by_name: dict[str, LoopbackServer] = {}
        self.private: set[str] = set()
        self.keys: list[str] = []

    async def server(self, name: str) -> LoopbackServer:
        if name not in self.by_name:
            home = self._folder / name
            home.mkdir(parents=True)
            made = self.by_name[name] = LoopbackServer(home)
            made.keys = self.keys
            await made.start()
            self._stack.push_async_callback(made.close)
        return self.by_name[name]

    async def shown(self, listing: MachineListing) -> MachineListing:
        machines = []
        for one in listing.machines:
            server = await self.server(one.name or one.key)
            is_private = any((one.name or one.key).endswith(name) for name in self.private)
            host = {"public_ip": "", "private_ip": "127.0.0.1"} if is_private else {"public_ip": "127.0.0.1"}
            machines.append(replace(one, **host, ssh_port=server.port))
        return replace(listing, machines=machines)

    def of(self, vm: str) -> LoopbackServer:
        return next(server for name, server in self.by_name.items() if name.endswith(vm))


def show_ssh_port(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """Let simulated clouds show machines with an SSH port, where nobody answers."""
    observe = SimulatedDriver.observe

    async def shown(self: SimulatedDriver, keys: Collection[str] | None = None) -> MachineListing:
        listing = await observe(self, keys)
        return replace(listing, machines=[replace(one, ssh_port=port) for one in listing.machines])

    monkeypatch.setattr(SimulatedDriver, "observe", shown)


@asynccontextmanager
async def loopback_machines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LoopbackMachines]:
    """Let simulated clouds show machines with SSH servers of this process."""
    observe, capabilities = SimulatedDriver.observe, SimulatedDriver._capabilities
    async with AsyncExitStack() as stack:
        machines = LoopbackMachines(folder / "homes", stack)

        async def shown(self: SimulatedDriver, keys: Collection[str] | None = None) -> MachineListing:
            return await machines.shown(await observe(self, keys))

        def with_ssh(self: SimulatedDriver, profile: Any) -> Capabilities:
            return replace(capabilities(self, profile), has_ssh=True)

        monkeypatch.setattr(SimulatedDriver, "observe", shown)
        monkeypatch.setattr(SimulatedDriver, "_capabilities", with_ssh)
        yield machines
