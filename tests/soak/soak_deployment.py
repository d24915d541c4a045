"""The processes of a soak: a real server, and on PostgreSQL a worker beside it; killed and started again."""

# real time: kills and pauses come at times that a seed draws; each outcome is judged, none is expected
import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from random import Random

import httpx
from msgspec import Struct

from tests.integration.domains.edge.proxy import Proxy
from tests.integration.server.server_processes import STATEWARD, Process, Served, run

AGAIN = (httpx.TransportError, OSError)
"""Errors that a caller gets from a server that was killed."""

LEASE = 5.0


class Sample(Struct, frozen=True):
    """The memory and the open files of a process at a time."""

    at: float
    name: str
    pid: int
    resident: int
    files: int


class SoakDeployment:
    """A server, on PostgreSQL also a worker, and a proxy that gives agents one address while servers restart."""

    def __init__(self, folder: Path, database: str = "") -> None:
        self._folder = folder
        self.database = database
        self.store = database or str(folder / "data" / "stateward.db")
        self._environ = {"STATEWARD_LEASE": str(LEASE), "STATEWARD_RATE": "100000", "STATEWARD_LOG_LEVEL": "warning"}
        self._environ |= {"STATEWARD_DATABASE": database} if database else {}
        self.names = ("server", "worker") if database else ("server",)
        self.processes: dict[str, Process] = {}
        self.samples: list[Sample] = []
        self.kills = 0
        self.deaths: list[str] = []
        self.proxy = Proxy()

    async def open(self) -> None:
        """Start everything."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if self.database:
            made = await asyncio.to_thread(run, "migrate", environ=self._environ)
            assert made.returncode == 0, made.stderr
        for name in self.names:
            await asyncio.to_thread(self._start, name)

    def _start(self, name: str) -> None:
        if name == "server":
            flags = ("--no-worker",) if self.database else ()
            server = Served(self._folder / "data", *flags, environ=self._environ, program=STATEWARD)
            self.processes[name] = server
            self.proxy.target = int(server.url.rpartition(":")[2])
        else:
            self.processes[name] = Process(
                self._folder / "data", "worker", "--data", "data", environ=self._environ, program=STATEWARD
            )

    @property
    def server(self) -> Served:
        """The server of now."""
        found = self.processes["server"]
        assert isinstance(found, Served)
        return found

    def address(self) -> tuple[str, str]:
        """Return where the server is, and the administrator's token."""
        return f"http://127.0.0.1:{self.proxy.target}", self.server.token

    async def kill(self, chance: Random) -> None:
        """Kill one of the processes, and start it again."""
        name = chance.choice(self.names)
        self.note_deaths()
        self.processes[name].stop(signal.SIGKILL)
        self.kills += 1
        await asyncio.sleep(chance.uniform(0.0, LEASE * 1.5))
        await asyncio.to_thread(self._start, name)

    def note_deaths(self) -> None:
        """Record processes that have ended by themselves."""
        for name, process in self.processes.items():
            code = process.process.poll()
            if code is not None:
                self.deaths.append(f"the {name} has ended by itself with {code}: {process.output[-2000:]}")

    def sample(self, at: float) -> list[Sample]:
        """Record memory and files of every process; a process that has just ended has none."""
        found: list[Sample] = []
        for name, process in self.processes.items():
            pid = process.process.pid
            with suppress(OSError):
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
                found.append(Sample(at, name, pid, pages * os.sysconf("SC_PAGE_SIZE"), files))
        self.samples += found
        return found

    def errors(self) -> list[str]:
        """Return the tracebacks in the logs of the present processes."""
        return [f"the {name} has logged a traceback: {_first(one.output)}" for name, one in self.processes.items()
                if "Traceback" in one.output]  # fmt: skip

    async def close(self) -> None:
        """Stop all processes with SIGTERM."""
        self.note_deaths()
        for process in self.processes.values():
            if process.process.poll() is None:
                code = await asyncio.to_thread(process.stop)
                if code:
                    self.deaths.append(f"a process has ended with {code} when it was asked to: {process.output[-500:]}")
        self.proxy.stop()

    def abandon(self) -> None:
        """Kill all processes that are left."""
        for process in self.processes.values():
            if process.process.poll() is None:
                process.process.kill()
                process.ended()


def _first(output: str) -> str:
    return output[output.index("Traceback") :][:3000]
