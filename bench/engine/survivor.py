"""A process to be killed, or to take over: `python -m bench.engine.survivor URL LEASE ASKED`.

It asks for so many actions and tells of each that it begins. Work that is begun for the first time goes on for ever;
what is begun again has survived a worker, and ends at once.
"""

import asyncio
import signal
import sys
from time import time

import msgspec
from msgspec import Struct

from bench.engine.lamps import NS, lamps, name_of
from bench.engine.places import store_at
from bench.loops import run
from stateward.engine import Engine, Job

ALIVE = time()


class Begun(Struct, frozen=True):
    """That work was begun: when, for the how-manieth time, and since when this process could do anything at all."""

    at: float
    attempt: int
    alive: float


async def flash(job: Job) -> None:
    """Tell of it, and hold on to what is begun for the first time."""
    tell(Begun(time(), job.attempt, ALIVE))
    if job.attempt == 1:
        await asyncio.Event().wait()


def tell(begun: Begun) -> None:
    print(msgspec.json.encode(begun).decode(), flush=True)


async def live(url: str, lease: float, asked: int) -> None:
    """Work until told to stop."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with Engine(store_at(url), [lamps(flash)], lease_s=lease) as engine:
        tell(Begun(time(), 0, ALIVE))
        await asyncio.gather(*(engine.act(NS, name_of(number), "flash") for number in range(asked)))
        await stop.wait()


if __name__ == "__main__":
    run(live(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))
