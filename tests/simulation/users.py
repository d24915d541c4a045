"""The users: they send any requests, in any order, to any process, and remember the responses."""

import asyncio
from random import Random
from typing import Any

from msgspec.structs import replace

from stateward.engine.engine import Engine
from stateward.engine.errors import KeyReused
from stateward.engine.external_reports import ExternalReport
from stateward.engine.requests import Accepted, Creation, LockRequest, Request
from stateward.errors import StatewardError
from stateward.lifecycle import AGENT, CONTROLLER, FORCE, USER
from stateward.store.errors import StoreError
from stateward.store.filters import Selector
from stateward.store.records import UNLIMITED, Lane, LaneGroup, Object, Timer
from stateward.testing.simulated_process import SimulatedProcess
from tests.simulation.kinds import LANES, LIFECYCLES, NARROW
from tests.simulation.world import TIMED, World

NS = "n"
NAMES = {"box": [f"b{i}" for i in range(8)], "site": ["s0", "s1"], "number": ["l0", "l1"], "image": ["i0", "i1"]}
KINDS = {name: kind for kind, names in NAMES.items() for name in names}
PATHS = ("/", "/a", "/a/b", "/a/c", "/d")
MODES = ("X", "X", "S", "IX", "IS", "SIX")
ACTORS = {"degrade": CONTROLLER, "fixed": CONTROLLER, "given up": CONTROLLER, "migrate": CONTROLLER}
FIRST = {"box": "create", "site": "found", "number": "register", "image": "build"}


class Users:
    """Everybody who asks for something."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance: Random = world.chance("users")
        self.accepted: dict[str, Request] = {}
        self.keys: dict[str, tuple[Request, str | None]] = {}  # the request that a key stands for, and its operation
        self._repeatable: list[Request] = []
        self.timers: dict[str, Object | None] = {}  # those set for certain, and not taken back, with their object
        self._numbers = iter(range(1_000_000))

    async def live(self) -> None:
        """Ask for something from time to time."""
        wishes = (
            (self._act, 60),
            (self._group, 5),
            (self._cancel, 7),
            (self._report, 14),
            (self._repeat, 5),
            (self._set_timer, 4),
            (self._set_limits, 4),
            (self._wait, 3),
            (self._plan, 2),
        )
        kinds, weights = [wish for wish, _ in wishes], [weight for _, weight in wishes]
        narrow = self._world.narrow
        while True:
            await asyncio.sleep(self._chance.expovariate(1 / self._world.size.pause))
            up = self._world.up
            if up:
                process = self._chance.choice(up)
                if narrow:
                    self._narrow(process)
                    narrow = False
                for _ in range(self._chance.choice((1, 1, 1, 2, 4))):
                    self._chance.choices(kinds, weights)[0](process)

    # --- looking -----------------------------------------------------------------------------------------------------

    def _object(self, name: str) -> Object | None:
        found = self._world.inspector.seen.objects.get(name)
        return None if found is None or found.removed else found

    def _ask(self, process: SimulatedProcess, request: Request) -> None:
        process.spawn(self._submit(process, request))

    async def _submit(self, process: SimulatedProcess, request: Request) -> None:
        assert process.engine is not None
        try:
            answer = await process.engine.submit(request)
        except KeyReused:
            first = self.keys.get(request.key or "")
            if first is not None and _same(first[0], request):
                self._world.wrong(f"key {request.key} is refused to the request that it was first used for")
        except (StatewardError, StoreError) as error:
            self._world.note(f"user: {request.op} {request.action} {request.object}: {type(error).__name__}")
            self._check_denial(request, error)
        else:
            self._answered(request, answer)

    def _check_denial(self, request: Request, error: StatewardError) -> None:
        if request.op in self._world.inspector.done and not isinstance(error, StoreError):
            self._world.wrong(f"{request.op} was done, and is denied: {error}")

    def _answered(self, request: Request, answer: Accepted) -> None:
        op = answer.operation.id if answer.operation is not None else None
        self._world.note(f"user: {request.op} {request.action} {request.object} accepted{' again' * answer.again}")
        if op is not None:
            self.accepted[op] = request
        if request.key is None:
            return
        first, known = self.keys.setdefault(request.key, (request, op))
        if not _same(first, request):
            self._world.wrong(f"key {request.key} is good for two requests")
        if known != op:
            self._world.wrong(f"key {request.key} was answered with {known}, and now with {op}")

    # --- wishes ------------------------------------------------------------------------------------------------------

    def _act(self, process: SimulatedProcess) -> None:
        chance, engine = self._chance, self._engine(process)
        kind = chance.choices(("box", "site", "number", "image"), (70, 5, 15, 10))[0]
        name = chance.choice(NAMES[kind])
        found = self._object(name)
        how = self._how(kind)
        if found is None:
            queue = "b0" if name in ("b6", "b7") and self._object("b0") is not None else None
            birth = Creation(kind, f"s{int(name[1:]) % 2}" if kind == "box" else None, queue=queue)
            request = engine.request(NS, name, FIRST[kind], creates=birth, spec={"size": chance.randrange(3)}, **how)
        else:
            action, forced = self._choose(found)
            if forced or chance.random() < 0.1:
                how["facts"] = (FORCE,)
            spec = {"size": chance.randrange(9)} if chance.random() < 0.2 else None
            actor = ACTORS.get(action, USER)
            request = engine.request(NS, name, action, actor=actor, spec=spec, **how)
        if request.key is not None:
            self._repeatable.append(request)
            self._ask(process, request)
        else:
            self._ask(process, replace(request, who=request.op))

    def _choose(self, found: Object) -> tuple[str, bool]:
        """Choose what is allowed, mostly; whether it has to be forced comes with it."""
        lifecycle, chance = LIFECYCLES[found.kind], self._chance
        if chance.random() < 0.1:
            return chance.choice(lifecycle.events), False
        ways = [
            one
            for one in lifecycle.allowed[found.state]
            if {USER, CONTROLLER} & set(one.actors) and (not one.needs or chance.random() < 0.3)
        ]
        if not ways:
            return "terminate", chance.random() < 0.2
        way = chance.choice(ways)
        return way.event, bool(way.needs)

    def _how(self, kind: str) -> dict[str, Any]:
        chance, how = self._chance, dict[str, Any]()
        if chance.random() < 0.2:
            how["key"] = f"k{next(self._numbers)}"
        if chance.random() < 0.2:
            how["priority"] = chance.randrange(-2, 5)
        if chance.random() < 0.1:
            how["not_before"] = self._world.clock() + chance.random() * 5
        if kind == "box" and chance.random() < 0.3:
            how["tree"] = "t"
            how["wait"] = chance.random() < 0.6
            how["locks"] = [
                LockRequest(path, chance.choice(MODES)) for path in chance.sample(PATHS, chance.choice((1, 1, 2)))
            ]
        return how

    def _repeat(self, process: SimulatedProcess) -> None:
        """Ask again under the same key, for the same or for something else."""
        if not self._repeatable:
            return
        request = replace(self._chance.choice(self._repeatable), op=self._world.new_id())
        if self._chance.random() < 0.3:
            request = replace(request, args='{"other":1}')
        self._ask(process, request)

    def _group(self, process: SimulatedProcess) -> None:
        engine, site = self._engine(process), self._chance.choice(NAMES["site"])
        found = self._object(site)
        if found is None:
            return
        whole, each = ("close", "stop") if found.state == "Open" else ("open", "start")
        if self._chance.random() < 0.2:
            each = self._chance.choice(("terminate", "remove"))
        process.spawn(self._act_on_all(process, engine.request(NS, site, whole), each))

    async def _act_on_all(self, process: SimulatedProcess, whole: Request, each: str) -> None:
        engine = self._engine(process)
        members = Selector(NS, "box", whole.object)
        asked = whole if self._chance.random() < 0.8 else None
        try:
            verdict = await engine.group(asked, members, engine.request(NS, "", each))
        except (StatewardError, StoreError) as error:
            self._world.note(f"user: group {each} of {whole.object}: {type(error).__name__}")
            self._check_denial(whole, error)
            return
        for one in (verdict.whole, *verdict.begun):
            if one is not None and one.operation is not None:
                self.accepted[one.operation.id] = whole

    def _cancel(self, process: SimulatedProcess) -> None:
        work = self._world.inspector.seen.work
        if work:
            process.spawn(self._quietly(self._engine(process).cancel(NS, self._chance.choice(list(work)), "u")))

    def _wait(self, process: SimulatedProcess) -> None:
        work = self._world.inspector.seen.work
        if work:
            process.spawn(self._wait_for(self._engine(process), self._chance.choice(list(work))))

    def _plan(self, process: SimulatedProcess) -> None:
        engine, name = self._engine(process), self._chance.choice(NAMES["box"])
        found = self._object(name)
        if found is not None:
            request = engine.request(NS, name, self._choose(found)[0], facts=(FORCE,))
            process.spawn(self._quietly(engine.plan([request])))

    async def _wait_for(self, engine: Engine, op: str) -> None:
        try:
            found = await engine.wait_record(NS, op, self._chance.random() * 20)
        except (StatewardError, StoreError, TimeoutError):
            return
        if found.status != self._world.inspector.ended.get(op):
            self._world.wrong(f"whoever waits for {op} is told {found.status}")

    # --- other parties, time, limits ---------------------------------------------------------------------------------

    def _report(self, process: SimulatedProcess) -> None:
        """Let the carrier say something about what it works on: true, late, twice, or about something else."""
        chance = self._chance
        found = self._object(chance.choice(NAMES["number"] + NAMES["image"][:1]))
        if found is None:
            return
        op = found.op or "op1"
        generation = found.generation
        if chance.random() < 0.15:
            op = chance.choice(list(self.accepted) or ["op1"])
        if chance.random() < 0.1:
            generation -= 1
        event = chance.choice(("accepted", "ported", "rejected")) if found.kind == "number" else "spoilt"
        word = ExternalReport(NS, found.id, op, generation, event, AGENT, "carrier")
        if found.kind == "image" and chance.random() < 0.7:
            return
        for _ in range(chance.choice((1, 1, 2))):
            process.spawn(self._quietly(self._engine(process).report(word)))

    def _set_timer(self, process: SimulatedProcess) -> None:
        chance, engine = self._chance, self._engine(process)
        if self.timers and chance.random() < 0.2:
            name = chance.choice(list(self.timers))
            del self.timers[name]
            process.spawn(self._quietly(engine.unset_timer(NS, name)))
            return
        name = chance.choice(NAMES["box"] + NAMES["number"])
        event = TIMED[2] if KINDS[name] == "number" else chance.choice(TIMED[:2])
        due = self._world.clock() + chance.random() * 10
        timer = Timer(NS, f"t{next(self._numbers)}", due, chance.randrange(3), name, event, "[]", "{}")
        process.spawn(self._arm(engine, timer))

    async def _arm(self, engine: Engine, timer: Timer) -> None:
        there = self._object(timer.object)  # before: once it is set, it may fire long before we hear of it
        try:
            await engine.set_timer(timer)
        except StoreError:
            return
        self.timers[timer.id] = there

    def _narrow(self, process: SimulatedProcess) -> None:
        lanes = [Lane(name, LANES[name], self._chance.choice((1, 2)), 0.0, 0.0, 0) for name in NARROW]
        process.spawn(self._quietly(self._engine(process).set_limits(lanes=lanes)))

    def _set_limits(self, process: SimulatedProcess) -> None:
        chance, engine = self._chance, self._engine(process)
        if chance.random() < 0.5:
            group = LaneGroup(chance.choice(("east", "west")), chance.choice((1, 2, 3)))
            process.spawn(self._quietly(engine.set_limits([group])))
        else:
            name = chance.choice(list(LANES))
            capacity = chance.choice((1, 1, 2, 3) if name else (1, 2, UNLIMITED, UNLIMITED))
            lane = Lane(name, LANES[name], capacity, 0.0, 0.0, 0)
            process.spawn(self._quietly(engine.set_limits(lanes=[lane])))

    async def _quietly(self, asked: Any) -> None:
        try:
            await asked
        except (StatewardError, StoreError) as error:
            self._world.note(f"user: {type(error).__name__}")

    def _engine(self, process: SimulatedProcess) -> Engine:
        assert process.engine is not None
        return process.engine


def _same(one: Request, other: Request) -> bool:
    return replace(one, op="") == replace(other, op="")
