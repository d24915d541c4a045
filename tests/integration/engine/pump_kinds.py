"""Sample kinds for tests of the engine: pumps whose work a test can hold, fail and count."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from stateward.engine import Ending, Handler, Job, Kind, ObservedOutcome, Route
from stateward.lifecycle import (
    BACK,
    CLOCK,
    CONTROLLER,
    FINAL,
    FORCE,
    GONE,
    MINUTE,
    NEW,
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
from stateward.store.records import Object


class Pump(State):
    BUILDING = "building", TRANSITIONAL
    IDLE = "idle", STABLE
    PUMPING = "pumping", TRANSITIONAL
    TUNING = "tuning", TRANSITIONAL
    BROKEN = "broken", STABLE
    LOST = "lost", STABLE
    SCRAPPING = "scrapping", TRANSITIONAL
    SCRAPPED = "scrapped", FINAL


P = Pump

PUMP_ROWS = (
    #      from               action    by           through      to          on error  within
    action(NEW,               "build",  USER,        P.BUILDING,  P.IDLE,     P.BROKEN, 1 * MINUTE),
    action(P.IDLE,            "pump",   USER | CLOCK, P.PUMPING,   BACK,       P.BROKEN, 1 * MINUTE),
    action(P.IDLE,            "tune",   USER,        P.TUNING,    P.IDLE,     BACK,     1 * MINUTE),
    hidden(P.IDLE,            "move",   USER,                                           1 * MINUTE),
    step(  P.BROKEN | P.LOST, "mend",   USER,                     P.IDLE),
    action(P.IDLE | P.BROKEN, "scrap",  USER,        P.SCRAPPING, P.SCRAPPED, P.BROKEN, 1 * MINUTE),
    action(every(P),          "scrap",  USER,        P.SCRAPPING, P.SCRAPPED, P.BROKEN, 1 * MINUTE, FORCE),
    step(  P.SCRAPPED,        "forget", USER,                     GONE),
)  # fmt: skip

PUMP = declare("test.pump", Pump, PUMP_ROWS, USER | CLOCK, unknown=Pump.LOST)


class Station(State):
    QUIET = "quiet", STABLE
    WORKING = "working", TRANSITIONAL
    TIRED = "tired", STABLE


T = Station

STATION_ROWS = (
    #       from               event    by          through    to       on error within
    step(   NEW,               "found", USER,                  T.QUIET),
    request(T.QUIET | T.TIRED, "pump",  USER,       T.WORKING, T.QUIET, T.TIRED, 1 * MINUTE),
    success(T.WORKING,         "calm",  CONTROLLER,            T.QUIET),
    failure(T.WORKING,         "tired", CONTROLLER,            T.TIRED),
    timeout(T.WORKING,                                         T.TIRED),
)  # fmt: skip

STATION = declare("test.station", Station, STATION_ROWS, USER | CONTROLLER | CLOCK)


class Plant:
    """Counts what is done, lets a test hold work back, and remembers what is true."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.begun: Counter[str] = Counter()
        self.true: set[str] = set()  # operations whose effect took place
        self.errors: dict[str, list[BaseException]] = {}
        self.open = asyncio.Event()
        self.open.set()
        self.inside: Counter[str] = Counter()  # how many are at work, by object
        self.most: Counter[str] = Counter()
        self.busiest = 0  # the most that were at work at once, whatever the object
        self.lanes: dict[str, Route] = {}
        self.pause = 0.0  # how many seconds work takes at least
        self.sights: list[ObservedOutcome] = []  # what looks show, one each, instead of what is true
        self.works: Callable[[Job], Awaitable[None]] | None = None  # what is done instead of the usual work

    def hold(self) -> None:
        """Let work begin, and not end."""
        self.open.clear()

    def release(self) -> None:
        """Let what is held go on."""
        self.open.set()

    def fail(self, action: str, *errors: BaseException) -> None:
        """Let the next runs of an action fail, one error each."""
        self.errors.setdefault(action, []).extend(errors)

    async def run(self, job: Job) -> Any:
        self.begun[job.action] += 1
        if self.works is not None:
            await self.works(job)
            return None
        self.inside[job.object] += 1
        self.most[job.object] = max(self.most[job.object], self.inside[job.object])
        self.busiest = max(self.busiest, self.inside.total())
        try:
            # real time: how long work takes, if a test has set it
            await asyncio.sleep(self.pause)
            await self.open.wait()
            if self.errors.get(job.action):
                raise self.errors[job.action].pop(0)
            self.true.add(job.key.id)
            self.done[job.action] += 1
            return {"attempt": job.attempt}
        finally:
            self.inside[job.object] -= 1

    async def observe(self, job: Job) -> ObservedOutcome:
        if self.sights:
            return self.sights.pop(0)
        return ObservedOutcome.DONE if job.key.id in self.true else ObservedOutcome.NOT_DONE

    def pump(self, *, observe: bool = True) -> Kind:
        """Return the kind of the pumps, worked by this plant."""
        look = self.observe if observe else None
        handlers = {name: Handler(self.run, look) for name in ("build", "pump", "tune", "move", "scrap")}
        return Kind(PUMP, handlers, self._route, spec_actions=("tune",))

    def station(self) -> Kind:
        """Return the kind of the stations: groups of pumps."""

        async def collect(job: Job) -> Any:

            return Ending("calm", CONTROLLER)

        return Kind(STATION, {"pump": Handler(collect)})

    def _route(self, found: Object, _: str) -> Route:
        return self.lanes.get(found.id, Route())
