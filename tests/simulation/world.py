"""The world: several processes over one store, a cloud, users and faults, and the checks of the result.

One seed gives one run: all chance comes from it, time is virtual, and there is one thread.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from hashlib import blake2b
from itertools import count
from random import Random
from traceback import format_exception
from typing import Any

from msgspec import Struct

from stateward.store.sqlite import SqliteStore
from tests.simulation import cloud as clouds
from tests.simulation import faulty_store
from tests.simulation.cloud import Cloud, Visit
from tests.simulation.faulty_store import Tape, Weather
from tests.simulation.invariants import Inspector, Row, Violation
from tests.simulation.kinds import NARROW, WIDE, make_kinds
from tests.simulation.loop import Party, Spinning, Stuck, VirtualLoop
from tests.simulation.process import Process

EPOCH = 1_000_000.0
"""The store's time at the beginning."""


class Size(Struct, frozen=True):
    """How long the trouble lasts, how long it may take to come to rest, and how much is asked for in that time."""

    trouble: float = 25.0
    rest: float = 400.0
    pause: float = 0.25
    """Between two wishes of the users, on average."""


class Outcome(Struct, frozen=True):
    """What became of a world."""

    seed: int
    wrong: str | None
    events: list[str]
    digest: str
    commits: int
    operations: int
    effects: int
    seconds: float


class World:
    """Everything that there is in one run."""

    def __init__(self, seed: int, size: Size, listener: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.size = size
        self.loop = VirtualLoop()
        self.loop.set_task_factory(self._task)  # type: ignore[arg-type]
        self.loop.set_exception_handler(self._unhandled)
        self.offset = 0.0
        self.store = SqliteStore(":memory:", inline=True, clock=self.clock)
        self.weather = Weather()
        self.cloud = Cloud(self.loop, self.chance("cloud"), self.note)
        self.cloud.wrong = self.wrong
        self.cloud.enters = self._enters
        self.narrow = self.chance("lanes").random() < 0.5
        self.kinds = make_kinds(self.cloud, NARROW if self.narrow else WIDE)
        self.lease = self.chance("lease").choice((3.0, 5.0, 8.0))
        self.processes: list[Process] = []
        self.inspector: Inspector
        self.new_id = map("op{}".format, count(1)).__next__
        self._names = map("p{}".format, count(1)).__next__
        self._events: deque[str] = deque(maxlen=400)
        self._listener = listener
        self._digest = blake2b(digest_size=8)
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._fault: str | None = None
        self._over = False

    # --- what everybody uses -----------------------------------------------------------------------------------------

    def chance(self, what: str) -> Random:
        """Return a source of chance of its own, so that one thing does not change the luck of another."""
        return Random(f"{self.seed}/{what}")

    def clock(self) -> float:
        """The store's clock, which is not always right."""
        return EPOCH + self.loop.time() + self.offset

    def note(self, event: str) -> None:
        """Note what happens."""
        line = f"{self.loop.time():9.3f} {event}"
        self._digest.update(line.encode())
        self._events.append(line)
        if self._listener is not None:
            self._listener(line)

    def wrong(self, what: str) -> None:
        """Note what is wrong, and let the world end."""
        if self._blame(what) and self.loop.is_running():
            self.loop.stop()

    def _blame(self, what: str) -> bool:
        if self._fault is not None or self._over:
            return False
        self._fault = what
        self.note(f"WRONG: {what}")
        return True

    # --- processes ---------------------------------------------------------------------------------------------------

    def add_process(self) -> Process:
        """Start another process; names are never used again."""
        name = self._names()
        process = Process(
            name,
            self.loop,
            self.store,
            self.kinds,
            self.weather,
            self.chance(name),
            self.new_id,
            self._committed,
            lambda: self.inspector.former,
            self.lease,
        )
        if not any(one.works and one.up for one in self.processes):
            process.works = True
        self.processes.append(process)
        self.note(f"{name} starts with {process.slots if process.works else 'no'} slots")
        process.start()
        return process

    @property
    def up(self) -> list[Process]:
        """The processes that can be asked for something."""
        return [process for process in self.processes if process.up]

    # --- what is watched ---------------------------------------------------------------------------------------------

    def _committed(self, party: Party, function: str, tape: Tape) -> None:
        if self._over or not (tape.wrote or tape.workers):
            return
        if tape.wrote:
            self.note(f"{party.name} commits {_describe_commit(function, tape)}")
        try:
            self.inspector.look(party, tape)
        except Violation as violation:
            self.wrong(str(violation))

    def _enters(self, thing: str, visit: Visit, inside: list[Visit]) -> None:
        """Judge somebody who is about to work on a thing in the cloud while others do."""
        taken = self.inspector.taken
        if (visit.op, visit.epoch) in taken or self._over:
            return
        for other in inside:
            if (other.op, other.epoch) not in taken:
                self.wrong(f"{visit.op}/{visit.epoch} enters {thing}, where {other.op}/{other.epoch} still is")
        self._crowds(visit)

    def _crowds(self, visit: Visit) -> None:
        """Judge whether more are inside than the store knows of: whoever enters has a place that somebody has left."""
        work = self.inspector.seen.work
        visits = [visit, *(one for thing in self.cloud.things.values() for one in thing.inside)]
        rows = [work[one.op] for one in visits if one.op in work and _holds(one, work[one.op])]
        lane = work[visit.op].lane if visit.op in work else None
        inside = {row.op for row in rows if row.lane == lane}
        running = sum(row.runs and row.lane == lane for row in work.values())
        unaware = {one.party.name for one in visits if (one.party.name, lane) in self.inspector.bereft}
        if len(inside) > running and not unaware:
            self.wrong(f"{visit.op}/{visit.epoch} enters lane {lane} as one of {sorted(inside)}, and {running} run")

    def _given_up(self, row: Row) -> None:
        """Judge somebody who has given up its work: it has left by then."""
        if any((visit.op, visit.epoch) == (row.op, row.epoch) for visit in self.cloud.things[row.object].inside):
            self.wrong(f"{row.owner} gives {row.op}/{row.epoch} up, and is still at it")

    def _robbed(self, name: str, row: Row) -> None:
        """Judge somebody whose work was taken over: who is awake has stopped by then what it does."""
        process = next(one for one in self.processes if one.name == name)
        late = self.loop.time() - process.way.renewed
        asleep = process.stopped or self.loop.time() - process.awake_since < 0.01
        for visit in self.cloud.things[row.object].inside:
            if (
                (visit.op, visit.epoch, visit.party) == (row.op, row.epoch, process)
                and not asleep
                and late > process.lease
            ):
                self.wrong(f"{name} is still at {row.op}, {late:.3f} s after its last heartbeat, and is taken over")

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
            self.wrong(f"task {task.get_name()} has died: {''.join(format_exception(error))}")

    def _unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.wrong(f"unhandled: {context.get('message')} {context.get('exception')!r}")

    # --- the run -----------------------------------------------------------------------------------------------------

    def run(self, life: Callable[["World"], Coroutine[Any, Any, None]]) -> Outcome:
        """Live a life to its end, and say what became of it."""
        asyncio.set_event_loop(None)
        complaints = Complaints(self.wrong)
        logger = logging.getLogger("stateward")
        logger.addHandler(complaints)
        logger.propagate = False
        try:
            main = self.loop.create_task(self._live(life))
            self.loop.run_until_complete(main)
        except (Stuck, Spinning) as error:
            self.wrong(f"{type(error).__name__}: {error}")
        except RuntimeError:
            if self._fault is None:
                raise
        finally:
            self._end()
            logger.removeHandler(complaints)
            logger.propagate = True
        return self._outcome()

    async def _live(self, life: Callable[["World"], Coroutine[Any, Any, None]]) -> None:
        await self.store.open()
        self.inspector = Inspector(self.store._writer.writer_connection.connection, self.clock)
        self.inspector.robbed = self._robbed
        self.inspector.given_up = self._given_up
        try:
            await life(self)
        except Violation as violation:
            self._blame(str(violation))

    def calm_down(self) -> None:
        """Let all bad luck end."""
        self.cloud.manners = clouds.CALM
        for process in self.processes:
            process.way.weather = faulty_store.CALM
            process.way.cut_until = 0.0
            if process.stopped and not process.dead:
                process.go_on()

    def _end(self) -> None:
        """Take everything down: what was killed or stopped is woken up, to be ended properly."""
        self._over = True
        for process in self.processes:
            process.way.over = True
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

    def _outcome(self) -> Outcome:
        inspector = self.inspector
        return Outcome(
            self.seed,
            self._fault,
            list(self._events),
            self._digest.hexdigest(),
            inspector.commits,
            len(inspector.ended),
            sum(self.cloud.effects.values()),
            self.loop.time(),
        )


class Complaints(logging.Handler):
    """Takes an error in the engine's log for what it is: something went wrong that nobody had foreseen."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        """Tell the world."""
        why = "".join(format_exception(record.exc_info[1])) if record.exc_info else ""
        self._tell(f"the log says: {record.getMessage()}\n{why}")


def _holds(visit: Visit, row: Row) -> bool:
    return row.owner is not None and row.owner.split("/")[0] == visit.party.name and row.epoch == visit.epoch


def _describe_commit(function: str, tape: Tape) -> str:
    name = function.replace(".<locals>", "").replace(".<lambda>", "")
    parts = [f"claims {claim.work.op}/{claim.work.epoch}" for claim in tape.claims]
    for changes in tape.changes:
        parts += [f"begins {one.id} ({one.action} {one.object})" for one in changes.operations]
        parts += [f"takes {one.op} at once" for one in changes.new_work if one.owner]
        parts += [f"ends {one.op} ({one.status})" for one in changes.ended]
        parts += [f"changes {one.op}/{one.epoch} {one.owner or 'free'}{' fenced' * one.fenced}" for one in changes.work]
        parts += [f"{line.object} {line.event} {line.target or ''}" for line in changes.journal]
    return f"{name}: {', '.join(parts)}"
