"""A world of one domain: several processes with its real handlers and guards, users, faults, and the domain's rules."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import chain
from random import Random

from stateward.errors import StatewardError
from stateward.store.errors import StoreError
from stateward.testing.faulty_store import NO_FAULTS, CommitRecord, FaultRates
from stateward.testing.invariants import Violation
from stateward.testing.process_faults import ProcessFaults
from stateward.testing.simulated_process import SimulatedProcess
from stateward.testing.simulated_world import SimulatedWorld, WorldOutcome
from stateward.testing.virtual_loop import LoopParty
from tests.simulation.domain_case import DomainCase, Server, virtual_clocks

REST_S = 7200.0
"""The virtual seconds within which everything must come to rest after the faults have ended."""

IDLE_S = 2000.0
"""The virtual seconds without a change after which a world that isn't at rest is stuck."""

CROWDED_S = 30.0
"""How long all processes run without faults; then two are left, because idle ones cost most of a run's time."""


class DomainProcess(SimulatedProcess):
    """A process with a domain and its background tasks."""

    def __init__(self, world: "DomainWorld", name: str) -> None:
        self.case = world.case
        self.runtime = world.case.make_runtime(name)
        super().__init__(
            name, world.loop, world.store, self.runtime.kinds, world.faults, world.chance(name), world.new_id,
            world.committed, dict, world.lease, self.runtime.bind_engine, self.runtime.running,
        )  # fmt: skip
        self.slots = max(self.slots, 3)
        self.case.processes.append(self)

    @property
    def server(self) -> Server:
        """The process as its users see it."""
        assert self.engine is not None
        return Server(self.engine, self.runtime)

    async def _live(self) -> None:
        await super()._live()
        self.case.lose_process(self.runtime)  # the end of a process closes its connections

    def kill(self) -> None:
        super().kill()
        self.case.lose_process(self.runtime)


class DomainWorld(SimulatedWorld[DomainProcess]):
    """Everything that there is in one run; one seed gives one run."""

    def __init__(
        self, seed: int, case: type[DomainCase], trouble_s: float, listener: Callable[[str], None] | None = None
    ) -> None:
        super().__init__(seed, listener)
        self.case = case(self.clock, self.chance)
        self.trouble_s = trouble_s
        self.kinds = self.case.make_runtime("p0").kinds
        self.requests = 0
        self.changed_at = 0.0
        self.faults = NO_FAULTS

    def opened(self) -> None:
        self.inspector.compares_specs = False

    def make_process(self, name: str) -> DomainProcess:
        return DomainProcess(self, name)

    def count_effects(self) -> int:
        return self.requests

    def committed(self, party: LoopParty, function: str, record: CommitRecord) -> None:
        super().committed(party, function, record)
        seen = self.inspector.seen
        if not self.is_over and any(changes.objects for changes in record.changes):
            self.changed_at = self.loop.time()
            for problem in self.case.broken(seen.objects.values()):
                self.wrong(problem)

    def begin_faults(self) -> None:
        """Let connections to the store be as they are in reality from now on."""
        self.faults = FaultRates()
        for process in self.processes:
            process.link.faults = self.faults

    def calm_down(self) -> None:
        self.faults = NO_FAULTS
        self.case.calm_down()
        super().calm_down()

    async def thin_out(self) -> None:
        """Shut down all processes but the oldest and the newest that works."""
        await asyncio.sleep(CROWDED_S)
        kept = {self.up[0], next(one for one in reversed(self.up) if one.works)}
        for process in self.up:
            if process not in kept:
                process.leave()

    def unsettled(self) -> Iterator[str]:
        objects = (one for one in self.inspector.seen.objects.values() if not one.removed)
        for trouble in chain(super().unsettled(), self.case.unsettled(objects)):
            if self.loop.time() > self.changed_at + IDLE_S:
                raise Violation(f"no rest, and no change for {IDLE_S:g} s: {trouble}")
            yield trouble

    def pending(self) -> Iterator[str]:
        """Yield nothing: the domains have timers that lie years ahead."""
        yield from ()

    async def living(self) -> DomainProcess:
        """Return a process that can be asked for something."""
        while not self.up:
            await asyncio.sleep(0.1)
        return self.up[0]

    async def ask(self, process: DomainProcess, name: str, chance: Random) -> None:
        """Do what a user does; a refusal is an answer."""
        self.requests += 1
        self.note(f"user: {name}")
        try:
            await self.case.actions[name](process.server, chance)
        except (StatewardError, StoreError, TimeoutError) as error:
            self.note(f"user: {name}: {type(error).__name__}: {error}"[:160])
        except Exception as error:
            self.wrong(f"{name} raised {type(error).__name__}: {error}")


async def _course(world: DomainWorld) -> None:
    faults = ProcessFaults(world, clock_jumps=False)
    for _ in range(faults.workers):
        world.add_process()
    await world.case.prepare((await world.living()).server)
    world.begin_faults()
    tasks = [asyncio.create_task(one) for one in (_users(world), faults.live())]
    broken, _ = await asyncio.wait(tasks, timeout=world.trouble_s)
    for task in broken:
        task.result()
    world.note("all faults end")
    for task in tasks:
        task.cancel()
    world.calm_down()
    world.add_process().works = True
    thinning = asyncio.create_task(world.thin_out())
    await world.rest(REST_S)
    for problem in await world.case.broken_at_rest((await world.living()).server):
        raise Violation(problem)
    thinning.cancel()


async def _users(world: DomainWorld) -> None:
    chance, names = world.chance("users"), list(world.case.actions)
    while True:
        await asyncio.sleep(chance.expovariate(1 / 1.5))
        if world.up:
            process = chance.choice(world.up)
            for _ in range(chance.choice((1, 1, 2, 3))):
                process.spawn(world.ask(process, chance.choice(names), chance))


def simulate_domain(
    seed: int, case: type[DomainCase], trouble_s: float = 60.0, listener: Callable[[str], None] | None = None
) -> WorldOutcome:
    """Run one world of a domain."""
    world = DomainWorld(seed, case, trouble_s, listener)
    try:
        with virtual_clocks():
            return world.run(_course)
    finally:
        world.case.close()
