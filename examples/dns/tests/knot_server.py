"""A real Knot DNS server for tests: a process in a temporary folder, on a free port, without root.

It runs with the files of the folder `knot`, which the README shows to operators.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import SO_REUSEADDR, SOCK_DGRAM, SOCK_STREAM, SOL_SOCKET, socket

from stateward_dns.dynamic_updates import ServerAddress

KNOTD = shutil.which("knotd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
CONFIG = Path(__file__).parents[1] / "knot"
SECRET = "c3RhdGV3YXJkLWRucy1leGFtcGxlLXNlY3JldC0wMDE="
CATALOG = "catalog.invalid"
PATIENCE_S = 20.0
ESTABLISHED = "01"  # in /proc/net/tcp


class KnotServer:
    """A server that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._kept = _keep_port()
        self.port: int = self._kept.getsockname()[1]
        filled_in = {"{folder}": str(folder), "{port}": str(self.port), "{secret}": SECRET}
        for file in CONFIG.iterdir():
            text = file.read_text("utf-8")
            for name, value in filled_in.items():
                text = text.replace(name, value)
            (folder / file.name).write_text(text, "utf-8")
        (folder / "db").mkdir()

    @property
    def at(self) -> ServerAddress:
        """Its address and key."""
        return ServerAddress("127.0.0.1", self.port, CATALOG, "stateward", SECRET, timeout_s=2.0)

    @property
    def environ(self) -> dict[str, str]:
        """The settings of a Stateward that uses it."""
        at = self.at
        found = {"HOST": at.host, "PORT": str(at.port), "CATALOG": at.catalog}
        found |= {"KEY_NAME": at.key_name, "KEY_SECRET": at.key_secret, "CHECK_EVERY": "1", "TIMEOUT": "2"}
        return {f"STATEWARD_DNS_{name}": value for name, value in found.items()}

    def start(self) -> None:
        """Start it, and wait until it answers."""
        assert KNOTD is not None
        (self._folder / "knot.pid").unlink(missing_ok=True)  # it survives a kill
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen([KNOTD, "-c", str(self._folder / "knot.conf")], stdout=log, stderr=log)
        end = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert self._process.poll() is None, self.log
            assert time.monotonic() < end, self.log
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill it, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Kill it, and give its port back."""
        self.kill()
        self._kept.close()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Suspend it: it takes connections and answers nobody, and does what it was told when it is resumed."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    @property
    def has_unread_data(self) -> bool:
        """Whether data of a client waits for it: a suspended server reads nothing."""
        sockets = [line.split() for line in Path("/proc/net/tcp").read_text("utf-8").splitlines()[1:]]
        ours = [one for one in sockets if int(one[1].partition(":")[2], 16) == self.port and one[3] == ESTABLISHED]
        return any(int(one[4].partition(":")[2], 16) for one in ours)

    @property
    def log(self) -> str:
        """What it has logged."""
        return (self._folder / "log").read_text("utf-8")

    def _answers(self) -> bool:
        with socket(type=SOCK_STREAM) as tried:
            return tried.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def running_knot(folder: Path) -> Iterator[KnotServer]:
    """Run a server while the body runs."""
    server = KnotServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.close()


def _keep_port() -> socket:
    """Return a socket that keeps a port for the server, which can bind it too; it is free for both protocols."""
    while True:
        kept = socket()
        kept.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        with socket(type=SOCK_DGRAM) as datagrams:
            try:
                datagrams.bind(kept.getsockname())
            except OSError:
                kept.close()
                continue
            return kept
