"""Two servers and three workers, started by the command line, on a database of several hosts."""

import asyncio
import signal
from pathlib import Path

from tests.integration.server.server_processes import Process, Served, run

SERVERS, WORKERS = 2, 3
CALM = {"STATEWARD_RATE": "100000", "STATEWARD_LOG_LEVEL": "warning"}


class Deployment:
    """The processes of a deployment."""

    def __init__(self, folder: Path, database: str) -> None:
        self._folder, self._database = folder, database
        self.servers: list[Served] = []
        self.workers: list[Process] = []

    async def start(self) -> None:
        """Migrate the database, and start all processes."""
        done = await asyncio.to_thread(run, "migrate", "--database", self._database)
        if done.returncode:
            raise RuntimeError(f"the database cannot be migrated: {done.stdout}{done.stderr}")
        self.servers = [await asyncio.to_thread(self._server, 0)]  # alone: it makes the administrator's token
        others = (asyncio.to_thread(self._server, number) for number in range(1, SERVERS))
        workers = (asyncio.to_thread(self._worker, number) for number in range(WORKERS))
        self.servers += await asyncio.gather(*others)
        self.workers = list(await asyncio.gather(*workers))

    def _server(self, number: int) -> Served:
        flags = ("--no-worker", "--database", self._database)
        return Served(self._folder / f"server{number}", *flags, environ=CALM)

    def _worker(self, number: int) -> Process:
        folder = self._folder / f"worker{number}"
        found = Process(folder, "worker", "--data", folder.name, "--database", self._database, environ=CALM)
        found.until("is at work on")
        return found

    @property
    def urls(self) -> list[str]:
        """The URLs of the servers."""
        return [one.url for one in self.servers]

    @property
    def token(self) -> str:
        """The administrator's token, which the first server made."""
        return self.servers[0].token

    async def stop(self) -> list[str]:
        """Stop all processes; returns those that ended in another way, or before."""
        everybody = [*self.workers, *self.servers]
        codes = await asyncio.gather(*(asyncio.to_thread(one.stop) for one in everybody))
        return [
            f"{one.folder.name} ended with {code}: {one.output[-800:]}"
            for one, code in zip(everybody, codes, strict=True)
            if code not in (0, -signal.SIGTERM)
        ]

    def kill(self) -> None:
        """Kill all processes that are left."""
        for one in (*self.workers, *self.servers):
            if one.process.poll() is None:
                one.process.kill()
                one.ended()
