"""The processes of a soak: a real server, and on PostgreSQL a worker beside it; killed and started again."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from random import Random

import httpx
from msgspec import Struct

from tests.integration.domains.edge.proxy import Proxy
from tests.integration.server.server_processes import Process, Served, run

AGAIN = (httpx.TransportError, OSError)
"""What a caller sees of a server that was killed."""

LEASE = 5.0


class Sample(Struct, frozen=True):
    """What a process had at some time."""

    at: float
    name: str
    pid: int
    resident: int
    files: int


class Town:
    """A server, maybe a worker, and a door for agents that stays where it is while servers come and go."""

    def __init__(self, folder: Path, database: str = "") -> None:
        self._folder = folder
        self.database = database
        self.store = database or str(folder / "town" / "stateward.db")
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
            server = Served(self._folder / "town", *flags, environ=self._environ)
            self.processes[name] = server
            self.proxy.target = int(server.url.rpartition(":")[2])
        else:
            self.processes[name] = Process(self._folder / "town", "worker", "--data", "town", environ=self._environ)

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
        self.take_note()
        self.processes[name].stop(signal.SIGKILL)
        self.kills += 1
        await asyncio.sleep(chance.uniform(0.0, LEASE * 1.5))
        await asyncio.to_thread(self._start, name)

    def take_note(self) -> None:
        """Note a process that has ended by itself."""
        for name, process in self.processes.items():
            code = process.process.poll()
            if code is not None:
                self.deaths.append(f"the {name} has ended by itself with {code}: {process.output[-2000:]}")

    def sample(self, at: float) -> list[Sample]:
        """Look at what every process has; one that is just gone has nothing."""
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
        """Return what the processes of now complain about in their logs with a traceback."""
        return [f"the {name} has logged a traceback: {_first(one.output)}" for name, one in self.processes.items()
                if "Traceback" in one.output]  # fmt: skip

    async def close(self) -> None:
        """End everything, politely."""
        self.take_note()
        for process in self.processes.values():
            if process.process.poll() is None:
                code = await asyncio.to_thread(process.stop)
                if code:
                    self.deaths.append(f"a process has ended with {code} when it was asked to: {process.output[-500:]}")
        self.proxy.stop()

    def abandon(self) -> None:
        """Leave no process behind, whatever has happened."""
        for process in self.processes.values():
            if process.process.poll() is None:
                process.process.kill()
                process.ended()


def _first(output: str) -> str:
    return output[output.index("Traceback") :][:3000]
