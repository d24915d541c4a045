"""One run of a scenario whose process is killed at one point, and started again.

A kill is that of `kill -9`: the engine and its handlers stop at the await where they are, and not even their `finally`
blocks run. The store and the provider's ledger of effects stay. The scenario plays the client, which lives on: its
calls are sent again to the next process, with the same operation ids.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from functools import partial
from inspect import iscoroutinefunction
from random import Random
from traceback import extract_tb
from typing import Any, Literal, TypeAlias, TypeVar, cast

from msgspec import Struct
from msgspec.json import decode

from stateward.engine.engine import Engine
from stateward.engine.job_steps import RETRY, SLEEP, UNDO, WAIT
from stateward.engine.requests import Accepted
from stateward.lifecycle import DAY
from stateward.store.errors import Unavailable
from stateward.store.records import Status
from stateward.store.sqlite import SqliteStore
from stateward.testing.effects import Effect, Effects
from stateward.testing.faulty_store import NO_FAULTS, CommitRecord, FaultRates, ProcessKilled, StoreLink
from stateward.testing.handler_calls import PACKAGE, CodeLine, HandlerCall, Observer, observe_handlers
from stateward.testing.invariants import Violation
from stateward.testing.kind_sources import KindSource, runtime_of
from stateward.testing.simulated_process import SimulatedProcess
from stateward.testing.simulated_world import SimulatedWorld, describe_commit
from stateward.testing.virtual_loop import PARTY, LoopParty, VirtualLoop

T = TypeVar("T")

LEASE_S = 15.0
"""The lease of the processes: so many virtual seconds pass before the next process takes the work over."""

REST_S = 3600.0
"""The virtual seconds within which all operations must have ended after the scenario has, and their deadlines."""

LIMIT_S = 3 * DAY
"""The virtual time that a run may take: a scenario that waits for what never happens fails after that."""

COMPOSED_CALLS = frozenset({"create", "act", "run"})
"""Methods of the engine that build a request and send it: the request is built once, and its sending repeated."""

CHANGING = (RETRY, WAIT, UNDO, f"{SLEEP}until")
"""The stored steps whose values change."""

PAUSES = (SLEEP, WAIT)
"""The stored steps of operations that may be claimed too early, and then pause again."""

Moment = Literal["before a commit", "after a commit, whose answer is lost", "at an await"]


Results: TypeAlias = dict[tuple[str, str, int], tuple[Status, Any]]
"""The status and the result of each operation, by object, action and number."""


class CrashPoint(Struct, frozen=True):
    """Where a process was killed. `lines` are those of the handlers that it was running, innermost last."""

    number: int
    moment: Moment
    what: str
    lines: tuple[CodeLine, ...]

    def __str__(self) -> str:
        return f"crash point {self.number}, {self.moment}: {self.what}"


class CrashRun:
    """A run as its scenario sees it: the ledger of effects, and the process to start."""

    def __init__(self, world: "CrashWorld") -> None:
        self._world = world
        self.effects = world.effects

    async def start(self, kinds: KindSource) -> Engine:
        """Start the process with these kinds, and return its engine, which survives the crash for the caller.

        `kinds` is a domain, kinds, or a function that returns them and is called for each process: a restart loses what
        a process has in memory. Calls of the returned engine that a crash interrupts are sent again.
        """
        world = self._world
        if world.processes:
            raise AssertionError("a scenario starts one process; the next ones are started after a crash")
        world.kind_source = kinds
        world.kinds = runtime_of(kinds).kinds
        world.inspector.learn(kind.lifecycle for kind in world.kinds)
        world.add_process()
        await world.living_process()
        return cast("Engine", SurvivingEngine(world))

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)


class SurvivingEngine:
    """The engine of whichever process lives. A call that a crash interrupts is made again."""

    def __init__(self, world: "CrashWorld") -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        if name in COMPOSED_CALLS:
            return partial(getattr(Engine, name), self)
        method = getattr(self._world.engine, name)
        if not iscoroutinefunction(method):
            return method

        async def call(*args: Any, **named: Any) -> Any:
            answer = await self._world.call(lambda engine: getattr(engine, name)(*args, **named))
            if isinstance(answer, Accepted) and answer.operation is not None:
                self._world.accepted.append(answer.operation.id)
            return answer

        return call


class _CrashLink(StoreLink):
    """A connection without faults, at whose commits the process can be killed."""

    party: "CrashProcess"

    async def send(self) -> None:
        if self.over:
            raise Unavailable("the run has ended")

    def committing(self, record: CommitRecord) -> None:
        if record.wrote and self.party.world.is_crash_point(self.party, "before a commit", describe_commit(record)):
            raise ProcessKilled

    async def receive(self, record: CommitRecord) -> None:
        moment: Moment = "after a commit, whose answer is lost"
        if record.wrote and self.party.world.is_crash_point(self.party, moment, describe_commit(record)):
            await self.hang()


class CrashProcess(SimulatedProcess):
    """A process that can be killed at a crash point."""

    def __init__(self, world: "CrashWorld", name: str) -> None:
        self.world = world
        self.death: asyncio.Future[None] = world.loop.create_future()
        observer = Observer(self._begins, self._suspends, world.runs_step, self._ends)
        runtime = runtime_of(world.kind_source)
        kinds = [observe_handlers(kind, observer) for kind in runtime.kinds]
        super().__init__(
            name,
            world.loop,
            world.store,
            kinds,
            NO_FAULTS,
            world.chance(name),
            world.new_id,
            world.committed,
            dict,
            LEASE_S,
            runtime.bind_engine,
        )
        self.calls: list[HandlerCall] = []
        self.slots, self.works, self.ahead = 500, True, 0.0
        self.store.serializes_writes = True

    def make_link(self, loop: VirtualLoop, faults: FaultRates, chance: Random) -> StoreLink:
        return _CrashLink(loop, self, faults, chance)

    def _begins(self, call: HandlerCall) -> None:
        self.calls.append(call)
        self.world.note(f"{self.name} runs {call}")

    def _suspends(self, call: HandlerCall) -> None:
        what = f"{call.lines[0].short}, {call.lines[0].text}" if call.lines else str(call)
        self.world.is_crash_point(self, "at an await", what, call)

    def _ends(self, call: HandlerCall) -> None:
        self.calls.remove(call)


class CrashWorld(SimulatedWorld[CrashProcess]):
    """The world of one run: a store, a ledger, the scenario as the client, and one process after the other."""

    def __init__(self, victim: int | None) -> None:
        super().__init__(0, limit_s=LIMIT_S)
        self.effects = Effects(self._on_effect)
        self.kind_source: KindSource = []
        self.accepted: list[str] = []
        self.points = 0
        self.crash: CrashPoint | None = None
        self.culprit: tuple[CodeLine, ...] = ()
        self.trace: list[str] = []
        self.results: Results = {}
        self._victim = victim
        self._steps: dict[str, dict[str, Any]] = {}

    def make_store(self) -> SqliteStore:
        return SqliteStore(":memory:", inline=True, clock=self.clock)

    def note(self, event: str) -> None:
        self.trace.append(f"{self.loop.time():9.3f} {event}")

    # --- processes ---------------------------------------------------------------------------------------------------

    def make_process(self, name: str) -> CrashProcess:
        return CrashProcess(self, name)

    def add_process(self) -> CrashProcess:
        process = self.make_process(self._names())
        self.processes.append(process)
        self.note(f"{process.name} starts")
        process.start()
        return process

    @property
    def engine(self) -> Engine:
        """The engine of the newest process that was ready."""
        return next(process.engine for process in reversed(self.processes) if process.engine is not None)

    async def living_process(self) -> CrashProcess:
        """Wait until a process is ready."""
        while True:
            process = self.processes[-1]
            if process.up:
                return process
            await asyncio.sleep(0.01)

    async def call(self, use: Callable[[Engine], Awaitable[T]]) -> T:
        """Make a call of the engine, and again if its process dies meanwhile."""
        while True:
            process = await self.living_process()
            if process.engine is None:
                continue
            task: asyncio.Future[T] = self.loop.create_task(_run(use, process.engine), context=process.context)
            try:
                await asyncio.wait(
                    list[asyncio.Future[Any]]((task, process.death)), return_when=asyncio.FIRST_COMPLETED
                )
            except asyncio.CancelledError:
                task.cancel()
                raise
            if task.done():
                return task.result()

    def is_crash_point(self, process: CrashProcess, moment: Moment, what: str, call: HandlerCall | None = None) -> bool:
        """Count a point at which the process may be killed; kills it there, and returns True, if it is the one."""
        if process.stopped or self.is_over:
            return False
        self.points += 1
        if self.points != self._victim:
            return False
        calls = process.calls if call is None else [call]
        self.crash = CrashPoint(
            self.points, moment, what, tuple(line for handler_call in calls for line in handler_call.lines)
        )
        self.note(f"CRASH: {process.name} is killed {moment}: {what}")
        process.kill()
        process.death.set_result(None)
        token = PARTY.set(None)  # the next process does not belong to this one
        self.loop.call_soon(self.add_process)
        PARTY.reset(token)
        return True

    # --- promises ----------------------------------------------------------------------------------------------------

    def note_commit(self, party: LoopParty, function: str, record: CommitRecord) -> None:  # noqa: ARG002
        self.note(f"{party.name} commits: {describe_commit(record)}")
        for key, text in (step for changes in record.changes for step in changes.steps):
            self._steps[key.id] = decode(text)

    def runs_step(self, call: HandlerCall, step: str) -> None:
        """Check that a step that was finished, and stored, does not run again."""
        self.note(f"{call} runs the step {step!r}")
        if step in self._steps.get(call.job.key.id, {}):
            self.culprit = call.lines
            self.wrong(f"the step {step!r} of {call} runs again, and was finished")

    def _on_effect(self, effect: Effect, first: Effect | None) -> None:
        place = f" at {effect.lines[0].short}" if effect.lines else ""
        self.note(f"effect {effect.key!r}{' AGAIN' * (first is not None)}{place}")
        if first is not None:
            self.culprit = effect.lines
            self.wrong(f"the effect {effect.key!r} happened twice")

    def ended_results(self) -> Results:
        """Return the status and the result of each operation, by object, action and number."""
        results: Results = {}
        for name, action, status, result in self.inspector.ask(
            "SELECT object, action, status, result FROM operations ORDER BY created, id"
        ):
            number = sum(key[:2] == (name, action) for key in results)
            results[name, action, number] = (Status(status), None if result is None else decode(result))
        return results


async def play(world: CrashWorld, scenario: Callable[[CrashRun], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario, let everything end, and check that it has."""
    try:
        await scenario(CrashRun(world))
    except Exception as error:
        own = [at for at in extract_tb(error.__traceback__) if not at.filename.startswith(str(PACKAGE))]
        place = f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
        raise Violation(f"the scenario failed: {type(error).__name__}: {error}{place}") from error
    await end_operations(world, world.accepted)
    world.results = world.ended_results()


async def end_operations(world: SimulatedWorld[Any], accepted: Collection[str] = ()) -> None:
    """Wait until all operations have ended; raises a `Violation` if one does not."""
    begun = world.clock()
    while left := _unended(world, accepted):
        await asyncio.sleep(1.0)
        due = world.inspector.ask("SELECT max(max(coalesce(deadline, 0), not_before)) FROM work")[0][0]
        if world.clock() > max(begun, due or 0.0) + REST_S:
            raise Violation(f"operation {left[0]} was accepted, and has not ended")


def _unended(world: SimulatedWorld[Any], accepted: Collection[str]) -> list[str]:
    open_ones = [op for (op,) in world.inspector.ask("SELECT id FROM operations WHERE ended IS NULL")]
    return open_ones + [op for op in accepted if op not in world.inspector.ended and op not in open_ones]


async def _run(use: Callable[[Engine], Awaitable[T]], engine: Engine) -> T:
    return await use(engine)
