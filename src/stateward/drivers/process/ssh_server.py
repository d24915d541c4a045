"""The process that serves SSH to the machines in one folder: `python -m stateward.drivers.process.ssh_server FOLDER`.

One process serves all machines of a folder, each at a port of its own. An interpreter for each machine would take
40 MiB of memory, and a machine itself takes 0.3. The process is no part of the controller, so connections outlive a
restart of it. A controller starts it when a machine that can be logged in to has none, and it ends when there is no
such machine.

It starts nothing itself. A session is a job of the machine (`session_job.py`), so it has the machine's rights and not
ours. Before a connection is served, the record of the machine is read anew: only its keys open it. While the machine is
suspended, new connections wait.

Anybody on this host can connect. So connections that have not logged in do not count among those that have: there is
room for some, and a new one displaces the oldest of them.
"""

import asyncio
import fcntl
import logging
import os
import resource
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import asyncssh

from stateward.drivers.process.errors import BadMachineRecord
from stateward.drivers.process.machine_dir import MachineDir, MachinePhase, MachineRecord
from stateward.drivers.process.session_job import is_accepting, remove_old_jobs, start_session_job
from stateward.drivers.process.sftp_command import sftp_command
from stateward.drivers.process.sftp_program import LINK_FIRST
from stateward.drivers.process.shell_machine import mark_of
from stateward.drivers.process.ssh_daemon import CHANGES, HOST_KEY, SSH
from stateward.drivers.process.ssh_session import MachineSession
from stateward.procfs import (
    ProcessId,
    find_leader,
    is_same_process,
    stat_of,
    this_pid_namespace,
)
from stateward.workloads.confinement import seal_process
from stateward.workloads.host_ports import LOOPBACK
from stateward.workloads.lock_files import try_flock

log = logging.getLogger("stateward.drivers.ssh")

CHECK_INTERVAL_S = 1.0
"""How often the server asks itself whether it is still needed."""
SWEPT_PER_CHECK = 100
"""How many machines may be looked at with each check; more are looked at less often. Controllers report changes."""
RETRY_INTERVAL_S = 1.0
POLL_INTERVAL_S = 0.05
LOGIN_TIMEOUT_S = 10.0
BACKLOG = 64
MAX_CONNECTIONS = 64
"""Connections of a machine that have logged in, and sessions of a connection, at a time."""
MAX_STARTUPS = 64
"""Connections of a machine that have not logged in, at a time."""


class MachineServer(asyncssh.SSHServer):
    """One connection to a machine: only sessions, and only those that run as jobs of the machine."""

    def __init__(self, machine: Path, record: MachineRecord, process: ProcessId, on_login: Callable[[], bool]) -> None:
        self._machine, self._record, self._process, self._on_login = machine, record, process, on_login
        self._conn: asyncssh.SSHServerConnection
        self._sessions = 0

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        """Keep the connection."""
        self._conn = conn

    def auth_completed(self) -> None:
        """Count the connection among those that have logged in, or close it if there are too many."""
        if not self._on_login():
            self._conn.disconnect(asyncssh.DISC_TOO_MANY_CONNECTIONS, "the machine has too many connections")

    def session_requested(self) -> "tuple[asyncssh.SSHServerChannel[bytes], MachineSession]":
        """Open a session."""
        if self._sessions >= MAX_CONNECTIONS:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_RESOURCE_SHORTAGE, "too many sessions")
        self._sessions += 1
        user = self._conn.get_extra_info("username")
        home = Path(self._record.home or self._machine)
        variables = {"USER": user, "LOGNAME": user}
        if "AsyncSSH" in self._conn.get_extra_info("client_version"):
            variables[LINK_FIRST] = "1"
        start = partial(start_session_job, self._machine, home, self._process, variables)
        channel = self._conn.create_server_channel(encoding=None)
        return channel, MachineSession(start, sftp_command(), self._end_session)

    def _end_session(self) -> None:
        self._sessions -= 1


class MachinePort:
    """The port of one machine, and the connections to it."""

    def __init__(self, machines: MachineDir, record: MachineRecord) -> None:
        self._machines, self._key, self.port = machines, record.key, record.ssh_port
        self._machine = machines.path_of(record.key)
        self.process = record.process
        self._listener = socket.create_server((LOOPBACK, self.port), backlog=BACKLOG)
        self._listener.setblocking(False)
        self._startups: dict[asyncio.Task[None], None] = {}  # have not logged in, the oldest first
        self._connections: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.create_task(self._accept())

    def close(self) -> None:
        """Close the port and all connections."""
        self._accepting.cancel()
        self.disconnect()

    def disconnect(self) -> None:
        """Close the connections: their processes have ended."""
        for task in (*self._startups, *self._connections):
            task.cancel()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        with self._listener:
            while True:
                try:
                    sock, _ = await loop.sock_accept(self._listener)
                except OSError as error:  # too many open files
                    log.warning("machine %s: a connection could not be accepted: %s", self._key, error)
                    await asyncio.sleep(RETRY_INTERVAL_S)
                else:
                    self._add(sock)
                    await asyncio.sleep(0)  # its task begins: one that is cancelled before would not close the socket

    def _add(self, sock: socket.socket) -> None:
        if len(self._startups) >= MAX_STARTUPS:
            oldest = next(iter(self._startups))
            del self._startups[oldest]
            oldest.cancel()
        task = asyncio.create_task(self._serve(sock))
        self._startups[task] = None
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._startups.pop(task, None)
        self._connections.discard(task)

    def _admit(self, task: asyncio.Task[None]) -> bool:
        """Count a connection among those that have logged in; false if there are too many, or it was displaced."""
        if task not in self._startups or len(self._connections) >= MAX_CONNECTIONS:
            return False
        del self._startups[task]
        self._connections.add(task)
        return True

    async def _serve(self, sock: socket.socket) -> None:
        """Serve one connection until it ends."""
        with suppress(OSError, asyncssh.Error, TimeoutError, BadMachineRecord):
            running = None
            try:
                running = await self._wait_until_running()
            finally:
                if running is None:
                    sock.close()
            if running is not None:
                await self._serve_running(sock, *running)

    async def _serve_running(self, sock: socket.socket, record: MachineRecord, process: ProcessId) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            connection = await asyncssh.run_server(
                sock,
                server_factory=lambda: MachineServer(self._machine, record, process, lambda: self._admit(task)),
                server_host_keys=[asyncssh.import_private_key((self._machine / HOST_KEY).read_bytes())],
                authorized_client_keys=asyncssh.import_authorized_keys("\n".join(record.authorized_keys)),
                login_timeout=LOGIN_TIMEOUT_S,
                **REFUSED,
            )
            await connection.wait_closed()
        finally:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # its transport closes it: nobody else may

    async def _wait_until_running(self) -> tuple[MachineRecord, ProcessId] | None:
        """Wait while the machine starts or is suspended; None if it has ended."""
        while True:
            record = self._machines.read(self._key)
            if record is None or record.phase is MachinePhase.ENDING:
                return None
            if record.phase is MachinePhase.STARTING:
                process = self._find_started(record)
            elif record.process is None or record.process.host != this_pid_namespace():
                return None
            else:
                process = record.process
            if process is None:
                await asyncio.sleep(RETRY_INTERVAL_S)
                continue
            stat = stat_of(process.pid)
            if not is_same_process(process, stat):
                return None
            if stat is not None and stat.state not in "Tt" and is_accepting(self._machine):
                return record, process
            await asyncio.sleep(POLL_INTERVAL_S)

    def _find_started(self, record: MachineRecord) -> ProcessId | None:
        """Return the process of a machine whose controller has died before it could record that the machine is up."""
        return find_leader(mark_of(record)) if self._machines.is_alive(record.key) else None


REFUSED: dict[str, bool | None] = {
    "password_auth": False,
    "kbdint_auth": False,
    "host_based_auth": False,
    "gss_kex": False,
    "gss_auth": False,
    "gss_host": None,
    "allow_pty": False,
    "agent_forwarding": False,
    "x11_forwarding": False,
}
"""The ways to log in, and the things to forward, that no machine has. Ports are refused by `SSHServer` itself."""


class SshServer:
    """Serves all machines of a folder that can be logged in to."""

    def __init__(self, root: Path, lock: int = 0) -> None:
        self._root, self._machines, self._lock = root, MachineDir(root), lock
        self._ports: dict[str, MachinePort] = {}

    async def run(self) -> None:
        """Serve until there is no such machine, or the folder is gone."""
        changes = await self._open_changes()
        folder = self._root.stat()
        for check in count():
            if check % max(1, len(self._ports) // SWEPT_PER_CHECK) == 0:
                self._refresh_all()
            await self._follow(changes)
            if not _is_still(self._root, folder) or (not self._ports and self._release()):
                return

    def _release(self) -> bool:
        """Release the lock, and tell whether this server can end.

        A controller that found the lock taken has started no other server for its new machine. So machines are looked
        for once more after the release, and if there is one, the server that has the lock serves it.
        """
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        records, _ = self._machines.read_all()
        if not any(map(self._can_be_served, records)):
            return True
        return not try_flock(self._lock)

    async def _open_changes(self) -> asyncio.StreamReader:
        """Open the pipe in which controllers write the keys of machines that they have changed."""
        file = self._root / SSH / CHANGES
        if not file.exists():
            os.mkfifo(file, 0o600)
        stream = os.fdopen(os.open(file, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW), "rb", 0)
        changes = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(changes)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, stream)
        return changes

    async def _follow(self, changes: asyncio.StreamReader) -> None:
        """Refresh the machines that a controller names, until the next check is due."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CHECK_INTERVAL_S):
                while True:
                    line = await changes.readline()
                    self._refresh(line.decode(errors="replace").rstrip("\n"))

    def _refresh_all(self) -> None:
        """Look at all machines."""
        with suppress(OSError):
            records, _ = self._machines.read_all()
            for key in self._ports.keys() - {record.key for record in records}:
                self._ports.pop(key).close()
            for record in records:
                self._apply(record)

    def _refresh(self, key: str) -> None:
        with suppress(OSError, BadMachineRecord):
            record = self._machines.read(key)
            if record is not None:
                self._apply(record)
            elif key in self._ports:
                self._ports.pop(key).close()

    def _apply(self, record: MachineRecord) -> None:
        """Open or close the port of a machine, as its record says."""
        port = self._ports.get(record.key)
        if not self._can_be_served(record):
            if port is not None:
                self._ports.pop(record.key).close()
        elif port is None:
            self._open(record)
        elif record.process != port.process:
            port.process = record.process
            port.disconnect()

    def _can_be_served(self, record: MachineRecord) -> bool:
        if not record.ssh_port or record.phase is MachinePhase.ENDING:
            return False
        return record.phase is MachinePhase.STARTING or self._machines.is_alive(record.key)

    def _open(self, record: MachineRecord) -> None:
        remove_old_jobs(self._machines.path_of(record.key))
        try:
            self._ports[record.key] = MachinePort(self._machines, record)
        except OSError as error:  # tried again by the next sweep
            log.warning("machine %s: port %d could not be opened: %s", record.key, record.ssh_port, error)


def _is_still(path: Path, status: os.stat_result) -> bool:
    """Tell whether a folder is still the one that was found."""
    try:
        return os.path.samestat(path.stat(), status)
    except OSError:
        return False


def main() -> None:
    """Serve the machines of the folder in the first argument."""
    seal_process()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    logging.getLogger("asyncssh").setLevel(logging.ERROR)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(SshServer(Path(sys.argv[1])).run())


if __name__ == "__main__":
    main()
