"""Three servers on one PostgreSQL, killed again and again in the middle of overlapping deploys.

Never do two deploys work on overlapping paths at once, and never is there a lock without a live operation.
"""

# real time: kills and pauses come at times that a seed draws; each outcome is judged, none is expected
import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path
from random import Random

import asyncpg
import msgspec
import pytest
from msgspec import Struct

from stateward.domains.systems.backends.simulated_backend import SimulatedBackend
from stateward.domains.systems.definition import Service, Tree
from stateward.domains.systems.lifecycle import DEPLOY, TEARDOWN
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.domains.systems.service import SystemActions
from stateward.engine import Accepted, Denied, Engine
from stateward.engine.row_locks import conflicts
from stateward.locks.paths import parse_path
from stateward.store import open_store
from stateward.store.filters import JournalFilter
from stateward.store.records import Lock
from tests import seeds
from tests.fork_server import forked_module
from tests.integration.domains.systems import worker_process
from tests.integration.domains.systems.worker_process import READY
from tests.servers import PostgresServer

NS, WORKERS, ROUNDS, KILLS = "default", 3, 40, 2
PATHS = ("/a", "/a/b", "/a/b/c", "/a/d", "/ab", "/e")
PATIENT = 120.0

ORPHANS = "SELECT l.op FROM locks l LEFT JOIN work w ON w.ns = l.ns AND w.op = l.op WHERE w.op IS NULL"
HELD = "SELECT ns, tree, path, mode, op, waiting, seq FROM locks WHERE NOT waiting"


class Span(Struct, frozen=True):
    """What a deploy or a teardown covered, from when it certainly held its lock to its end: lines of the journal."""

    name: str
    path: str
    first: int
    last: int

    def meets(self, other: "Span") -> bool:
        """Tell whether two were at work at the same time on paths that overlap."""
        steps = zip(parse_path(self.path), parse_path(other.path), strict=False)
        overlap = all(here == there for here, there in steps)
        return overlap and self.first < other.last and other.first < self.last


class WorkerProcesses:
    """The worker processes; a test kills and replaces them."""

    def __init__(self, store: str, folder: Path) -> None:
        self._store = store
        self.ledger = folder / "ledger"
        self._processes: list[ExitStack] = []
        self._number = 0

    async def add(self) -> None:
        """Start a worker process."""
        self._number += 1
        words = (worker_process.__name__, self._store, str(self.ledger), f"w{self._number}")
        with ExitStack() as stack:
            _, printed = stack.enter_context(forked_module(*words))
            assert (await asyncio.to_thread(printed.readline)).strip() == READY
            self._processes.append(stack.pop_all())

    def kill(self, chance: Random) -> None:
        """Kill one of them, in the middle of its work."""
        self._processes.pop(chance.randrange(len(self._processes))).close()

    def clear(self) -> None:
        """Kill all of them."""
        while self._processes:
            self._processes.pop().close()


@pytest.fixture
async def worker_processes(
    tmp_path: Path, postgres_server: PostgresServer
) -> AsyncIterator[tuple[WorkerProcesses, str]]:
    store = postgres_server.new_database()
    found = WorkerProcesses(store, tmp_path)
    yield found, store
    found.clear()


async def test_locks_hold_across_processes_and_kill_9(worker_processes: tuple[WorkerProcesses, str]) -> None:
    workers, store = worker_processes
    chance = seeds.chance("deploys and kills")
    plugin = SystemsRuntime({"simulated": SimulatedBackend()})
    engine = Engine(open_store(store, migrate=True), plugin.kinds, works=False)
    plugin.bind_engine(engine)
    async with engine:
        await asyncio.gather(*(workers.add() for _ in range(WORKERS)))
        await engine.wait_record(NS, (await SystemActions(engine, NS).create("shop", "simulated")).op.id, PATIENT)
        observer = asyncio.create_task(watch_locks(store))
        killing = asyncio.create_task(kill_workers(workers, chance))
        accepted = await send_requests(engine, chance)
        for one in accepted:
            await engine.wait_record(NS, one.op.id, PATIENT)
        await killing
        observer.cancel()
        result = (await asyncio.gather(observer, return_exceptions=True))[0]
        assert isinstance(result, asyncio.CancelledError), result
        spans = await spans_of(engine)
        assert await engine.store.reader.locks_of((await engine.record(NS, "shop")).key) == []
    assert len(spans) > ROUNDS / 4
    assert [pair for pair in combinations(spans, 2) if pair[0].meets(pair[1])] == []
    worked = {line.split()[1] for line in workers.ledger.read_text().splitlines()}
    assert len(worked) > ROUNDS / 8


async def send_requests(engine: Engine, chance: Random) -> list[Accepted]:
    """Request deploys and teardowns that conflict; now and then cancel one."""
    accepted: list[Accepted] = []
    actions = SystemActions(engine, NS, "ann")
    for number in range(ROUNDS):
        path, wait = chance.choice(PATHS), chance.choice((None, 60.0))
        leaf = Tree({"/x": Service(command=("run", str(number)), instances=2)})
        try:
            if chance.random() < 0.08:
                accepted.append(await actions.teardown("shop", wait))
            else:
                accepted.append(await actions.deploy("shop", path, leaf, wait))
            if chance.random() < 0.1:
                await actions.cancel("shop", accepted[-1].object.id)
        except Denied:
            await asyncio.sleep(0.02)
        await asyncio.sleep(chance.uniform(0.0, 0.1))
    return accepted


async def kill_workers(workers: WorkerProcesses, chance: Random) -> None:
    """Kill workers, and start others."""
    for _ in range(KILLS):
        await asyncio.sleep(chance.uniform(0.2, 0.6))
        workers.kill(chance)
        await workers.add()


async def watch_locks(store: str) -> None:
    """Check all the time that each lock has a running operation, and that no two held locks conflict."""
    connection = await asyncpg.connect(store, server_settings={"search_path": "stateward"})
    try:
        while True:
            assert await connection.fetch(ORPHANS) == []
            held = [Lock(*row) for row in await connection.fetch(HELD)]
            assert [pair for pair in combinations(held, 2) if conflicts(*pair)] == []
            await asyncio.sleep(0.005)
    finally:
        await connection.close()


async def spans_of(engine: Engine) -> list[Span]:
    """Return when each deploy and teardown was at work, in the order of commits."""
    lines = await engine.store.reader.journal(0, 1_000_000, JournalFilter(ns=NS))
    changes = [line for line in lines if line.kind in (DEPLOY.kind, TEARDOWN.kind)]
    ended = {line.object: line.seq for line in changes if line.target in ("succeeded", "failed", "cancelled")}
    begun: dict[str, int] = {}
    for line in changes:
        if line.target in ("accepted", "in progress"):
            begun.setdefault(line.object, line.seq)
    return [Span(name, await path_of(engine, name), first, ended[name]) for name, first in begun.items()]


async def path_of(engine: Engine, name: str) -> str:
    """Return the path of a deploy; a teardown is of the whole system."""
    labels: dict[str, str] = msgspec.json.decode((await engine.record(NS, name)).labels)
    return labels.get("path", "/")
