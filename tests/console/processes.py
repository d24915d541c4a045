"""A stage in a process of its own: started, spoken to, stopped and started again on its folder and port."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

ROOT = Path(__file__).resolve().parents[2]
PATIENT = 60.0


class Played:
    """A stage that answers."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder, self._flags, self.port = folder, flags, 0
        self.start()

    def start(self) -> None:
        """Start the stage, on the port that it had before."""
        command = [sys.executable, "-m", "tests.console.stage", "--data", str(self.folder), "--port", str(self.port)]
        self._said = self.folder.with_suffix(".log").open("ab")
        self.process = subprocess.Popen([*command, *self._flags], cwd=ROOT, stdout=self._said, stderr=self._said)
        patiently(lambda: (self.folder / "server.json").exists() or self.process.poll() is not None)
        assert self.process.poll() is None, self.folder.with_suffix(".log").read_text()
        found: dict[str, str] = msgspec.json.decode((self.folder / "server.json").read_bytes())
        self.url = found["url"]
        self.port = int(self.url.rpartition(":")[2])

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop the stage."""
        self.process.send_signal(how)
        self.process.wait(PATIENT)
        (self.folder / "server.json").unlink(missing_ok=True)
        self._said.close()

    @property
    def token(self) -> str:
        """The administrator's token."""
        return (self.folder / "admin-token").read_text().strip()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call the API as the administrator."""
        headers = {"Authorization": f"Bearer {self.token}"}
        with httpx.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=PATIENT, trust_env=False) as client:
            answer = client.request(method, path, json=body)
        answer.raise_for_status()
        return answer.json()


@contextmanager
def played(folder: Path, *flags: str) -> Iterator[Played]:
    """Run a stage; whatever happens, it is gone in the end."""
    stage = Played(folder, *flags)
    try:
        yield stage
    finally:
        if stage.process.poll() is None:
            stage.stop(signal.SIGKILL)


def patiently(condition: Callable[[], object], limit: float = PATIENT) -> None:
    """Wait until something is true."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.02)
