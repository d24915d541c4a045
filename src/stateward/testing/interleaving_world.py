"""One run of two actions, the second of which begins at one await of the first.

The loop switches tasks only at awaits, so the awaits of the first action are all the places at which something else can
happen. They include those of the tasks that work for it, such as workers with handlers and the store's transactions.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context, ContextVar, copy_context
from inspect import isawaitable
from random import Random
from traceback import extract_tb
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct

from stateward.engine.engine import Engine
from stateward.errors import StatewardError
from stateward.plugin.runtime import DomainRuntime
from stateward.store.errors import StoreError, Unavailable
from stateward.testing.crash_world import LIMIT_S, end_operations
from stateward.testing.effects import Effect, Effects
from stateward.testing.engines import VIRTUAL_LEASE_S
from stateward.testing.faulty_store import NO_FAULTS, CommitRecord, FaultRates, StoreLink
from stateward.testing.handler_calls import MACHINERY, PACKAGE, CodeLine, awaited_lines
from stateward.testing.invariants import Violation
from stateward.testing.kind_sources import KindSource, runtime_of
from stateward.testing.read_committed import ReadCommittedStore
from stateward.testing.simulated_process import SimulatedProcess
from stateward.testing.simulated_world import SimulatedWorld, describe_commit
from stateward.testing.virtual_loop import URGENT, LoopParty, VirtualLoop

S = TypeVar("S")

Way = Literal["switch", "pause"]
"""How the second action begins at a point.

With `switch`, it runs there as far as it gets, before everything else that is ready; then both continue. With `pause`,
the task that is at the point stays there until the second action has ended, or for `PAUSE_S` if it waits for that task.
"""

PAUSE_S = 60.0
"""The virtual seconds for which the first action is paused at most."""

ACTION: ContextVar[str | None] = ContextVar("action", default=None)
"""The action to which the running code belongs: `first` or `second`."""

TESTING = (str(PACKAGE / "testing"),)

ActionFunction: TypeAlias = Callable[[S], Awaitable[Any]]
Invariant: TypeAlias = Callable[[S], Awaitable[None] | None]
"""A function, async or not, that asserts what must be true once everything has come to rest."""


class InterleavingPoint(Struct, frozen=True):
    """An await of the first action; `lines` are those of its task, innermost last."""

    number: int
    way: Way
    lines: tuple[CodeLine, ...]

    @property
    def line(self) -> CodeLine | None:
        """The await: the innermost line outside the engine, if there is one."""
        return _own_line(self.lines)

    def __str__(self) -> str:
        return f"await {self.number} ({self.way}), {self.line}"


def _own_line(lines: tuple[CodeLine, ...]) -> CodeLine | None:
    own = [line for line in lines if not line.file.startswith(MACHINERY)]
    return own[-1] if own else lines[-1] if lines else None


class Scenario(Struct, Generic[S], frozen=True):
    """Two actions on what `setup` returns, and what must be true after them."""

    setup: Callable[["InterleavingRun"], Awaitable[S] | S]
    first: ActionFunction[S]
    second: ActionFunction[S]
    invariants: Sequence[Invariant[S]]


class InterleavingRun:
    """A run as `setup` sees it: the ledger of effects, and the processes to start."""

    def __init__(self, world: "InterleavingWorld[Any]") -> None:
        self._world = world
        self.effects = world.effects
        self.processes = world.processes
        self.clock = world.clock
        self.chance = world.chance

    async def start(self, kinds: KindSource, *, background: bool = False) -> Engine:
        """Start a process with these kinds, and return its engine; several processes share the store.

        With `background`, the background tasks of the domain run too.
        """
        return await self._world.start_process(kinds, background=background)

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)


class _PerfectLink(StoreLink):
    """A connection without faults; the answer to a commit takes a moment, as with a real one."""

    async def send(self) -> None:
        if self.over:
            raise Unavailable("the run has ended")

    async def receive(self, record: CommitRecord) -> None:  # noqa: ARG002
        await asyncio.sleep(0)


class InterleavingProcess(SimulatedProcess):
    """A process without faults."""

    runtime: DomainRuntime

    def make_link(self, loop: VirtualLoop, faults: FaultRates, chance: Random) -> StoreLink:
        return _PerfectLink(loop, self, faults, chance)


class InterleavingWorld(SimulatedWorld[InterleavingProcess], Generic[S]):
    """The world of one run. Without a chosen point, the second action follows the first."""

    def __init__(self, scenario: Scenario[S], chosen: int | None, way: Way) -> None:
        super().__init__(0, limit_s=LIMIT_S)
        self.effects = Effects(self._on_effect)
        self.points: list[tuple[CodeLine, ...]] = []
        self.point: InterleavingPoint | None = None
        self.trace: list[str] = []
        self.refused: dict[str, str] = {}  # the actions that were refused, with the error
        self._scenario = scenario
        self._chosen = chosen
        self._way: Way = way
        self._state: S
        self._second: asyncio.Task[None] | None = None
        self._ours: set[asyncio.Task[Any] | None] = set()  # tasks of the world, whose awaits don't count

    def make_store(self) -> ReadCommittedStore:
        return ReadCommittedStore(self.clock)

    def note(self, event: str) -> None:
        self.trace.append(f"{self.loop.time():9.3f} {event}")

    def note_commit(self, party: LoopParty, function: str, record: CommitRecord) -> None:  # noqa: ARG002
        self.note(f"{party.name} commits: {describe_commit(record)}")

    def _on_effect(self, effect: Effect, first: Effect | None) -> None:
        self.note(f"effect {effect.key!r}{' AGAIN' * (first is not None)}")
        if first is not None:
            self.wrong(f"the effect {effect.key!r} happened twice")

    # --- processes ---------------------------------------------------------------------------------------------------

    async def start_process(self, kinds: KindSource, *, background: bool) -> Engine:
        """Start a process, and wait until it is ready."""
        runtime, name = runtime_of(kinds), self._names()
        self.kinds = runtime.kinds
        self.inspector.learn(kind.lifecycle for kind in runtime.kinds)
        if any(kind.on_end is not None for kind in runtime.kinds):
            self.inspector.compares_specs = False
        process = InterleavingProcess(
            name,
            self.loop,
            self.store,
            runtime.kinds,
            NO_FAULTS,
            self.chance(name),
            self.new_id,
            self.committed,
            dict,
            VIRTUAL_LEASE_S,
            runtime.bind_engine,
            runtime.running if background else None,
        )
        process.runtime = runtime
        process.slots, process.works, process.ahead = 500, True, 0.0
        process.store.serializes_writes = self.store.serializes_writes
        self.processes.append(process)
        process.start()
        while process.engine is None:
            await asyncio.sleep(0.01)
        return process.engine

    # --- the two actions ---------------------------------------------------------------------------------------------

    async def play(self) -> None:
        """Run both actions, let everything come to rest, and check the invariants."""
        self._ours.add(asyncio.current_task())
        state = self._scenario.setup(InterleavingRun(self))
        self._state = await state if isawaitable(state) else state
        first = self._begin("first", self._scenario.first)
        self.loop.on_suspended = self._suspended
        await asyncio.wait([first])
        self.loop.on_suspended = None
        second = self._second or self._begin("second", self._scenario.second)
        await asyncio.wait([second])
        for task in (first, second):
            task.result()
        await end_operations(self)
        for invariant in self._scenario.invariants:
            try:
                checking = invariant(self._state)
                if isawaitable(checking):
                    await checking
            except AssertionError as error:
                raise Violation(
                    f"{getattr(invariant, '__name__', invariant)} does not hold: {_described(error)}"
                ) from error

    def _begin(self, name: str, action: ActionFunction[S], *, urgent: bool = False) -> asyncio.Task[None]:
        context = copy_context()
        context.run(ACTION.set, name)
        context.run(URGENT.set, urgent)
        return self.loop.create_task(self._act(name, action), name=name, context=context)

    async def _act(self, name: str, action: ActionFunction[S]) -> None:
        self.note(f"{name} begins")
        try:
            await action(self._state)
        except (StatewardError, StoreError, TimeoutError) as error:
            self.refused[name] = f"{type(error).__name__}: {error}"
            self.note(f"{name} is refused: {self.refused[name]}")
        except Exception as error:
            raise Violation(f"the {name} action failed: {_described(error)}") from error
        else:
            self.note(f"{name} ends")

    def _suspended(self, task: asyncio.Task[Any], context: Context) -> None:
        """Count an await of the first action; begins the second one there if it is the chosen one."""
        if task in self._ours or self.is_over:
            return
        lines = tuple(awaited_lines(task.get_coro(), TESTING))
        action = context.get(ACTION)
        if action is not None and lines:
            self.note(f"{action} waits at {_own_line(lines)}")
        if self._second is not None:
            return
        self.points.append(lines)
        if len(self.points) != self._chosen:
            return
        self.point = InterleavingPoint(self._chosen, self._way, lines)
        self.note(f"SWITCH: {self.point}")
        self._second = self._begin("second", self._scenario.second, urgent=self._way == "switch")
        if self._way == "pause":
            self.loop.pause(task)
            self._second.add_done_callback(lambda _: self.loop.unpause())
            self.loop.call_later(PAUSE_S, self.loop.unpause)


def _described(error: BaseException) -> str:
    own = [at for at in extract_tb(error.__traceback__) if not at.filename.startswith(str(PACKAGE))]
    place = f" ({own[-1].filename}:{own[-1].lineno}: {own[-1].line})" if own else ""
    return f"{type(error).__name__}: {error}{place}"
