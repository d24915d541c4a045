"""The course of a world: faults for a while, then calm, in which all operations must end and all states be right."""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress

from stateward.lifecycle import CANCELLED, FAILED
from stateward.store.errors import StoreError
from stateward.store.records import Status
from stateward.testing.invariants import Violation
from stateward.testing.process_faults import ProcessFaults
from stateward.testing.simulated_process import SimulatedProcess
from stateward.testing.simulated_world import WorldOutcome
from tests.simulation.kinds import CLAIMS
from tests.simulation.users import Users
from tests.simulation.world import Size, World

SIZE = Size()


def simulate(seed: int, size: Size = SIZE, listener: Callable[[str], None] | None = None) -> WorldOutcome:
    """Run one world and say what became of it."""
    return World(seed, size, listener).run(_course)


async def _course(world: World) -> None:
    users, chaos, reader = Users(world), ProcessFaults(world), Follower(world)
    for _ in range(chaos.workers):
        world.add_process()
    troubles = [asyncio.create_task(one.live()) for one in (users, chaos, reader)]
    await asyncio.sleep(world.size.trouble)
    world.note("calm")
    for task in troubles[:2]:
        task.cancel()
    world.calm_down()
    if not any(process.works and not process.dead and not process.leaving for process in world.processes):
        world.add_process().works = True
    await world.rest(world.size.rest)
    await reader.finish()
    for problem in (*world.unsettled(), *_untrue(world), *_unfired(world, users), *reader.missed()):
        raise Violation(problem)
    for op in users.accepted:
        if op not in world.inspector.ended:
            raise Violation(f"{op} was accepted, and has not ended")


def _untrue(world: World) -> Iterator[str]:
    """Compare what is claimed with what is true."""
    for name, found in world.inspector.seen.objects.items():
        claim, truth = CLAIMS.get(found.state), world.cloud.things[name].state
        if found.kind == "box" and claim is not None and claim != truth:
            yield f"{name} is {found.state}, and in the cloud it is {truth}"
    for op, status, how in world.inspector.ask(
        "SELECT p.id, p.status, (SELECT j.event FROM journal j WHERE j.op = p.id AND j.event NOT LIKE 'rejected:%'"
        " ORDER BY seq DESC LIMIT 1) FROM operations p WHERE p.kind = 'box'"
    ):
        effects = world.cloud.effects[op]
        if status == Status.SUCCEEDED and effects != 1:
            yield f"{op} has succeeded, and was applied {effects} times"
        if status == Status.FAILED and how == FAILED and effects:
            yield f"{op} has failed, and was applied"
        if status == Status.CANCELLED and how == CANCELLED and effects:
            yield f"{op} was cancelled, and was applied"


def _unfired(world: World, users: Users) -> Iterator[str]:
    """Every timer that was set, and not taken back, has done its one thing if its object was there all the time."""
    pending = {timer for (timer,) in world.inspector.ask("SELECT id FROM timers")}
    for timer, there in users.timers.items():
        now = None if there is None else world.inspector.seen.objects[there.id]
        still = now is not None and there is not None and now.created == there.created
        if still and timer not in world.inspector.fired and timer not in pending:
            yield f"timer {timer} of {there} was set, and has done nothing"


class Follower:
    """Reads the journal as a stream, through one process after the other, each time from where it was."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sessions: list[tuple[int, list[int]]] = []

    async def live(self) -> None:
        """Begin a new session from time to time."""
        while True:
            self._begin()
            await asyncio.sleep(9.0)

    async def finish(self) -> None:
        """Read what is left; a session that fails is followed by another one."""
        for _ in range(5):
            self._begin()
            await asyncio.sleep(1.0)
            if self._last_told() == self._last_line():
                return

    def _begin(self) -> None:
        for process in self._world.up[:1]:
            self._sessions.append((self._last_told(), []))
            process.spawn(self._follow(process, *self._sessions[-1]))

    async def _follow(self, process: SimulatedProcess, after: int, seen: list[int]) -> None:
        assert process.engine is not None
        with suppress(StoreError):
            async for line in process.engine.watch(after):
                seen.append(line.seq)  # noqa: PERF401 - it never ends

    def missed(self) -> Iterator[str]:
        """Say where a session was not the journal as it stands."""
        numbers = [seq for (seq,) in self._world.inspector.ask("SELECT seq FROM journal ORDER BY seq")]
        for after, seen in self._sessions:
            start = bisect_right(numbers, after)
            if seen != numbers[start : start + len(seen)]:
                yield f"a reader that went on from {after} was told {seen[:20]}..."
        if self._last_told() != self._last_line():
            yield "no reader has been told of the journal's last line"

    def _last_told(self) -> int:
        return max((seen[-1] for _, seen in self._sessions if seen), default=0)

    def _last_line(self) -> int:
        last: int = self._world.inspector.ask("SELECT coalesce(max(seq), 0) FROM journal")[0][0]
        return last
