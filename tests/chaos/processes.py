"""Processes under test: started, suspended, resumed and killed; the ledger records each of it."""

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path

from tests.chaos.ledger import Ledger, What
from tests.chaos.ready_signal import READY

ROOT = Path(__file__).parents[2]


class Site:
    """A store, a folder for everything beside it, and who works there."""

    def __init__(self, store: str, folder: Path, lease: float) -> None:
        self.store = store
        self.folder = folder
        self.lease = lease
        self.ledger_path = folder / "ledger"
        self.witness = Ledger(self.ledger_path, "storm")
        self.running: list[Running] = []
        self.manners: tuple[str, ...] = ()  # options of every client

    def notes_path(self, client: str) -> Path:
        """Return where a client keeps its notes."""
        return self.folder / f"{client}.notes"

    async def worker(self, name: str, *options: str) -> "Running":
        """Start a worker; it is at work when this returns."""
        running = await self.start("worker", name, str(self.ledger_path), "--lease", str(self.lease), *options)
        await running.ready()
        return running

    async def client(self, name: str, *options: str) -> "Running":
        """Start a client, with the notes of the one of that name before it."""
        return await self.start("client", name, str(self.notes_path(name)), *self.manners, *options)

    async def start(self, sort: str, name: str, where: str, *options: str) -> "Running":
        """Start a process; what it has to say goes into a file."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", *self.program(sort), self.store, where, name, *options,
                cwd=ROOT, stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=log,
            )  # fmt: skip
        running = Running(self, name, process)
        self.running.append(running)
        return running

    def program(self, sort: str) -> list[str]:
        """Return the module that a sort of process runs."""
        return [f"tests.chaos.{sort}_process"]

    def log_of(self, name: str) -> str:
        """Return what a process has said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    async def clear(self) -> None:
        """Leave no process behind."""
        for running in self.running:
            if running.alive:
                running.process.kill()
            await running.process.wait()


class Running:
    """A process, by name."""

    def __init__(self, site: Site, name: str, process: Process) -> None:
        self._site = site
        self.name = name
        self.process = process
        self.stopped = False
        self._at_work: float | None = None

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self.process.returncode is None

    async def ready(self) -> float:
        """Wait until it says that it works; returns when that was."""
        assert self.process.stdout is not None
        if self._at_work is not None:
            return self._at_work
        async with asyncio.timeout(60):
            line = (await self.process.stdout.readline()).decode()
        if not line.startswith(READY):
            raise RuntimeError(f"{self.name} did not start: {self._site.log_of(self.name)[-2000:]}")
        self._at_work = float(line.split()[1])
        return self._at_work

    async def kill(self) -> float:
        """Kill it; returns when that was."""
        at = time.time()
        self.process.kill()
        await self.process.wait()
        self._site.witness.note_about(self.name, What.KILLED)
        return at

    def stop(self) -> None:
        """Make it stand still."""
        self._site.witness.note_about(self.name, What.STOPPING)
        self._signal(signal.SIGSTOP)
        self.stopped = True

    def wake(self) -> None:
        """Let it go on, unless it was killed meanwhile."""
        if self.alive:
            self._signal(signal.SIGCONT)
            self._site.witness.note_about(self.name, What.WOKEN)
            self.stopped = False

    async def finish(self, within: float = 60.0) -> int:
        """Ask it to stop, and wait until it has; returns its exit code."""
        self._signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), within)

    def _signal(self, number: signal.Signals) -> None:
        if self.alive:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.process.pid, number)
