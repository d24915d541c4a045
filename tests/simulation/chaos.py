"""Fault injection: processes are killed, suspended, cut off and shut down, and the store's clock jumps."""

import asyncio

from tests.simulation import cloud, faulty_store
from tests.simulation.process import Process
from tests.simulation.world import World


class Chaos:
    """What happens to the processes of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance("chaos")
        self.workers = self._chance.choice((2, 3, 4))

    async def live(self) -> None:
        """Let something bad happen from time to time."""
        blows = ((self._kill, 4), (self._stop, 4), (self._cut, 3), (self._leave, 2), (self._jump, 2), (self._storm, 2))
        kinds, weights = [blow for blow, _ in blows], [weight for _, weight in blows]
        while True:
            await asyncio.sleep(self._chance.expovariate(1 / 2.5))
            up = self._world.up
            if up:
                self._chance.choices(kinds, weights)[0](self._chance.choice(up))

    def _later(self, seconds: float, what: object, *args: object) -> None:
        assert callable(what)
        self._world.loop.call_later(seconds, what, *args)

    def _kill(self, process: Process) -> None:
        self._world.note(f"chaos: kill {process.name}")
        process.kill()
        self._later(self._chance.random() * 6, self._replace)

    def _replace(self) -> None:
        if sum(not one.dead for one in self._world.processes) < self.workers:
            self._world.add_process()

    def _stop(self, process: Process) -> None:
        seconds = self._chance.random() * self._world.lease * 2.5
        self._world.note(f"chaos: stop {process.name} for {seconds:.1f} s")
        process.stop()
        self._later(seconds, self._go_on, process)

    def _go_on(self, process: Process) -> None:
        if process.stopped and not process.dead:
            self._world.note(f"chaos: {process.name} goes on")
            process.go_on()

    def _cut(self, process: Process) -> None:
        seconds = self._chance.random() * self._world.lease * 2.5
        process.way.cut_until = self._world.loop.time() + seconds
        process.way.silent = self._chance.random() < 0.5
        self._world.note(f"chaos: cut {process.name} off for {seconds:.1f} s{', silently' * process.way.silent}")

    def _leave(self, process: Process) -> None:
        self._world.note(f"chaos: {process.name} is shut down")
        process.leave()
        self._later(self._chance.random() * 6, self._replace)

    def _jump(self, _: Process) -> None:
        seconds = (self._chance.random() * 2 - 1) * self._world.lease * 3
        self._world.note(f"chaos: the clock jumps by {seconds:.1f} s")
        self._world.offset += seconds

    def _storm(self, process: Process) -> None:
        self._world.note(f"chaos: a storm around {process.name} and the cloud")
        process.way.weather = faulty_store.Weather(0.3, 2.0, 0.2, 0.2, 0.1, 0.1, 0.5)
        self._world.cloud.manners = cloud.Manners(0.2, 0.2, 0.1, 0.2, 0.1, 0.4, 0.3)
        self._later(self._chance.random() * 4, self._clear_up, process)

    def _clear_up(self, process: Process) -> None:
        process.way.weather = self._world.weather
        self._world.cloud.manners = cloud.Manners()
