"""Fault injection: processes are killed, suspended, cut off and shut down, and the store's clock jumps."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from stateward.testing.simulated_process import SimulatedProcess
from stateward.testing.simulated_world import SimulatedWorld


class ProcessFaults:
    """What happens to the processes of a world."""

    def __init__(self, world: SimulatedWorld[Any], *, clock_jumps: bool = True) -> None:
        self._world = world
        self._chance = world.chance("chaos")
        self._clock_jumps = clock_jumps
        self.workers = self._chance.choice((2, 3, 4))

    async def live(self) -> None:
        """Let something bad happen from time to time."""
        blows: list[tuple[Callable[[SimulatedProcess], None], int]] = [
            (self._kill, 4),
            (self._stop, 4),
            (self._cut, 3),
            (self._leave, 2),
            (self._storm, 2),
        ]
        if self._clock_jumps:
            blows.append((self._jump, 2))
        kinds, weights = [blow for blow, _ in blows], [weight for _, weight in blows]
        while True:
            await asyncio.sleep(self._chance.expovariate(1 / 2.5))
            up = self._world.up
            if up:
                self._chance.choices(kinds, weights)[0](self._chance.choice(up))

    def _later(self, seconds: float, what: object, *args: object) -> None:
        assert callable(what)
        self._world.loop.call_later(seconds, what, *args)

    def _kill(self, process: SimulatedProcess) -> None:
        self._world.note(f"fault: kill {process.name}")
        process.kill()
        self._later(self._chance.random() * 6, self._replace)

    def _replace(self) -> None:
        if sum(not process.dead for process in self._world.processes) < self.workers:
            self._world.add_process()

    def _stop(self, process: SimulatedProcess) -> None:
        seconds = self._chance.random() * self._world.lease * 2.5
        self._world.note(f"fault: stop {process.name} for {seconds:.1f} s")
        process.stop()
        self._later(seconds, self._go_on, process)

    def _go_on(self, process: SimulatedProcess) -> None:
        if process.stopped and not process.dead:
            self._world.note(f"fault: {process.name} goes on")
            process.go_on()

    def _cut(self, process: SimulatedProcess) -> None:
        seconds = self._chance.random() * self._world.lease * 2.5
        process.link.cut_until = self._world.loop.time() + seconds
        process.link.silent = self._chance.random() < 0.5
        self._world.note(f"fault: cut {process.name} off for {seconds:.1f} s{', silently' * process.link.silent}")

    def _leave(self, process: SimulatedProcess) -> None:
        self._world.note(f"fault: {process.name} is shut down")
        process.leave()
        self._later(self._chance.random() * 6, self._replace)

    def _jump(self, _: SimulatedProcess) -> None:
        seconds = (self._chance.random() * 2 - 1) * self._world.lease * 3
        self._world.note(f"fault: the clock jumps by {seconds:.1f} s")
        self._world.offset += seconds

    def _storm(self, process: SimulatedProcess) -> None:
        self._world.note(f"fault: a storm around {process.name}")
        self._world.set_storm(process, rages=True)
        self._later(self._chance.random() * 4, partial(self._world.set_storm, process, rages=False))
