"""The cloud behind the handlers: what is true, and everything that can go wrong on the way to it.

A request that was accepted lands some time later, whether or not its caller still lives. Requests are idempotent by
their key, as with client tokens, except `grow`: doing that again does it again, so it takes a look first. While
something is about to land on a thing, nobody can say whether it was done, and other work on the thing is told to come
back. Callers show a fencing token; one that is older than the newest seen is turned away, which is what makes a worker
harmless that was stopped in front of the door and wakes up a minute later.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable
from random import Random

from msgspec import Struct, field

from stateward.engine.handlers import ObservedOutcome
from stateward.engine.job import Job
from stateward.engine.work_errors import Permanent, Temporary, Throttled, Unknown
from stateward.testing.virtual_loop import PARTY, LoopParty, VirtualLoop

BECOMES = {"create": "up", "start": "up", "rebuild": "up", "stop": "down", "terminate": "absent"}
REPEATABLE = frozenset({*BECOMES, "migrate", "fetch", "build"})


class Manners(Struct):
    """How the cloud behaves: chances of each fault for each call, and how long things take."""

    throttled: float = 0.04
    temporary: float = 0.06
    permanent: float = 0.04
    lost: float = 0.06  # the answer is, not the request
    silent: float = 0.02  # no answer ever comes
    blind: float = 0.1  # a look fails
    slow: float = 0.1
    pace: float = 0.4
    longest: float = 9.0


CALM = Manners(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.05, 0.1)


class Visit(Struct, frozen=True):
    """Somebody inside the cloud, working on a thing."""

    party: LoopParty
    op: str
    epoch: int


class Thing(Struct):
    """What is true of one object."""

    state: str = "absent"
    token: tuple[int, int] = (0, 0)
    landing: list[tuple[str, str]] = field(default_factory=list)  # keys and verbs
    waiting: dict[str, list[asyncio.Future[None]]] = field(default_factory=dict)
    inside: list[Visit] = field(default_factory=list)


class Cloud:
    """Everything out there."""

    def __init__(self, loop: VirtualLoop, chance: Random, note: Callable[[str], None]) -> None:
        self._loop = loop
        self._chance = chance
        self._note = note
        self.manners = Manners()
        self.things: dict[str, Thing] = defaultdict(Thing)
        self.effects: Counter[str] = Counter()  # how often each key was applied
        self.enters: Callable[[str, Visit, list[Visit]], None] = lambda *_: None
        self.wrong: Callable[[str], None] = lambda _: None

    @property
    def at_rest(self) -> bool:
        """Whether nothing is about to land."""
        return not any(thing.landing for thing in self.things.values())

    async def pause(self) -> None:
        """Take the time that a step takes."""
        manners = self.manners
        if self._chance.random() < manners.slow:
            await asyncio.sleep(self._chance.random() * manners.longest)
        else:
            await asyncio.sleep(self._chance.random() * manners.pace)

    async def call(self, job: Job, verb: str, step: str = "") -> None:
        """Have something done to a thing; raises as the engine wants errors to be raised."""
        visit, thing = self._visit(job)
        thing.inside.append(visit)
        try:
            await self._ask(job, thing, verb, f"{job.key.id}{step and ':'}{step}")
        finally:
            thing.inside.remove(visit)

    async def look(self, job: Job) -> ObservedOutcome:
        """Look whether an operation was done."""
        visit, thing = self._visit(job)
        thing.inside.append(visit)
        try:
            await self.pause()
            if self._chance.random() < self.manners.silent:
                await asyncio.sleep(120.0)
            if self._chance.random() < self.manners.blind:
                raise ConnectionResetError("the look failed")
            if not self._admitted(job, thing) or any(key == job.key.id for key, _ in thing.landing):
                return ObservedOutcome.UNKNOWN
            return ObservedOutcome.DONE if self.effects[job.key.id] else ObservedOutcome.NOT_DONE
        finally:
            thing.inside.remove(visit)

    def _visit(self, job: Job) -> tuple[Visit, Thing]:
        party = PARTY.get()
        assert party is not None
        visit, thing = Visit(party, job.key.id, job.epoch), self.things[job.object]
        self.enters(job.object, visit, thing.inside)
        return visit, thing

    def _admitted(self, job: Job, thing: Thing) -> bool:
        token = (job.claim.work.seq, job.epoch)
        if token < thing.token:
            return False
        thing.token = token
        return True

    async def _ask(self, job: Job, thing: Thing, verb: str, key: str) -> None:
        self._refuse(job, thing, verb, key)
        repeated = verb in REPEATABLE and (self.effects[key] or (key, verb) in thing.landing)
        if not repeated:
            self._accept(thing, verb, key)
        done = asyncio.get_running_loop().create_future()
        if (key, verb) in thing.landing:
            thing.waiting.setdefault(key, []).append(done)
        else:
            done.set_result(None)
        roll = self._chance.random()
        if roll < self.manners.silent:
            await asyncio.sleep(120.0)
        await done
        await self.pause()
        if roll < self.manners.silent + self.manners.lost:
            raise Unknown("the answer was lost")

    def _refuse(self, job: Job, thing: Thing, verb: str, key: str) -> None:
        """Turn a call away, certainly with nothing done."""
        if not self._admitted(job, thing):
            self._note(f"cloud: {key} comes with an old token")
            raise Permanent("old token")
        if any(other != key for other, _ in thing.landing):
            raise Temporary("something else is under way", after=0.3)
        manners, roll = self.manners, self._chance.random()
        for share, error in (
            (manners.throttled, Throttled("slow down", after=0.5 + self._chance.random())),
            (manners.temporary, Temporary("not now")),
            (0.0 if verb == "terminate" or self.effects[key] else manners.permanent, Permanent("never")),
        ):
            if roll < share and (key, verb) not in thing.landing:
                self._note(f"cloud: {verb} {key}: {error}")
                raise error
            roll -= share

    def _accept(self, thing: Thing, verb: str, key: str) -> None:
        thing.landing.append((key, verb))
        slow = self._chance.random() < self.manners.slow
        delay = self._chance.random() * (self.manners.longest if slow else self.manners.pace)
        self._later(delay, thing, verb, key)

    def _later(self, delay: float, thing: Thing, verb: str, key: str) -> None:
        """Let something land whatever becomes of the caller: it no longer belongs to the caller's process."""
        token = PARTY.set(None)
        self._loop.call_later(delay, self._land, thing, verb, key)
        PARTY.reset(token)

    def _land(self, thing: Thing, verb: str, key: str) -> None:
        thing.landing.remove((key, verb))
        if verb == "create" and thing.state != "absent":
            self.wrong(f"{key} creates what exists: {thing.state}")
        thing.state = BECOMES.get(verb, thing.state)
        self.effects[key] += 1
        self._note(f"cloud: {verb} {key} has landed")
        if self.effects[key] > 1:
            self.wrong(f"{key} ({verb}) was applied {self.effects[key]} times")
        for future in thing.waiting.pop(key, ()):
            if not future.done():
                future.set_result(None)
