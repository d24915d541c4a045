"""The kinds of cranes and yards: each effect of their handlers is recorded in the ledger, outside of the store."""

# real time: kills and pauses come at times that a seed draws; each outcome is judged, none is expected
import asyncio
from os import devnull
from pathlib import Path
from random import Random
from typing import Any

from stateward.engine import Ending, Handler, Job, Kind, ObservedOutcome, Route, Temporary, Unknown
from stateward.lifecycle import (
    BACK,
    CLOCK,
    CONTROLLER,
    FINAL,
    FORCE,
    GONE,
    MINUTE,
    NEW,
    SECOND,
    STABLE,
    TRANSITIONAL,
    USER,
    State,
    action,
    declare,
    every,
    failure,
    hidden,
    request,
    step,
    success,
    timeout,
)
from stateward.store.records import Lane, LaneGroup, Object
from tests.chaos.ledger import Ledger, What

NS = "harbour"
YARD_NAME = "yard"
TREE = "quay"


class Crane(State):
    RAISING = "raising", TRANSITIONAL
    IDLE = "idle", STABLE
    LIFTING = "lifting", TRANSITIONAL
    DASHING = "dashing", TRANSITIONAL
    BROKEN = "broken", STABLE
    LOST = "lost", STABLE
    SCRAPPING = "scrapping", TRANSITIONAL
    SCRAPPED = "scrapped", FINAL


C = Crane

CRANE = declare(
    "chaos.crane",
    Crane,
    (
        #      from               action    by            through      to          on error  within
        action(NEW,               "raise",  USER,         C.RAISING,   C.IDLE,     C.BROKEN, 5 * MINUTE),
        action(C.IDLE,            "lift",   USER | CLOCK, C.LIFTING,   BACK,       C.BROKEN, 5 * MINUTE),
        action(C.IDLE,            "dash",   USER,         C.DASHING,   C.IDLE,     BACK,     3 * SECOND),
        hidden(C.IDLE,            "oil",    USER,                                            5 * MINUTE),
        step(  C.BROKEN | C.LOST, "mend",   USER,                      C.IDLE),
        action(every(Crane),      "scrap",  USER,         C.SCRAPPING, C.SCRAPPED, C.BROKEN, 5 * MINUTE, FORCE),
        step(  C.SCRAPPED,        "forget", USER,                      GONE),
    ),
    USER | CLOCK,
    unknown=C.LOST,
)  # fmt: skip

WORKED = ("raise", "lift", "dash", "oil", "scrap")


class Yard(State):
    QUIET = "quiet", STABLE
    LOADING = "loading", TRANSITIONAL
    STRUCK = "struck", STABLE


YARD = declare(
    "chaos.yard",
    Yard,
    (
        step(   NEW,                      "open", USER,                     Yard.QUIET),
        request(Yard.QUIET | Yard.STRUCK, "load", USER,       Yard.LOADING, Yard.QUIET, Yard.STRUCK, 5 * MINUTE),
        success(Yard.LOADING,             "calm", CONTROLLER,               Yard.QUIET),
        failure(Yard.LOADING,             "loud", CONTROLLER,               Yard.STRUCK),
        timeout(Yard.LOADING,                                               Yard.STRUCK),
    ),
    USER | CONTROLLER | CLOCK,
)  # fmt: skip

LANES = 4
CAPACITY = 3
ACTIVE = 2
GROUPS = [LaneGroup("port", ACTIVE)]
LIMITED = [Lane(f"port/{number}", "port", CAPACITY, 0.0, 0.0, 0) for number in range(LANES)]


def route(found: Object, _: str) -> Route:
    """Send half of the cranes through the limited lanes of the port, and half through the default one."""
    number = int(found.id.rpartition("-")[2])
    return Route("port", f"port/{number // 2 % LANES}") if number % 2 else Route()


class CraneHandlers:
    """The handlers of one process: they witness what they do, and now and then something goes wrong."""

    def __init__(self, ledger: Ledger, chance: Random, pace: float, *, punctual: bool = False) -> None:
        self._ledger = ledger
        self._chance = chance
        self._pace = pace  # seconds that a piece of work takes, on average
        self._punctual = punctual  # it takes exactly that long, nothing goes wrong, and the answer comes at once

    def kinds(self) -> list[Kind]:
        """Return the kinds, worked by these handlers."""
        cranes = Kind(CRANE, {name: Handler(self.run, self.look) for name in WORKED}, route)
        return [cranes, Kind(YARD, {"load": Handler(self.count)})]

    async def run(self, job: Job) -> None:
        """Ask the provider for the effect, once."""
        facts = _facts(job)
        self._ledger.note(What.BEGIN, **facts)
        try:
            await self._dawdle()
            self._trip()
            if not self._ledger.applied(job.key.id):
                self._ledger.note(What.APPLY, **facts)
            if not self._punctual:
                await self._dawdle()
                self._lose_the_answer()
        finally:
            self._ledger.note(What.END, **facts)

    async def look(self, job: Job) -> ObservedOutcome:
        """Look whether the provider knows the operation."""
        self._ledger.note(What.LOOK, **_facts(job))
        return ObservedOutcome.DONE if self._ledger.applied(job.key.id) else ObservedOutcome.NOT_DONE

    async def count(self, job: Job) -> Ending:
        """Work on a whole whose members have all ended."""
        return Ending("calm", CONTROLLER)

    async def _dawdle(self) -> None:
        if self._punctual or not self._pace:
            await asyncio.sleep(self._pace)
        else:
            await asyncio.sleep(self._chance.expovariate(2 / self._pace))

    def _trip(self) -> None:
        if not self._punctual and self._chance.random() < 0.02:
            raise Temporary("the provider is busy", after=0.05)

    def _lose_the_answer(self) -> None:
        if self._chance.random() < 0.02:
            raise Unknown("the provider's answer was lost", after=0.05)


def unworked() -> list[Kind]:
    """Return the kinds for a process that only asks."""
    return CraneHandlers(Ledger(Path(devnull), ""), Random(1), 0).kinds()


def _facts(job: Job) -> dict[str, Any]:
    work = job.claim.work
    return {
        "op": work.op,
        "object": work.object,
        "lane": work.lane,
        "epoch": work.epoch,
        "lock": job.args.get("lock", ""),
    }
