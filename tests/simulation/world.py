"""The world: several processes over one store, a cloud, users and faults, and the checks of the result.

One seed gives one run: all chance comes from it, time is virtual, and there is one thread.
"""

import asyncio
from collections.abc import Callable, Iterator
from traceback import format_exception
from typing import Any

from msgspec import Struct

from stateward.testing.invariants import WorkRow
from stateward.testing.simulated_process import SimulatedProcess
from stateward.testing.simulated_world import SimulatedWorld
from tests.simulation import cloud as clouds
from tests.simulation.cloud import Cloud, Visit
from tests.simulation.kinds import NARROW, WIDE, make_kinds


class Size(Struct, frozen=True):
    """How long the trouble lasts, how long it may take to come to rest, and how much is asked for in that time."""

    trouble: float = 25.0
    rest: float = 400.0
    pause: float = 0.25
    """Between two wishes of the users, on average."""


TIMED = ("stop", "start", "reset")
"""What timers are set for."""


class World(SimulatedWorld[SimulatedProcess]):
    """Everything that there is in one run."""

    def __init__(self, seed: int, size: Size, listener: Callable[[str], None] | None = None) -> None:
        super().__init__(seed, listener)
        self.size = size
        self.cloud = Cloud(self.loop, self.chance("cloud"), self.note)
        self.cloud.wrong = self.wrong
        self.cloud.enters = self._enters
        self.narrow = self.chance("lanes").random() < 0.5
        self.kinds = make_kinds(self.cloud, NARROW if self.narrow else WIDE)

    def count_effects(self) -> int:
        return sum(self.cloud.effects.values())

    def make_process(self, name: str) -> SimulatedProcess:
        return self.simulated_process(name, self.kinds)

    def opened(self) -> None:
        self.inspector.timed = frozenset(TIMED)
        self.inspector.on_taken_over = self._taken_over
        self.inspector.on_given_up = self._given_up

    def set_storm(self, process: SimulatedProcess, *, rages: bool) -> None:
        super().set_storm(process, rages=rages)
        self.cloud.manners = clouds.Manners(0.2, 0.2, 0.1, 0.2, 0.1, 0.4, 0.3) if rages else clouds.Manners()

    def calm_down(self) -> None:
        self.cloud.manners = clouds.CALM
        super().calm_down()

    def unsettled(self) -> Iterator[str]:
        yield from super().unsettled()
        if not self.cloud.at_rest:
            yield "something is still about to land in the cloud"

    def task_failed(self, task: asyncio.Task[Any], error: BaseException) -> None:
        self.wrong(f"task {task.get_name()} has died: {''.join(format_exception(error))}")

    def logged(self, text: str) -> None:
        self.wrong(f"the log says: {text}")

    # --- what is watched ---------------------------------------------------------------------------------------------

    def _enters(self, thing: str, visit: Visit, inside: list[Visit]) -> None:
        """Judge somebody who is about to work on a thing in the cloud while others do."""
        taken = self.inspector.taken
        if (visit.op, visit.epoch) in taken or self.is_over:
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

    def _given_up(self, row: WorkRow) -> None:
        """Judge somebody who has given up its work: it has left by then."""
        if any((visit.op, visit.epoch) == (row.op, row.epoch) for visit in self.cloud.things[row.object].inside):
            self.wrong(f"{row.owner} gives {row.op}/{row.epoch} up, and is still at it")

    def _taken_over(self, name: str, row: WorkRow) -> None:
        """Judge somebody whose work was taken over: who is awake has stopped by then what it does."""
        process = next(one for one in self.processes if one.name == name)
        late = self.loop.time() - process.link.renewed
        asleep = process.stopped or self.loop.time() - process.awake_since < 0.01
        for visit in self.cloud.things[row.object].inside:
            if (
                (visit.op, visit.epoch, visit.party) == (row.op, row.epoch, process)
                and not asleep
                and late > process.lease
            ):
                self.wrong(f"{name} is still at {row.op}, {late:.3f} s after its last heartbeat, and is taken over")


def _holds(visit: Visit, row: WorkRow) -> bool:
    return row.owner is not None and row.owner.split("/")[0] == visit.party.name and row.epoch == visit.epoch
