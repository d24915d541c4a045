"""Real processes: `stateward serve` and `stateward worker`, started, called, stopped and killed by tests."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec

from stateward.config import Config
from tests.integration.drivers.local.host_machines import kill_all_in

STATEWARD = Path(sys.executable).parent / "stateward"
PATIENT = 120.0


class Process:
    """A process of ours, with what it printed in a file."""

    def __init__(
        self, folder: Path, *arguments: str, environ: dict[str, str] | None = None, program: Path = STATEWARD
    ) -> None:
        self.folder = folder
        self.said = folder.with_name(f"{folder.name}.{time.monotonic_ns()}.log")
        clean = {name: value for name, value in os.environ.items() if not name.startswith("STATEWARD_")}
        with self.said.open("wb") as log:
            self.process = subprocess.Popen(
                [str(program), *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**clean, "PYTHONUNBUFFERED": "1", **(environ or {})},
                cwd=folder.parent,
            )

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
        self, folder: Path, *flags: str, environ: dict[str, str] | None = None, program: Path = STATEWARD
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

    def client(self, *, verify: bool = True) -> httpx.Client:
        """Return a client with the administrator's token."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENT, trust_env=False, verify=verify)


@contextmanager
def served(
    folder: Path, *flags: str, environ: dict[str, str] | None = None, program: Path = STATEWARD
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


def run(*arguments: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STATEWARD_")}
    command = [str(STATEWARD), *arguments]
    env = {**clean, **(environ or {})}
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENT, check=False, env=env)
