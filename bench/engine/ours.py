"""The engine as a workload: many callers, each of which asks for one action after the other."""

import asyncio
from collections.abc import Iterator
from random import Random

from bench.engine.databases import store_at, switch_off
from bench.engine.lamps import LAMP, NS, lamps, name_of
from bench.engine.worker_processes import WorkerProcesses
from bench.engine.workload import Workloads
from stateward.engine import Engine
from stateward.store import Selector

LONGEST = 300.0
"""How many seconds a round may take before it is given up."""


class Ours:
    """An engine with so many callers and so many lamps; the work is done here, or in so many other processes."""

    def __init__(self, url: str, callers: int, stored: int, workers: int = 0) -> None:
        self._url = url
        self._callers = callers
        self._stored = stored
        self._workers = WorkerProcesses(url, workers)
        self._chance = Random(1)
        self.engine = Engine(store_at(url), [lamps()], works=not workers)

    async def open(self) -> None:
        await self.engine.__aenter__()
        await self._workers.start(self.engine.store)

    async def close(self) -> None:
        await self._workers.stop()
        await self.engine.__aexit__()

    async def run(self, actions: int) -> None:
        """Flash as many lamps, each once, and return when all of them have ended."""
        left = iter(self._chance.sample(range(self._stored), actions))
        await asyncio.gather(*(self.call(left) for _ in range(self._callers)))
        await self._settled()

    async def tidy(self) -> None: ...

    async def call(self, left: Iterator[int]) -> None:
        """Ask for one action after the other."""
        for number in left:
            await self.engine.act(NS, name_of(number), "flash")

    async def _settled(self) -> None:
        """Return when there is no work left anywhere."""
        async with asyncio.timeout(LONGEST):
            while any(load.running or load.waiting for load in (await self.engine.store.reader.lanes())[1]):
                await asyncio.sleep(0.002)


class Waited(Ours):
    """The same, but each caller waits for the end of its action before it asks for the next."""

    async def call(self, left: Iterator[int]) -> None:
        for number in left:
            accepted = await self.engine.act(NS, name_of(number), "flash")
            assert accepted.operation is not None
            await self.engine.wait_record(NS, accepted.operation.id)


class Idle(Ours):
    """An engine and a worker with nothing to do, for so many seconds."""

    async def run(self, seconds: int) -> None:
        await asyncio.sleep(seconds)


class Group(Ours):
    """One action on all lamps at once; nobody works."""

    def __init__(self, url: str, stored: int) -> None:
        super().__init__(url, 0, stored)
        self.engine = Engine(store_at(url), [lamps()], works=False)

    async def run(self, amount: int) -> None:
        verdict = await self.engine.group(None, Selector(NS, kind=LAMP.kind), self.engine.request(NS, "", "flash"))
        assert len(verdict.begun) == amount

    async def tidy(self) -> None:
        await switch_off(self._url)


NAMES: Workloads = {"ours": Ours, "waited": Waited, "idle": Idle, "group": Group}
