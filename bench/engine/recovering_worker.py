"""A worker that is killed, or that takes over: `python -m bench.engine.recovering_worker URL LEASE ASKED`.

It asks for ASKED actions and prints each attempt. A first attempt never ends; a later attempt has a dead worker before
it, and ends at once.
"""

import asyncio
import signal
import sys
from time import time

import msgspec
from msgspec import Struct

from bench.engine.databases import store_at
from bench.engine.lamps import NS, lamps, name_of
from bench.loops import run
from stateward.engine import Engine, Job

ALIVE = time()


class AttemptStarted(Struct, frozen=True):
    """The start of an attempt: when, its number, and the time at which this process could run code."""

    at: float
    attempt: int
    alive: float


async def flash(job: Job) -> None:
    """Print the attempt; a first attempt never ends."""
    print_start(AttemptStarted(time(), job.attempt, ALIVE))
    if job.attempt == 1:
        await asyncio.Event().wait()


def print_start(started: AttemptStarted) -> None:
    print(msgspec.json.encode(started).decode(), flush=True)


async def work(url: str, lease: float, asked: int) -> None:
    """Work until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with Engine(store_at(url), [lamps(flash)], lease_s=lease) as engine:
        print_start(AttemptStarted(time(), 0, ALIVE))
        await asyncio.gather(*(engine.act(NS, name_of(number), "flash") for number in range(asked)))
        await stop.wait()


if __name__ == "__main__":
    run(work(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))
