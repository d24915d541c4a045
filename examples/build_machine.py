"""A build machine: declare its lifecycle, write what its actions do, run it.

    python examples/build_machine.py

The second build is refused while the first one runs, and the refusal names it. Kill the program in the middle of a
build and start it again: the build goes on.
"""

import asyncio

from stateward.engine import Engine, Job, Kind, Refused
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
        await job.once(step, lambda: asyncio.sleep(0.1))
    return {"artifacts": 3}


async def main(database: str = ":memory:") -> None:
    """Make a machine and build on it, twice at once."""
    async with Engine(open_store(database), [machine]) as engine:
        await engine.run("default", "m1", "make", kind=machine)
        first = await engine.act("default", "m1", "build")
        try:
            await engine.act("default", "m1", "build")
        except Refused as refused:
            print(refused)
        done = await engine.wait("default", first.op.id, check=True)
        print(done.action, done.status, done.result)
        for line in await engine.history("default", "m1"):
            print(f"{line.source} -> {line.target} ({line.event} by {line.actor})")


if __name__ == "__main__":
    asyncio.run(main())
