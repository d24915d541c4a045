"""Workers in processes of their own: `python -m bench.engine.worker_processes URL LEASE` works until SIGTERM."""

import asyncio
import signal
import sys
from asyncio.subprocess import DEVNULL, Process, create_subprocess_exec

from bench.engine.databases import store_at
from bench.engine.lamps import lamps, tell_the_time
from bench.loops import run
from stateward.engine import Engine
from stateward.store import Store


class WorkerProcesses:
    """Worker processes of one deployment."""

    def __init__(self, url: str, size: int, lease: float = 15.0) -> None:
        self._command = (sys.executable, "-m", "bench.engine.worker_processes", url, str(lease))
        self._size = size
        self.processes: list[Process] = []

    async def start(self, store: Store) -> None:
        """Start them, and return when all are known to the store."""
        known = len(await store.reader.workers()) if self._size else 0
        self.processes = [await create_subprocess_exec(*self._command, stdin=DEVNULL) for _ in range(self._size)]
        while self._size and len(await store.reader.workers()) < known + self._size:
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """Stop them, and wait until they have ended."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            await process.wait()


async def work(url: str, lease: float) -> None:
    """Work until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with Engine(store_at(url), [lamps(tell_the_time)], lease_s=lease):
        await stop.wait()


if __name__ == "__main__":
    run(work(sys.argv[1], float(sys.argv[2])))
