"""A build machine: declare its lifecycle, write what its actions do, run it.

    python examples/build_machine.py [DATABASE]

The second build is refused while the first one runs, and the refusal names it. With DATABASE, a file, everything is
kept: kill the program in the middle of a build and start it again, and the build continues after the last finished
step.
"""

import asyncio
import sys
from functools import partial

from stateward.engine import AlreadyExists, Engine, Job, Kind, Refused
from stateward.lifecycle import BACK, FINAL, MINUTE, NEW, STABLE, TRANSITIONAL, USER, State, action, declare
from stateward.store import open_store


class Machine(State):
    """The states of a build machine."""

    MAKING = "making", TRANSITIONAL
    IDLE = "idle", STABLE
    BUILDING = "building", TRANSITIONAL
    SCRAPPING = "scrapping", TRANSITIONAL
    SCRAPPED = "scrapped", FINAL


ROWS = (
    #      from          action   by    through            to                on error          within
    action(NEW,          "make",  USER, Machine.MAKING,    Machine.IDLE,     Machine.SCRAPPED, 5 * MINUTE),
    action(Machine.IDLE, "build", USER, Machine.BUILDING,  BACK,             BACK,             30 * MINUTE),
    action(Machine.IDLE, "scrap", USER, Machine.SCRAPPING, Machine.SCRAPPED, BACK,             5 * MINUTE),
)  # fmt: skip

machine = Kind(declare("example.machine", Machine, ROWS, USER))


@machine.handles("make")
@machine.handles("scrap")
async def nothing_to_do(job: Job) -> None:
    """Making and scrapping take no work in this example."""


@machine.handles("build")
async def build(job: Job) -> dict[str, int]:
    """Build in checkpointed steps: what was done before a crash is not done again."""
    for number, step in enumerate(("fetch", "compile", "test"), 1):
        await job.progress(step, done=number, total=3)
        await job.once(step, partial(work, step))
    return {"artifacts": 3}


async def work(step: str) -> None:
    """Do a step, which takes a while."""
    print(step, flush=True)
    await asyncio.sleep(0.1)


async def main(database: str = ":memory:") -> None:
    """Make a machine, unless it exists, and build on it, twice at the same time."""
    async with Engine(open_store(database), [machine]) as engine:
        try:
            await engine.run("default", "m1", "make", kind=machine)
        except AlreadyExists:
            print("m1 was made by an earlier run")
        begun = (await engine.get("default", "m1")).op or (await engine.act("default", "m1", "build")).op.id
        try:
            await engine.act("default", "m1", "build")
        except Refused as refused:
            print(refused)
        done = await engine.wait("default", begun, check=True)
        print(done.action, done.status, done.result)
        for line in await engine.history("default", "m1"):
            print(f"{line.source} -> {line.target} ({line.event} by {line.actor})")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
