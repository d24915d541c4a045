"""Real processes: `stateward serve` and `stateward worker`, started, called, stopped and killed by tests."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx
import msgspec
from typer.testing import CliRunner

from stateward.cli.main import app as command_line
from stateward.config import Config
from tests.fork_server import Command, ForkedProcess, fork_server
from tests.integration.drivers.local.host_machines import kill_all_in

STATEWARD = Path(sys.executable).parent / "stateward"
PATIENT = 120.0


def start(
    arguments: Sequence[str],
    folder: Path,
    environ: Mapping[str, str] | None,
    program: Path | None,
    stdout: IO[bytes],
    stderr: IO[bytes],
) -> subprocess.Popen[bytes] | ForkedProcess:
    """Start `stateward`: forked, unless a program is named or the environment is one that Python reads."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STATEWARD_")}
    whole = {**clean, "PYTHONUNBUFFERED": "1", **(environ or {})}
    argv = [str(program or STATEWARD), *arguments]
    if program is None and not any(name.startswith("PYTHON") for name in environ or ()):
        return fork_server().start(Command(argv, whole, str(folder)), stdout, stderr)
    return subprocess.Popen(argv, stdout=stdout, stderr=stderr, stdin=subprocess.DEVNULL, env=whole, cwd=folder)


class Process:
    """A process of ours, with what it printed in a file."""

    def __init__(
        self, folder: Path, *arguments: str, environ: dict[str, str] | None = None, program: Path | None = None
    ) -> None:
        self.folder = folder
        self.said = folder.with_name(f"{folder.name}.{time.monotonic_ns()}.log")
        with self.said.open("wb") as log:
            self.process = start(arguments, folder.parent, environ, program, log, log)

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self.said.read_text("utf-8")

    def until(self, text: str) -> None:
        """Wait until it has printed something."""
        end = time.monotonic() + PATIENT
        while text not in self.output:
            assert self.process.poll() is None, f"it has ended with {self.process.returncode}: {self.output}"
            assert time.monotonic() < end, self.output
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait for the end, and return how it came."""
        self.process.send_signal(how)
        return self.ended()

    def ended(self) -> int:
        """Wait for the end, and return how it came."""
        return self.process.wait(PATIENT)


class Served(Process):
    """A server that answers."""

    def __init__(
        self, folder: Path, *flags: str, environ: dict[str, str] | None = None, program: Path | None = None
    ) -> None:
        data = () if folder.name == Config().data else ("--data", folder.name)  # the default folder is not named
        words = ("serve", *data, "--port", "0", *flags)
        super().__init__(folder, *words, environ=environ, program=program)
        self.until("  try")

    @property
    def url(self) -> str:
        """Where it answers."""
        found: dict[str, str] = msgspec.json.decode((self.folder / "server.json").read_bytes())
        return found["url"]

    @property
    def token(self) -> str:
        """The administrator's token."""
        return (self.folder / "admin-token").read_text().strip()

    def client(self) -> httpx.Client:
        """Return a client with the administrator's token. It checks no certificate: to load those takes 40 ms."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENT, trust_env=False, verify=False)


@contextmanager
def served(
    folder: Path, *flags: str, environ: dict[str, str] | None = None, program: Path | None = None
) -> Iterator[Served]:
    """Run a server; whatever happens, it is gone in the end."""
    server = Served(folder, *flags, environ=environ, program=program)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.ended()


def kill_machines_below(folder: Path) -> None:
    """End the machines whose records are below a folder: confined ones show nothing else of it."""
    for place in {record.parents[2] for record in folder.rglob("machines/*/record.json")}:
        kill_all_in(place)


def invoke(
    *arguments: str, environ: dict[str, str] | None = None, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end within this process: one of its own takes half a second to start."""
    env = {"COLUMNS": "250", "NO_COLOR": "1", **(environ or {})}
    done = CliRunner().invoke(command_line, arguments, env=env, input=stdin)
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def run(*arguments: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return _run(lambda stdout, stderr: start(arguments, Path.cwd(), environ, None, stdout, stderr))


def run_module(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module of the tests to its end, in a process that has loaded the program."""
    command = Command([module, *arguments], dict(os.environ), str(Path.cwd()), module)
    return _run(lambda stdout, stderr: fork_server().start(command, stdout, stderr))


def _run(
    begin: Callable[[IO[bytes], IO[bytes]], subprocess.Popen[bytes] | ForkedProcess],
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = begin(stdout, stderr)
        try:
            status = process.wait(PATIENT)
        finally:
            process.kill()
        texts = []
        for file in (stdout, stderr):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess([], status, *texts)
