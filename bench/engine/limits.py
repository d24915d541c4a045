"""A run with limits against the ideal schedule: all work, divided by how much of it may be done at once.

Eight lanes, of which four may be active at once, each with ten operations at once; every operation takes as long.
"""

import asyncio
from time import perf_counter

from bench.engine.databases import filled, new_database, new_file, store_at
from bench.engine.lamps import LAMP, NS, name_of
from bench.figures import Figure, Line, ratio
from bench.loops import run
from stateward.engine import Engine, Handler, Kind, Route
from stateward.store.records import Lane, LaneGroup, Object

LANES, ACTIVE, CAPACITY, EACH = 8, 4, 10, 100
LASTING = 0.2
OPERATIONS = LANES * EACH
IDEAL = OPERATIONS * LASTING / (ACTIVE * CAPACITY)
TARGET = 1.1


class Room:
    """Who is at work, lane by lane, now and at most."""

    def __init__(self) -> None:
        self._inside = dict.fromkeys(map(_lane, range(LANES)), 0)
        self.most_operations = self.most_lanes = 0

    async def flash(self, job: object) -> None:
        """Take the time that an operation takes."""
        lane = _route(job.claim.object, "").lane  # type: ignore[attr-defined]
        self._inside[lane] += 1
        self.most_operations = max(self.most_operations, self._inside[lane])
        self.most_lanes = max(self.most_lanes, sum(map(bool, self._inside.values())))
        await asyncio.sleep(LASTING)
        self._inside[lane] -= 1


def _lane(number: int) -> str:
    return f"cloud/{number}"


def _route(lamp: Object, _: str) -> Route:
    return Route("cloud", _lane(int(lamp.id.rpartition("-")[2]) % LANES))


def report() -> list[Line]:
    """Measure and return lines to print."""
    return [
        f"limits: {OPERATIONS} operations of {LASTING:g} s, {ACTIVE} of {LANES} lanes at once, {CAPACITY} in each",
        run(_run("SQLite", filled(new_file(), OPERATIONS))),
        run(_run("PostgreSQL", filled(new_database(), OPERATIONS))),
    ]


async def _run(name: str, url: str) -> Figure:
    room = Room()
    async with Engine(store_at(url), [Kind(LAMP, {"flash": Handler(room.flash)}, _route)]) as engine:
        lanes = [Lane(_lane(number), "cloud", CAPACITY, 0.0, 0.0, 0) for number in range(LANES)]
        await engine.set_limits([LaneGroup("cloud", ACTIVE)], lanes)
        began = perf_counter()
        asked = await asyncio.gather(*(engine.act(NS, name_of(number), "flash") for number in range(OPERATIONS)))
        await asyncio.gather(*(engine.wait_record(NS, one.operation.id) for one in asked if one.operation is not None))
        seconds = perf_counter() - began
    assert (room.most_lanes, room.most_operations) == (ACTIVE, CAPACITY), "the limits were not kept, or not used"
    return ratio(f"{OPERATIONS} operations under limits, {name}", seconds / IDEAL, "the ideal schedule", TARGET)
