"""The process of a workload: apart from all others, so that idle workloads do not disturb the one that is timed.

`python -m bench.engine.workload_process NAME URL [NUMBER...]` prints "ready", then reads amounts of work, line by line,
and answers each line with a `RoundResult`.
"""

import asyncio
import sys
from time import perf_counter, process_time

import msgspec

from bench.engine import ours
from bench.engine.workload import RoundResult, Workload, resident_bytes
from bench.loops import run


def workload(name: str, url: str, *numbers: int) -> Workload:
    """Return a workload by its name; other engines are imported only in their own processes."""
    if name.startswith("bare"):
        from bench.engine import bare

        return bare.NAMES[name](url, *numbers)
    if name in ours.NAMES:
        return ours.NAMES[name](url, *numbers)
    from bench.engine import peers

    return peers.NAMES[name](url, *numbers)


async def serve_rounds(name: str, url: str, *numbers: str) -> None:
    """Run the rounds that standard input asks for, until it ends."""
    one = workload(name, url, *map(int, numbers))
    await one.open()
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        began, cpu = perf_counter(), process_time()
        await one.run(int(line))
        result = RoundResult(perf_counter() - began, process_time() - cpu, resident_bytes())
        await one.tidy()
        print(msgspec.json.encode(result).decode(), flush=True)
    await one.close()


if __name__ == "__main__":
    run(serve_rounds(*sys.argv[1:]))
