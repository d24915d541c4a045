"""A random workload, made of the tables alone: any action by any actor, in any state, sent to any process.

Most requests are what the table allows in the state that the object has; some are not, and must be refused. Other
parties report about their operations, clients repeat requests under their keys, and operations are cancelled. The
answers are remembered: an accepted request must take effect once, and a denied one never.
"""

import asyncio
from collections.abc import Callable, Mapping
from math import ceil, floor
from random import Random
from typing import Any, Protocol

from msgspec import inspect
from msgspec.structs import replace

from stateward.engine.engine import Engine
from stateward.engine.errors import KeyReused
from stateward.engine.external_reports import ExternalReport
from stateward.engine.kinds import Kind
from stateward.engine.requests import Creation, Request
from stateward.errors import StatewardError
from stateward.lifecycle import HEALER, WORKER, AllowedEvent, Meaning
from stateward.lifecycle.rows import BEGINNINGS
from stateward.store.errors import StoreError
from stateward.store.records import Object
from stateward.testing.invariants import Inspector
from stateward.testing.simulated_process import SimulatedProcess

DEEPEST = 4
"""How deep values are nested; below that, collections are empty."""


def sample_value(type_: Any, chance: Random) -> Any:
    """Return a random JSON value that fits a type; a text with a pattern is beyond it."""
    return _sample(inspect.type_info(type_), chance, 0)


def _sample(info: inspect.Type, chance: Random, depth: int) -> Any:
    match info:
        case inspect.StructType():
            named = [field for field in info.fields if field.required or (depth < DEEPEST and chance.random() < 0.5)]
            return {field.encode_name: _sample(field.type, chance, depth + 1) for field in named}
        case inspect.Metadata():
            return _sample(info.type, chance, depth)
        case inspect.UnionType():
            return _sample(chance.choice(info.types), chance, depth)
        case inspect.LiteralType():
            return chance.choice(info.values)
        case inspect.EnumType():
            return chance.choice([member.value for member in info.cls])
        case inspect.BoolType():
            return chance.random() < 0.5
        case inspect.IntType() | inspect.FloatType():
            return _sample_number(info, chance)
        case inspect.StrType():
            least = info.min_length or 0
            return "".join(chance.choices("abcdefgh", k=chance.randint(least, min(least + 8, info.max_length or 99))))
        case inspect.ListType() | inspect.SetType() | inspect.FrozenSetType() | inspect.VarTupleType():
            least = info.min_length or 0
            most = least if depth >= DEEPEST else min(least + 2, info.max_length or 99)
            return [_sample(info.item_type, chance, depth + 1) for _ in range(chance.randint(least, most))]
        case inspect.DictType():
            number = 0 if depth >= DEEPEST else chance.randrange(3)
            keys = (_sample(info.key_type, chance, depth + 1) for _ in range(number))
            return {key: _sample(info.value_type, chance, depth + 1) for key in keys}
        case _:
            return None


def _sample_number(info: inspect.IntType | inspect.FloatType, chance: Random) -> int | float:
    is_whole = isinstance(info, inspect.IntType)
    step = info.multiple_of or (1 if is_whole else None)
    least = info.ge if info.ge is not None else info.gt
    most = info.le if info.le is not None else info.lt
    low = least if least is not None else min(0, most if most is not None else 0)
    high = most if most is not None else low + 20 * (step or 1)
    if step is None:
        return low + (high - low) * (0.01 + 0.98 * chance.random())  # not the bounds, which may be excluded
    first = floor(low / step) + 1 if info.gt is not None else ceil(low / step)
    last = ceil(high / step) - 1 if info.lt is not None else floor(high / step)
    value = step * chance.randint(first, max(first, last))
    return int(value) if is_whole else float(value)


NS = "n"
OBJECTS = 4
"""How many objects of each kind there are at most."""

Specs = Mapping[str, Callable[[Random], Any]]
"""Functions that return a random spec, by the name of the kind."""


class WorkedWorld(Protocol):
    """What a workload needs of its world."""

    kinds: list[Kind]
    inspector: Inspector

    def chance(self, what: str) -> Random: ...
    def note(self, event: str) -> None: ...
    def wrong(self, what: str) -> None: ...
    @property
    def up(self) -> list[SimulatedProcess]: ...


class Workload:
    """Everybody who sends requests."""

    def __init__(self, world: WorkedWorld, specs: Specs, pause_s: float) -> None:
        self._world = world
        self._specs = specs
        self._pause_s = pause_s
        self._chance = world.chance("workload")
        self._kinds = {kind.name: kind for kind in world.kinds}
        self._keyed: list[Request] = []
        self._answers: dict[str, tuple[Request, str | None]] = {}
        self._numbers = iter(range(10**9))
        self.accepted: dict[str, Request] = {}
        self.refusals: dict[str, str] = {}  # the last refusal of each action of a kind

    async def run(self) -> None:
        """Send a few requests from time to time, for ever."""
        wishes = ((self._act, 80), (self._repeat, 8), (self._cancel, 12))
        kinds, weights = [wish for wish, _ in wishes], [weight for _, weight in wishes]
        while True:
            await asyncio.sleep(self._chance.expovariate(1 / self._pause_s))
            up = self._world.up
            if up:
                process = self._chance.choice(up)
                for _ in range(self._chance.choice((1, 1, 1, 2, 4))):
                    self._chance.choices(kinds, weights)[0](process)

    async def finish_remote(self) -> None:
        """Let other parties end the operations that they carry out, from time to time, for ever."""
        while True:
            await asyncio.sleep(1.0)
            seen, up = self._world.inspector.seen, self._world.up
            for row in list(seen.work.values()) if up else ():
                record = seen.objects[row.object]
                ends = [
                    event
                    for event in self._kinds[record.kind].lifecycle.allowed[record.state]
                    if event.meaning in (Meaning.SUCCESS, Meaning.FAILURE) and outside_actors(event)
                ]
                if ends and record.op == row.op:
                    self._report(self._chance.choice(up), record, self._chance.choice(ends))

    # --- requests ----------------------------------------------------------------------------------------------------

    def _act(self, process: SimulatedProcess) -> None:
        chance = self._chance
        kind = self._kinds[chance.choice(list(self._kinds))]
        name = f"{kind.name}-{chance.randrange(OBJECTS)}"
        record = self._world.inspector.seen.objects.get(name)
        if record is not None and record.removed:
            record = None
        event = self._choose(kind, kind.lifecycle.initial.word if record is None else record.state)
        if event is None:
            return
        if record is not None and record.op is not None and event.meaning not in BEGINNINGS:
            self._report(process, record, event)
            return
        request = self._request(process, kind, name, event, record)
        if request.key is not None:
            self._keyed.append(request)
        process.spawn(self._submit(process, request))

    def _choose(self, kind: Kind, state: str) -> AllowedEvent | None:
        """Choose an event that the state allows to somebody outside of the engine; sometimes one of another state."""
        states = [state] if self._chance.random() < 0.9 else [other.word for other in kind.lifecycle.states]
        possible = [
            event
            for state in states
            for event in kind.lifecycle.allowed.get(state, ())
            if event.meaning not in (Meaning.TIMEOUT, Meaning.CANCEL) and outside_actors(event)
        ]
        return self._chance.choice(possible) if possible else None

    def _request(
        self, process: SimulatedProcess, kind: Kind, name: str, event: AllowedEvent, record: Object | None
    ) -> Request:
        chance, how = self._chance, dict[str, Any]()
        if chance.random() < 0.2:
            how["key"] = f"k{next(self._numbers)}"
        if chance.random() < 0.2:
            how["priority"] = chance.randrange(-2, 5)
        if record is None:
            how["creates"] = Creation(kind.name)
        if record is None or (event.meaning is Meaning.ACTION and chance.random() < 0.1):
            how["spec"] = self._spec(kind)
        if kind.types is not None and event.event in kind.types.args:
            how["args"] = sample_value(kind.types.args[event.event].struct, chance)
        if event.needs and chance.random() < 0.7:
            how["facts"] = event.needs
        actor = chance.choice(outside_actors(event))
        return _engine(process).request(NS, name, event.event, actor=actor, **how)

    def _spec(self, kind: Kind) -> Any:
        if kind.name in self._specs:
            return self._specs[kind.name](self._chance)
        return {} if kind.spec is None else sample_value(kind.spec, self._chance)

    async def _submit(self, process: SimulatedProcess, request: Request) -> None:
        what = f"client: {request.op} {request.action} {request.object}"
        try:
            answer = await _engine(process).submit(request)
        except KeyReused:
            first = self._answers.get(request.key or "")
            if first is not None and _is_same(first[0], request):
                self._world.wrong(f"key {request.key} is refused to the request that it was first used for")
        except StoreError as error:
            self._world.note(f"{what}: {type(error).__name__}")
        except StatewardError as error:
            self._world.note(f"{what}: {type(error).__name__}")
            self.refusals[f"{request.action} of {request.object.rpartition('-')[0]}"] = str(error)
            if request.op in self._world.inspector.done:
                self._world.wrong(f"{request.op} took effect, and is denied: {error}")
        except Exception as error:
            self._world.wrong(f"{what} raised {type(error).__name__}: {error}")
        else:
            self._answered(request, None if answer.operation is None else answer.operation.id)

    def _answered(self, request: Request, op: str | None) -> None:
        self._world.note(f"client: {request.op} {request.action} {request.object} accepted")
        if op is not None:
            self.accepted[op] = request
        if request.key is not None:
            first, known = self._answers.setdefault(request.key, (request, op))
            if _is_same(first, request) and known != op:
                self._world.wrong(f"key {request.key} was answered with {known}, and now with {op}")

    def _repeat(self, process: SimulatedProcess) -> None:
        """Send a request again under its key, as a client does that has lost the answer."""
        if self._keyed:
            request = replace(self._chance.choice(self._keyed), op=_engine(process).request(NS, "", "").op)
            process.spawn(self._submit(process, request))

    def _cancel(self, process: SimulatedProcess) -> None:
        work = self._world.inspector.seen.work
        if work:
            process.spawn(self._quietly(_engine(process).cancel(NS, self._chance.choice(list(work)))))

    def _report(self, process: SimulatedProcess, record: Object, event: AllowedEvent) -> None:
        """Let another party report about an operation: true, twice, or about an operation that is over."""
        chance = self._chance
        op = record.op if chance.random() < 0.9 or not self.accepted else chance.choice(list(self.accepted))
        if op is None:
            return
        actor, facts = chance.choice(outside_actors(event)), frozenset(event.needs)
        report = ExternalReport(NS, record.id, op, record.generation, event.event, actor, facts=facts)
        for _ in range(chance.choice((1, 1, 2))):
            process.spawn(self._quietly(_engine(process).report(report)))

    async def _quietly(self, call: Any) -> None:
        try:
            await call
        except StatewardError as error:
            self._world.note(f"client: {type(error).__name__}")


def outside_actors(event: AllowedEvent) -> list[str]:
    """Return the actors of an event that are no part of the engine."""
    return [actor for actor in event.actors if actor not in (WORKER, HEALER)]


def _engine(process: SimulatedProcess) -> Engine:
    if process.engine is None:
        raise AssertionError(f"{process.name} is not up")
    return process.engine


def _is_same(request: Request, other: Request) -> bool:
    return replace(request, op="") == replace(other, op="")
