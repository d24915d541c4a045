"""A contestant in a process of its own, so that those who are not racing do not get in the way of the one who is.

`python -m bench.engine.child NAME URL [NUMBER...]` says "ready", then reads how much to do, line by line, and answers
each line with a `Lap`.
"""

import asyncio
import sys
from time import perf_counter, process_time

import msgspec

from bench.engine import ours
from bench.engine.contest import Contestant, Lap, resident_bytes
from bench.loops import run


def contestant(name: str, url: str, *numbers: int) -> Contestant:
    """Return a contestant by its name; what is not ours is imported only where it races."""
    if name.startswith("bare"):
        from bench.engine import bare

        return bare.NAMES[name](url, *numbers)
    if name in ours.NAMES:
        return ours.NAMES[name](url, *numbers)
    from bench.engine import peers

    return peers.NAMES[name](url, *numbers)


async def race(name: str, url: str, *numbers: str) -> None:
    """Do what is asked on the standard input, until it ends."""
    one = contestant(name, url, *map(int, numbers))
    await one.open()
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        began, cpu = perf_counter(), process_time()
        await one.run(int(line))
        lap = Lap(perf_counter() - began, process_time() - cpu, resident_bytes())
        await one.tidy()
        print(msgspec.json.encode(lap).decode(), flush=True)
    await one.close()


if __name__ == "__main__":
    run(race(*sys.argv[1:]))
