"""Systems at scale, on simulated instances: many deploys at once, what a durable lock costs, how fast a roll-up is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median
from time import perf_counter

from bench.engine.databases import is_postgres, new_database, new_file, store_at
from bench.engine.lamps import lamp, lamps
from bench.figures import Better, Line, gain, plain, ratio
from bench.loops import run
from stateward.domains.systems.backends.simulated_backend import SimulatedBackend
from stateward.domains.systems.definition import Service, Tree
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.domains.systems.service import SystemActions
from stateward.engine import Engine, LockRequest
from stateward.lifecycle import CONTROLLER
from stateward.store.changes import Changes
from stateward.store.filters import JournalFilter
from stateward.store.records import Key, Status, Timer

NS, SYSTEM = "bench", "large"
DEPLOYS, EACH = 100, 100
SLOTS, DELAY = 500, 1.0
LOCKS, RAW, ROUNDS, TURNS = 500, 300, 20, 5
NAMES = {True: "PostgreSQL", False: "SQLite"}


def report() -> list[Line]:
    """Measure and return lines to print."""
    lines: list[Line] = [
        f"systems: {DEPLOYS} disjoint deploys at once, on a system of {DEPLOYS * EACH:,} simulated services"
    ]
    for url in (new_file(), new_database()):
        lines += run(_deploys(url))
    lines.append("systems: take and give back a durable lock, each with an operation of its own")
    for url in (new_file(), new_database()):
        lines += run(_locks(url))
    return lines


# --- many deploys, and the roll-up of a large system -----------------------------------------------------------------


@asynccontextmanager
async def _large(url: str, backend: SimulatedBackend) -> AsyncIterator[Engine]:
    plugin = SystemsRuntime({"simulated": backend})
    engine = Engine(store_at(url), plugin.kinds, slots=SLOTS)
    plugin.bind_engine(engine)
    async with engine, plugin.running(engine, works=True):
        await engine.wait_record(NS, (await SystemActions(engine, NS).create(SYSTEM, "simulated")).op.id)
        yield engine


async def _deploys(url: str) -> list[Line]:
    backend = SimulatedBackend()
    async with _large(url, backend) as engine:
        first = await _deploy_all(engine, "first")
        backend.delay = DELAY
        second = await _deploy_all(engine, "second")
        ideal = -(-DEPLOYS * EACH // SLOTS) * DELAY
        rolled = await _roll_ups(engine)
    many, name = DEPLOYS * EACH, NAMES[is_postgres(url)]
    return [
        ratio(f"{many:,} services replaced, {SLOTS:,} at a time, {name}", second / ideal, "the ideal schedule"),
        plain(f"services made by {DEPLOYS} deploys at once, {name}", many / first, "a second", None, Better.HIGHER),
        plain(f"a change of a service, until its system reflects it, {name}", rolled * 1000, "ms"),
    ]


async def _deploy_all(engine: Engine, word: str) -> float:
    actions = SystemActions(engine, NS)
    began = perf_counter()
    trees = [Tree({f"/s{number}": Service(command=(word,)) for number in range(EACH)}) for _ in range(DEPLOYS)]
    accepted = await asyncio.gather(*(actions.deploy(SYSTEM, f"/g{n}", tree) for n, tree in enumerate(trees)))
    ended = await asyncio.gather(*(engine.wait_record(NS, one.op.id) for one in accepted))
    assert {one.status for one in ended} == {Status.SUCCEEDED}, next(one.error for one in ended if one.error)
    return perf_counter() - began


async def _roll_ups(engine: Engine) -> float:
    """Return how long it takes, by the median, from a service's change to the system's."""
    after = await engine.store.reader.last_journal_seq()
    taken = []
    watching = engine.watch(after, JournalFilter(ns=NS, object=SYSTEM))
    for number in range(ROUNDS):
        event = "stable" if number % 2 else "degraded"
        began = perf_counter()
        await engine.act(NS, f"{SYSTEM}:g7.s7", event, actor=CONTROLLER)
        async for line in watching:
            if line.target == event:
                break
        taken.append(perf_counter() - began)
    return median(taken)


# --- durable locks ---------------------------------------------------------------------------------------------------


async def _locks(url: str) -> list[Line]:
    async with Engine(store_at(url), [lamps()], slots=LOCKS) as engine:
        await _lamps(engine)
        rounds = [(await _flashed(engine, locked=False), await _flashed(engine, locked=True)) for _ in range(TURNS)]
        raw = await _raw(engine)
    locked = median(with_locks for _, with_locks in rounds)
    times = median(with_locks / bare for bare, with_locks in rounds)
    name = f"an action with a durable lock, {NAMES[is_postgres(url)]}"
    return [
        ratio(name, times, "the time without the lock"),
        gain(name, raw / (locked / LOCKS), "the rate of single commits"),
        plain(name, LOCKS / locked, "a second", None, Better.HIGHER),
    ]


async def _lamps(engine: Engine) -> None:
    objects = [lamp(number) for number in range(LOCKS)]
    await engine.store.transact(lambda tx: tx.apply(Changes(objects=objects)))


async def _flashed(engine: Engine, *, locked: bool) -> float:
    began = perf_counter()
    objects = [lamp(number) for number in range(LOCKS)]
    accepted = await asyncio.gather(
        *(
            engine.act(
                one.ns,
                one.id,
                "flash",
                tree="tree" if locked else None,
                locks=[LockRequest(f"/a/b/c/n{number}", "X")] if locked else (),
            )
            for number, one in enumerate(objects)
        )
    )
    await asyncio.gather(*(engine.wait_record(one.op.ns, one.op.id) for one in accepted))
    return perf_counter() - began


async def _raw(engine: Engine) -> float:
    """Return how long one small durable transaction takes, one after the other."""
    began = perf_counter()
    for number in range(RAW):
        far = Timer("raw", "one", 4e9 + number, 0, "none", "none", "[]", "{}")
        await engine.store.transact(lambda tx, far=far: tx.apply(Changes(timers=[far])))  # type: ignore[misc]
    seconds = (perf_counter() - began) / RAW
    await engine.unset_timer(*Key("raw", "one"))
    return seconds
