"""How soon work goes on after kill -9, with all of it under way.

Embedded, the process is killed and started again. On PostgreSQL, one of two workers is killed; the time is told in
leases, and ends when the other worker has begun all that the dead one held.
"""

import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from time import time

import msgspec

from bench.engine.databases import filled, new_database, new_file
from bench.engine.recovering_worker import AttemptStarted
from bench.figures import Line, plain, ratio
from bench.loops import run

HELD, LEASE = 200, 2.0
WITHIN = 1.0


def report() -> list[Line]:
    """Measure and return lines to print."""
    since_start, since_alive = run(_restarted(filled(new_file(), HELD)))
    seconds = run(_taken_over(filled(new_database(), HELD)))
    return [
        f"recovery after kill -9, {HELD} operations under way",
        plain("kill -9, from a new process's start until all goes on, embedded", since_start, "s", WITHIN),
        plain("the same, after Python and the program were loaded", since_alive, "s"),
        ratio("kill -9 of one of two workers, until all goes on, PostgreSQL", seconds / LEASE, "the lease"),
    ]


async def _restarted(path: str) -> tuple[float, float]:
    first = await _start(path, HELD)
    await _begun(first, HELD)
    await _kill(first)
    began = time()
    second = await _start(path, 0)
    last = (await _begun(second, HELD))[-1]
    await _stop(second)
    return last.at - began, last.at - last.alive


async def _taken_over(dsn: str) -> float:
    first = await _start(dsn, HELD)
    await _begun(first, HELD)
    second = await _start(dsn, 0)
    await _next(second)
    killed = time()
    await _kill(first)
    last = (await _begun(second, HELD))[-1]
    await _stop(second)
    return last.at - killed


async def _start(url: str, asked: int) -> Process:
    command = (sys.executable, "-m", "bench.engine.recovering_worker", url, str(LEASE), str(asked))
    return await create_subprocess_exec(*command, stdout=PIPE)


async def _begun(process: Process, count: int) -> list[AttemptStarted]:
    """Return as many of its words that it has begun something."""
    found: list[AttemptStarted] = []
    while len(found) < count:
        said = await _next(process)
        if said.attempt:
            found.append(said)
    return found


async def _next(process: Process) -> AttemptStarted:
    assert process.stdout is not None
    return msgspec.json.decode(await process.stdout.readline(), type=AttemptStarted)


async def _kill(process: Process) -> None:
    process.kill()
    await process.wait()


async def _stop(process: Process) -> None:
    process.terminate()
    await process.wait()
