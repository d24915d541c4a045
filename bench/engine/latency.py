"""How soon an action starts that is asked for while nothing else is to be done, and what doing nothing costs.

On PostgreSQL the worker is another process than the one that is asked; embedded, they are the same.
"""

import asyncio
from statistics import quantiles
from time import time

import msgspec

from bench.engine.databases import filled, new_database, new_file, store_at
from bench.engine.lamps import NS, lamps, name_of, tell_the_time
from bench.engine.turns import WorkloadSpec, run_in_turns
from bench.engine.worker_processes import WorkerProcesses
from bench.figures import Figure, Line, plain
from bench.loops import run
from stateward.engine import Engine

REQUESTS, PAUSE = 200, 0.02
IDLE, STORED = 10, 1_000
TARGETS = {"embedded": 2.0, "PostgreSQL": 5.0}
QUIET = 1.0


def report() -> list[Line]:
    """Measure and return lines to print."""
    embedded = run(_delays(filled(new_file(), STORED), workers=0))
    apart = run(_delays(filled(new_database(), STORED), workers=1))
    return [
        "from the request to the start of its work, the worker being idle",
        *_figures("embedded", embedded),
        *_figures("PostgreSQL", apart),
        *_idle(),
    ]


async def _delays(url: str, workers: int) -> list[float]:
    """Return how many seconds each of some requests had to wait, one after the other."""
    processes = WorkerProcesses(url, workers)
    async with Engine(store_at(url), [lamps(tell_the_time)], works=not workers) as engine:
        await processes.start(engine.store)
        delays = [await _delay(engine, number) for number in range(REQUESTS)]
        await processes.stop()
    return delays


async def _delay(engine: Engine, number: int) -> float:
    await asyncio.sleep(PAUSE)
    asked = time()
    accepted = await engine.act(NS, name_of(number), "flash")
    assert accepted.operation is not None
    ended = await engine.wait_record(NS, accepted.operation.id)
    assert ended.result is not None
    return msgspec.json.decode(ended.result, type=float) - asked


def _figures(name: str, delays: list[float]) -> list[Figure]:
    cuts, what = quantiles(delays, n=100), f"from a request to the start of its work, {name}"
    return [plain(f"{what}, p50", cuts[49] * 1e3, "ms", TARGETS[name]), plain(f"{what}, p99", cuts[98] * 1e3, "ms")]


def _idle() -> list[Figure]:
    """Measure what an engine and its worker use of a processor while there is nothing to do."""
    callers, stored = "1", str(STORED)
    results = run_in_turns(
        [
            WorkloadSpec("embedded", ("idle", filled(new_file(), STORED), callers, stored), IDLE),
            WorkloadSpec("PostgreSQL", ("idle", filled(new_database(), STORED), callers, stored), IDLE),
        ],
        1,
    )
    return [plain(f"idle, {one.spec.name}", one.cpu * 100, "% of a processor", QUIET) for one in results]
