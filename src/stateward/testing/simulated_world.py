"""A simulated world: several processes over one store in virtual time, with a record of all that happens.

A concurrent system has more interleavings than tests by example can name, and a fault that is seen once must be seen
again. So all chance comes from one seed, time is virtual, and there is one thread: one seed gives one run. After every
commit, the invariants are checked on the tables themselves.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from itertools import chain, count
from math import inf
from random import Random
from traceback import format_exception
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.json import decode

from stateward import naming
from stateward.engine.engine import Engine
from stateward.engine.job_steps import without_times
from stateward.engine.kinds import Kind
from stateward.lifecycle import Lifecycle
from stateward.store.sqlite import SqliteStore
from stateward.testing.faulty_store import NO_FAULTS, CommitRecord, FaultRates
from stateward.testing.invariants import Inspector, Violation
from stateward.testing.read_committed import ReadCommittedStore
from stateward.testing.simulated_process import SimulatedProcess
from stateward.testing.virtual_loop import LoopParty, Spinning, Stuck, VirtualLoop

EPOCH = 1_000_000.0
"""The store's time at the beginning."""

KEPT_EVENTS = 400
"""How many of the last events are kept."""

W = TypeVar("W", bound="SimulatedWorld[Any]")
P = TypeVar("P", bound=SimulatedProcess)


class WorldOutcome(Struct, frozen=True):
    """The outcome of a run: `wrong` is the first violation, and `events` the last events in order."""

    seed: int
    wrong: str | None
    events: list[str]
    digest: str
    commits: int
    operations: int
    effects: int
    seconds: float


class SimulatedWorld(Generic[P]):
    """The parts of one run; a subclass adds what else there is, such as a provider."""

    def __init__(self, seed: int, listener: Callable[[str], None] | None = None, limit_s: float = inf) -> None:
        self.seed = seed
        self.loop = VirtualLoop(limit_s)
        self.loop.set_task_factory(self._task)  # type: ignore[arg-type]
        self.loop.set_exception_handler(self._unhandled)
        self.offset = 0.0
        self.store = self.make_store()
        self.faults = FaultRates()
        self.lease = self.chance("lease").choice((3.0, 5.0, 8.0))
        self.kinds: list[Kind] = []
        self.processes: list[P] = []
        self.inspector: Inspector
        self.new_id = map("op{}".format, count(1)).__next__
        self.is_over = False
        self._names = map("p{}".format, count(1)).__next__
        self._events: deque[str] = deque(maxlen=KEPT_EVENTS)
        self._listener = listener
        self._digest = blake2b(digest_size=8)
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self.fault: str | None = None

    # --- what everybody uses -----------------------------------------------------------------------------------------

    def chance(self, what: str) -> Random:
        """Return a source of chance of its own, so that one part does not change the chance of another."""
        return Random(f"{self.seed}/{what}")

    def clock(self) -> float:
        """Return the time of the store's clock, which may jump."""
        return EPOCH + self.loop.time() + self.offset

    def make_store(self) -> SqliteStore | ReadCommittedStore:
        """Return the store: with serial transactions as on SQLite, or with concurrent ones as on PostgreSQL."""
        if self.chance("store").random() < 0.5:
            return SqliteStore(":memory:", inline=True, clock=self.clock)
        return ReadCommittedStore(self.clock)

    def note(self, event: str) -> None:
        """Record an event."""
        line = f"{self.loop.time():9.3f} {event}"
        self._digest.update(line.encode())
        self._events.append(line)
        if self._listener is not None:
            self._listener(line)

    def wrong(self, what: str) -> None:
        """Record a violation, and end the run."""
        if self.blame(what) and self.loop.is_running():
            self.loop.stop()

    def blame(self, what: str) -> bool:
        """Record a violation; returns whether it is the first."""
        if self.fault is not None or self.is_over:
            return False
        self.fault = what
        self.note(f"WRONG: {what}")
        return True

    def count_effects(self) -> int:
        """Return the number of effects outside of the store."""
        return 0

    def lifecycles(self) -> Iterable[Lifecycle]:
        """Return the lifecycles of all kinds."""
        return (kind.lifecycle for kind in self.kinds)

    # --- processes ---------------------------------------------------------------------------------------------------

    def make_process(self, name: str) -> P:
        """Return a process that is not started yet."""
        raise NotImplementedError

    def simulated_process(
        self, name: str, kinds: list[Kind], bind_engine: Callable[[Engine], None] | None = None
    ) -> SimulatedProcess:
        """Return a process with the faults of this world."""
        return SimulatedProcess(
            name,
            self.loop,
            self.store,
            kinds,
            self.faults,
            self.chance(name),
            self.new_id,
            self.committed,
            lambda: self.inspector.former,
            self.lease,
            bind_engine,
        )

    def add_process(self) -> P:
        """Start another process; its name is new."""
        process = self.make_process(self._names())
        if not any(process.works and process.up for process in self.processes):
            process.works = True
        self.processes.append(process)
        self.note(f"{process.name} starts with {process.slots if process.works else 'no'} slots")
        process.start()
        return process

    @property
    def up(self) -> list[P]:
        """The processes that can be asked for something."""
        return [process for process in self.processes if process.up]

    def set_storm(self, process: P, *, rages: bool) -> None:
        """Begin or end a time of many faults for a process."""
        storm = FaultRates(slow=0.3, longest=2.0, error=0.2, lost=0.2, conflict=0.1, stale=0.1, deaf=0.5)
        process.link.faults = storm if rages else self.faults

    def calm_down(self) -> None:
        """End all faults."""
        for process in self.processes:
            process.link.faults = NO_FAULTS
            process.link.cut_until = 0.0
            if process.stopped and not process.dead:
                process.go_on()

    # --- rest --------------------------------------------------------------------------------------------------------

    def unsettled(self) -> Iterator[str]:
        """Yield what has not come to its end yet."""
        for row in self.inspector.seen.work.values():
            yield f"work is left: {row}"
        for (op,) in self.inspector.ask("SELECT id FROM operations WHERE status = 'waiting' OR ended IS NULL"):
            yield f"operation {op} has not ended"
        for (timer,) in self.inspector.ask("SELECT id FROM timers WHERE due <= ?", self.clock()):
            yield f"timer {timer} was not fired"

    def pending(self) -> Iterator[str]:
        """Yield what will begin something by itself."""
        for (timer,) in self.inspector.ask("SELECT id FROM timers"):
            yield f"timer {timer} lies ahead"

    async def rest(self, limit_s: float) -> None:
        """Wait until nothing is left to be done; raises a `Violation` if that takes too long."""
        begun, quiet = self.loop.time(), 0
        while quiet < 10:  # a request that was delayed may still arrive
            await asyncio.sleep(0.5)
            trouble = next(chain(self.unsettled(), self.pending()), None)
            quiet = quiet + 1 if trouble is None else 0
            if self.loop.time() > begun + limit_s:
                raise Violation(f"no rest after {limit_s:g} s: {trouble}")

    # --- what is watched ---------------------------------------------------------------------------------------------

    def committed(self, party: LoopParty, function: str, record: CommitRecord) -> None:
        """Record a commit, and check the invariants."""
        if self.is_over or not (record.wrote or record.workers):
            return
        if record.wrote:
            self.note_commit(party, function, record)
        try:
            self.inspector.look(party, record)
        except Violation as violation:
            self.wrong(str(violation))
        for row in self.inspector.seen.work.values():
            if row.owner is not None and row.owner not in self.inspector.seen.workers and not self.offset:
                self.wrong(f"{row.op} is claimed by {row.owner}, a worker that is not registered")

    def note_commit(self, party: LoopParty, function: str, record: CommitRecord) -> None:
        """Record the writes of a commit."""
        name = function.replace(".<locals>", "").replace(".<lambda>", "")
        self.note(f"{party.name} commits {name}: {describe_commit(record)}")

    def task_failed(self, task: asyncio.Task[Any], error: BaseException) -> None:
        """Hear of a task that ended with an error, which the one that waits for it may expect."""

    def logged(self, text: str) -> None:
        """Hear of an error in the engine's log; a handler's own errors are logged too."""
        self.note(f"log: {text}")

    # --- tasks -------------------------------------------------------------------------------------------------------

    def _task(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **named: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **named)
        self._tasks[id(task)] = task
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(id(task), None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.task_failed(task, error)

    def _unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.wrong(f"unhandled: {context.get('message')} {context.get('exception')!r}")

    # --- the run -----------------------------------------------------------------------------------------------------

    def run(self: W, course: Callable[[W], Coroutine[Any, Any, None]]) -> WorldOutcome:
        """Run a course to its end, and return the outcome."""
        asyncio.set_event_loop(None)
        listener = _LogListener(lambda text: self.logged(text))
        logger = logging.getLogger("stateward")
        logger.addHandler(listener)
        logger.propagate = False
        try:
            with repeatable_ids(self.chance("ids"), self.clock):
                self.loop.run_until_complete(self.loop.create_task(self._run(course)))
        except (Stuck, Spinning) as error:
            self.wrong(f"{type(error).__name__}: {error}")
        except RuntimeError:
            if self.fault is None:
                raise
        finally:
            self._end()
            logger.removeHandler(listener)
            logger.propagate = True
        return WorldOutcome(
            self.seed,
            self.fault,
            list(self._events),
            self._digest.hexdigest(),
            self.inspector.commits,
            len(self.inspector.ended),
            self.count_effects(),
            self.loop.time(),
        )

    async def _run(self: W, course: Callable[[W], Coroutine[Any, Any, None]]) -> None:
        await self.store.open()
        self.inspector = Inspector(self.store.connection, self.clock, self.lifecycles())
        self.opened()
        try:
            await course(self)
        except Violation as violation:
            self.blame(str(violation))

    def opened(self) -> None:
        """Go on once the store is open and the inspector is there."""

    def _end(self) -> None:
        """End all tasks; processes that were killed or stopped are resumed for that."""
        self.is_over = True
        for process in self.processes:
            process.link.over = True
            self.loop.resume(process)
        self.loop.forgive()
        for _ in range(1000):
            if not self._tasks:
                break
            for task in list(self._tasks.values()):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0.01))
        self.loop.run_until_complete(self.store.close())
        self.loop.close()


@contextmanager
def repeatable_ids(chance: Random, clock: Callable[[], float]) -> Iterator[None]:
    """Make `new_id` return the same ids for the same seed."""
    names = vars(naming)
    before = {name: names[name] for name in ("urandom", "time_ns")}
    names.update(urandom=chance.randbytes, time_ns=lambda: int(clock() * 1e9))
    try:
        yield
    finally:
        names.update(before)


class _LogListener(logging.Handler):
    """Passes errors in the engine's log on."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        why = "".join(format_exception(record.exc_info[1])) if record.exc_info else ""
        self._tell(f"{record.getMessage()}\n{why}".rstrip())


def describe_commit(record: CommitRecord) -> str:
    """Return the writes of a commit in words."""
    parts = [f"claims {claim.work.op}/{claim.work.epoch}" for claim in record.claims]
    for changes in record.changes:
        parts += [f"begins {operation.id} ({operation.action} {operation.object})" for operation in changes.operations]
        parts += [
            f"finishes steps of {key.id}: {', '.join(without_times(decode(steps)))}" for key, steps in changes.steps
        ]
        parts += [f"{entry.op} says {entry.text!r}" for entry in changes.progress]
        parts += [f"takes {work_item.op} at once" for work_item in changes.new_work if work_item.owner]
        parts += [f"ends {end.op} ({end.status})" for end in changes.ended]
        parts += [
            f"changes {work_item.op}/{work_item.epoch} {work_item.owner or 'free'}{' fenced' * work_item.fenced}"
            for work_item in changes.work
        ]
        parts += [f"{line.object} {line.event} {line.target or ''}".rstrip() for line in changes.journal]
        parts += [f"sets timer {timer.id}" for timer in changes.timers]
    return ", ".join(parts) or "rows besides objects and operations"
