"""A fork server for `stateward`: a process that has loaded the program, and forks a process for each command.

A server takes about two seconds of processor time to import its modules and to build its routes, and the tests start
hundreds. Here one process per run of pytest does so once. Its forks are the same program in processes of their own:
they have their own arguments, environment, folder, files and signals, and end as if they had been executed.

A command that is to be executed, because its test looks at limits, memory or `/proc`, is started without this.
"""

import asyncio
import atexit
import faulthandler
import gc
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from runpy import run_module
from typing import IO, NamedTuple

import msgspec

from tools.reaper import restore_signals

ROOT = Path(__file__).parents[1]
MAX_COMMAND_BYTES = 1 << 20


class Command(msgspec.Struct, frozen=True):
    """What a process is started with, besides its files; its first argument is the program."""

    arguments: list[str]
    environ: dict[str, str]
    folder: str
    module: str = ""  # of the tests, which is run instead of the program


class ForkedProcess:
    """A process that the fork server has forked; it is used as a `subprocess.Popen`."""

    def __init__(self, server: "ForkServer", status: socket.socket) -> None:
        self._server, self._status = server, status
        self.pid = int(self._read_number())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return how it has ended, or None."""
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; return the exit status, or the negative number of the signal."""
        if self.returncode is None:
            self._status.settimeout(timeout)
            try:
                self.returncode = self._read_number()
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0) from None
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def _read_number(self) -> int:
        number = self._status.recv(100)
        if not number:
            self._status.close()
            raise ForkServerEnded(self._server.describe_end())
        return int(number)


class ForkServerEnded(Exception):
    """The fork server has ended, and with it all that is known of its processes."""


class ForkServer:
    """The fork server of this process. One that was killed is started again; its error names how it has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        with theirs:
            environ = {name: value for name, value in os.environ.items() if not name.startswith("STATEWARD_")}
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-c", f"from {__name__} import main; main()", str(theirs.fileno())],
                cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stderr=self._errors, pass_fds=[theirs.fileno()],
            )  # fmt: skip

    def start(self, command: Command, stdout: IO[bytes], stderr: IO[bytes]) -> ForkedProcess:
        """Start a process; it writes to these files."""
        with self._lock:
            try:
                return self._fork(command, stdout, stderr)
            except (OSError, ForkServerEnded):
                if self._process.wait() != -signal.SIGKILL:  # else somebody, such as the kernel, has killed it
                    raise ForkServerEnded(self.describe_end()) from None
                self.close()
                self._begin()
                return self._fork(command, stdout, stderr)

    def _fork(self, command: Command, stdout: IO[bytes], stderr: IO[bytes]) -> ForkedProcess:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            files = [stdout.fileno(), stderr.fileno(), theirs.fileno()]
            try:
                socket.send_fds(self._socket, [msgspec.json.encode(command)], files)
            except OSError:
                ours.close()
                raise
        return ForkedProcess(self, ours)

    def fileno(self) -> int:
        """Return the socket that commands are sent to, for a process that inherits it."""
        return self._socket.fileno()

    def describe_end(self) -> str:
        """Return how it has ended, and the last that it has written."""
        status = self._process.wait()
        self._errors.seek(0)
        return f"the fork server has ended with {status}: {self._errors.read()[-2000:].decode(errors='replace')}"

    def close(self) -> None:
        """End it."""
        self._socket.close()
        self._process.wait()
        self._errors.close()


@cache
def fork_server() -> ForkServer:
    """Return the fork server of this process; it ends with this process."""
    server = ForkServer()
    atexit.register(server.close)
    return server


@contextmanager
def forked_module(module: str, *arguments: str) -> Iterator[tuple[ForkedProcess, IO[str]]]:
    """Run a module of the tests in a process of its own, and read what it prints; in the end it is killed."""
    read, write = os.pipe()
    command = Command([module, *arguments], dict(os.environ), str(ROOT), module)
    with os.fdopen(read) as printed:
        with os.fdopen(write, "wb") as stdout, open(2, "wb", closefd=False) as stderr:
            process = fork_server().start(command, stdout, stderr)
        try:
            yield process, printed
        finally:
            process.kill()
            process.wait()


# --- the process of the fork server ----------------------------------------------------------------------------------


def _load_program() -> None:
    """Load all that a server loads, by opening one."""
    from stateward.cli.commands import serve  # noqa: F401
    from stateward.config import Config
    from stateward.server.run import open_application
    from tests.route_signatures import parse_signatures_once

    parse_signatures_once()  # for all servers that are forked

    async def open_and_close() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with open_application(Config(data=folder)):
                pass

    asyncio.run(open_and_close())
    tempfile.tempdir = None  # it depends on the environment
    assert threading.active_count() == 1, f"a fork would lose {threading.enumerate()}"


class Fork(NamedTuple):
    """A running process: its number, and where its end is reported."""

    pid: int
    status: socket.socket


def _serve(requests: socket.socket) -> tuple[Command, list[int]] | None:
    """Fork until the other side has gone. Return in each fork, too, with its command and its files."""
    forks: dict[int, Fork] = {}
    with selectors.DefaultSelector() as ready:
        ready.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is not requests:
                    ready.unregister(key.fd)
                    _report_end(key.fd, forks.pop(key.fd))
                    continue
                text, files, _, _ = socket.recv_fds(requests, MAX_COMMAND_BYTES, 3)
                if not text:
                    return None
                *files, status = files
                pid = os.fork()
                if pid == 0:
                    for one in (*forks, *(fork.status.fileno() for fork in forks.values()), status):
                        os.close(one)
                    return msgspec.json.decode(text, type=Command), files
                for one in files:
                    os.close(one)
                forks[(end := os.pidfd_open(pid))] = fork = Fork(pid, socket.socket(fileno=status))
                ready.register(end, selectors.EVENT_READ)
                fork.status.send(str(pid).encode())


def _report_end(end: int, fork: Fork) -> None:
    os.close(end)
    _, status = os.waitpid(fork.pid, 0)
    with fork.status, suppress(BrokenPipeError):  # nobody may wait for it any more
        fork.status.send(str(os.waitstatus_to_exitcode(status)).encode())


def _run_program(command: Command, files: list[int]) -> None:
    """Become the process of a command."""
    from stateward.cli.main import run

    for number, file in enumerate(files, 1):
        os.dup2(file, number)
        os.close(file)
    faulthandler.enable()
    os.environ.clear()
    os.environ.update(command.environ)
    os.chdir(command.folder)
    time.tzset()
    sys.argv[:] = command.arguments
    if command.module:
        run_module(command.module, run_name="__main__", alter_sys=True)
        return
    sys.path[0] = str(Path(sys.argv[0]).parent)
    run()


def main() -> None:
    """Load the program, and fork."""
    restore_signals()
    _load_program()
    gc.collect()
    gc.freeze()  # else a fork's first collection would copy all that is loaded
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        forked = _serve(requests)
    if forked is not None:
        _run_program(*forked)
