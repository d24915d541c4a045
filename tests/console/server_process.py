"""The process of a server with sample objects, which tests start, call, stop and start again on its folder and port."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import randrange
from typing import Any

import httpx
import msgspec

from tests.fork_server import Command, fork_server

SAMPLE_SERVER = "tests.console.sample_server"
ROOT = Path(__file__).resolve().parents[2]
PATIENT = 60.0
PORTS = (20_000, 32_000)
"""Below the ports that the system gives out, so that a stopped server finds its port free again."""


class ConsoleServer:
    """A running server with sample objects."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder, self._flags, self.port = folder, flags, 0
        while not self._started(randrange(*PORTS)):
            assert "already in use" in self._log.read_text(), self._log.read_text()

    def start(self) -> None:
        """Start the server, on the port that it had before."""
        assert self._started(self.port), self._log.read_text()

    @property
    def _log(self) -> Path:
        return self.folder.with_suffix(".log")

    def _started(self, port: int) -> bool:
        """Start the server on a port; returns False if the port is in use."""
        arguments = [SAMPLE_SERVER, "--data", str(self.folder), "--port", str(port), *self._flags]
        command = Command(arguments, dict(os.environ), str(ROOT), module=SAMPLE_SERVER)
        self._output = self._log.open("ab")
        self.process = fork_server().start(command, self._output, self._output)
        wait_until(lambda: (self.folder / "server.json").exists() or self.process.poll() is not None)
        if self.process.poll() is not None:
            return False
        found: dict[str, str] = msgspec.json.decode((self.folder / "server.json").read_bytes())
        self.url, self.port = found["url"], port
        return True

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop the server."""
        self.process.send_signal(how)
        self.process.wait(PATIENT)
        (self.folder / "server.json").unlink(missing_ok=True)
        self._output.close()

    @property
    def token(self) -> str:
        """The administrator's token."""
        return (self.folder / "admin-token").read_text().strip()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call the API as the administrator."""
        headers = {"Authorization": f"Bearer {self.token}"}
        url = f"{self.url}/api/v1{path}"  # without the certificates, which take 50 ms to load
        answer = httpx.request(method, url, json=body, headers=headers, timeout=PATIENT, trust_env=False, verify=False)
        answer.raise_for_status()
        return answer.json()


@contextmanager
def run_console_server(folder: Path, *flags: str) -> Iterator[ConsoleServer]:
    """Run a server; it is killed in the end."""
    server = ConsoleServer(folder, *flags)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop(signal.SIGKILL)


def wait_until(condition: Callable[[], object], limit: float = PATIENT) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, "the condition did not hold in time"
        time.sleep(0.02)
