"""The mci domain in virtual time, over providers whose weather is given: hours pass in a moment, a seed gives one run.

A witness reads the journal as it is written and looks at what is true at the providers: no VM may be called terminated
whose machine lives, and no VM may have two machines. Processes can be killed at any await; the next one goes on.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from itertools import count
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from stateward.domains.mci.lifecycle import VM, VmState
from stateward.domains.mci.model import vm_of
from stateward.domains.mci.provider import provider_pool
from stateward.domains.mci.runtime import MciRuntime
from stateward.drivers import MachineState, ProviderRegion
from stateward.drivers.simulated import SimulatedCloud
from stateward.drivers.simulated.faults import FaultProfile
from stateward.drivers.simulated.machine import SimulatedMachine, state_at
from stateward.engine import Engine
from stateward.lifecycle import TRANSITIONAL
from stateward.plugin.runtime import ProcessContext
from stateward.store.filters import JournalFilter, Page, Selector
from stateward.store.records import Key
from stateward.store.sqlite import SqliteStore
from stateward.testing.virtual_loop import PARTY, LoopParty, Spinning, VirtualLoop
from tests.integration.domains.mci.conftest import MciHarness

EPOCH = 1_000_000.0
ENOUGH = 20
"""How often tasks are told that it is over."""

ENDED = (MachineState.TERMINATED, MachineState.TERMINATING)
AT_REST = {"Running": MachineState.RUNNING, "Suspended": MachineState.SUSPENDED, "Terminated": MachineState.TERMINATED}


class SharedStore:
    """A way to a store that others use too: who leaves does not close it, and who uses it may be killed by it."""

    def __init__(self, store: SqliteStore, killer: "Killer") -> None:
        self._store, self._killer = store, killer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def transact(self, program: Any) -> Any:
        """Run a program, if one lives to do it, and to hear how it went."""
        await self._killer.comes_by()
        answer = await self._store.transact(program)
        await self._killer.comes_by()
        return answer

    async def open(self) -> None:
        """Find it open."""

    async def close(self) -> None:
        """Leave it open."""

    async def is_sole_user(self) -> bool:
        """Never be sure of that."""
        return False


class Killer:
    """Kills whichever process comes by as the n-th: before a transaction, or between its commit and the answer."""

    def __init__(self, number: int | None = None) -> None:
        self.passed = 0
        self._number = number

    async def comes_by(self) -> None:
        """Pass, or be gone."""
        party = PARTY.get()
        if party is None or party.stopped:
            return
        self.passed += 1
        if self.passed == self._number:
            party.stopped = True
            await asyncio.sleep(0)  # nothing is run any further


class Process(LoopParty):
    """The domain in a process that can be killed."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(name)
        site = ProcessContext(Path(world.data.name), random=world.chance, offers_local=False)
        self.plugin = MciRuntime(site, cloud=world.cloud, tick=0.25, every=30.0)
        store: Any = SharedStore(world.store, world.killer)
        self.engine = Engine(store, self.plugin.kinds, process=name, new_id=world.new_id, chance=world.chance)
        self.plugin.bind_engine(self.engine)
        self.harness = MciHarness(self.engine, self.plugin)
        self.ready = asyncio.Event()
        self.over = asyncio.Event()
        self.context = copy_context()
        self.context.run(PARTY.set, self)

    async def live(self) -> None:
        """Work until it is over."""
        async with self.engine, self.plugin.running(self.engine, works=True):
            self.ready.set()
            await self.over.wait()


class World:
    """Providers, a store, and processes one after the other."""

    def __init__(self, seed: int, profile: FaultProfile, victim: int | None = None) -> None:
        self.loop = VirtualLoop()
        self.killer = Killer(victim)
        self.data = TemporaryDirectory()
        self.chance = Random(f"{seed}/harness")
        self.store = SqliteStore(":memory:", inline=True, clock=self.clock)
        self.cloud = SimulatedCloud(
            profile=profile, chance=Random(f"{seed}/cloud"), clock=self.clock, sleep=asyncio.sleep
        )
        self.new_id = map("op{}".format, count(1)).__next__
        self.wrong: list[str] = []
        self._processes: list[Process] = []
        self._names = count(1)
        self._tasks: set[asyncio.Task[Any]] = set()

    def clock(self) -> float:
        """Return the time of the store and of the providers."""
        return EPOCH + self.loop.time()

    @property
    def harness(self) -> MciHarness:
        """The domain as the process of now has it."""
        return self._processes[-1].harness

    # --- processes ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start a process, and another if it does not survive that."""
        while True:
            process = Process(self, f"p{next(self._names)}")
            self._processes.append(process)
            self.loop.create_task(process.live(), context=process.context)
            while not (process.ready.is_set() or process.stopped):
                await asyncio.sleep(0.01)
            if process.ready.is_set():
                return

    async def replace_the_dead(self) -> None:
        """Start another process whenever one has died."""
        while True:
            await asyncio.sleep(0.5)
            if self._processes[-1].stopped:
                await self.start()

    async def kill(self) -> None:
        """Kill the process, at whatever it does, and start another."""
        self._processes[-1].stopped = True
        await self.start()

    # --- what is true ------------------------------------------------------------------------------------------------

    def region(self, vm: Any) -> Any:
        """Return the region of a VM."""
        return self.cloud.region(ProviderRegion(vm.provider, vm.region))

    def truth(self, vm: Any) -> MachineState | None:
        """Return what a VM's machine is; nothing if there never was one."""
        machine = self.region(vm).machines.get(vm.uid)
        return None if machine is None else state_at(machine, self.clock())

    def machines(self) -> Iterator[SimulatedMachine]:
        """Yield all machines that live."""
        for region in self.cloud._regions.values():
            yield from (one for one in region.machines.values() if state_at(one, self.clock()) not in ENDED)

    def place_of(self, machine: SimulatedMachine) -> ProviderRegion:
        """Return where a machine is."""
        name = next(name for name, region in self.cloud._regions.items() if machine.key in region.machines)
        provider, _, region = name.partition("/")
        return ProviderRegion(provider, region)

    async def witness(self) -> None:
        """Hold every line of the journal against what is true."""
        reader = self.store.reader
        async for line in self._lines():
            if line.target != VmState.TERMINATED:
                continue
            found = await reader.object(Key(line.ns, line.object))
            assert found is not None
            truth = self.truth(vm_of(found))
            if truth is not None and truth not in ENDED:
                self.wrong.append(f"{line.object} is called Terminated by {line.actor}, and its machine is {truth}")

    async def _lines(self) -> AsyncIterator[Any]:
        async for line in self._processes[0].engine.watch(0, JournalFilter(kind=VM.kind)):
            yield line

    async def doubtful(self) -> list[str]:
        """Return what is not as the records say, now that all is at rest."""
        found = []
        for ns in await self.store.reader.namespaces():
            for one in await self.store.reader.list_objects(Selector(ns, VM.kind), Page(None, 1000)):
                truth, said = self.truth(vm_of(one)), AT_REST.get(one.state)
                never = truth is None and one.state == VmState.TERMINATED
                if VM.state(one.state).state_class is TRANSITIONAL:
                    found.append(f"{one.id} is still {one.state}")
                elif said is not None and truth is not said and not never:
                    found.append(f"{one.id} is {one.state}, and its machine is {truth}")
        twice = [name for name, number in Counter(one.name for one in self.machines()).items() if number > 1]
        return [*self.wrong, *found, *(f"{name} has two machines" for name in twice)]

    # --- the run -----------------------------------------------------------------------------------------------------

    def run(self, course: Callable[["World"], Coroutine[Any, Any, None]]) -> None:
        """Live a course to its end."""
        self.loop.set_task_factory(self._task)  # type: ignore[arg-type]
        try:
            self.loop.run_until_complete(self._live(course))
        finally:
            self._end()

    async def _live(self, course: Callable[["World"], Coroutine[Any, Any, None]]) -> None:
        await self.store.open()
        await self.start()
        self.loop.create_task(self.witness())
        await course(self)
        assert self.wrong == []

    def _task(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **named: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **named)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _end(self) -> None:
        """Take everything down; what was killed is woken up, to be ended properly."""
        for process in self._processes:
            self.loop.resume(process)
        for _ in range(ENOUGH):
            self.loop.forgive()
            for task in list(self._tasks):
                task.cancel()
            with suppress(Spinning):
                self.loop.run_until_complete(asyncio.sleep(0.01))
        for task in self._tasks:  # somebody waits for one that was killed, and will for ever
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.loop.run_until_complete(self.store.close())
        self.loop.close()
        self.data.cleanup()


@contextmanager
def virtual_time() -> Iterator[None]:
    """Let the domain's own clock be that of the loop."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provider_pool, "monotonic", lambda: asyncio.get_running_loop().time())
        yield


def live(
    seed: int, profile: FaultProfile, course: Callable[[World], Coroutine[Any, Any, None]], victim: int | None = None
) -> World:
    """Run a course in a world of its own, in which the n-th to come by at the store is killed."""
    with virtual_time():
        world = World(seed, profile, victim)
        world.run(course)
    return world
