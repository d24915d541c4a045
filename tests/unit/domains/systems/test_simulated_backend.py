"""The simulated backend: what was begun there goes on, whatever becomes of the process that asked for it."""

import asyncio
from collections.abc import Iterator
from contextvars import copy_context

import pytest

from stateward.domains.systems.backends.port import InstancePhase, InstanceSpec, ServiceRef, SystemRef
from stateward.domains.systems.backends.simulated_backend import SimulatedBackend
from stateward.domains.systems.definition import Service
from stateward.testing.virtual_loop import PARTY, LoopParty, VirtualLoop

REF = ServiceRef(SystemRef("default", "shop"), "/db")
SPEC = InstanceSpec("r-0", "r", Service(command=("db",)))


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


async def phases(backend: SimulatedBackend) -> list[InstancePhase]:
    return [one.phase for one in await backend.instances(REF)]


def test_instance_stops_although_the_process_that_stopped_it_was_killed(loop: VirtualLoop) -> None:
    async def story() -> None:
        backend, process, context = SimulatedBackend(stop_delay=0.5), LoopParty("p"), copy_context()
        context.run(PARTY.set, process)
        await backend.start(REF, SPEC)
        await asyncio.create_task(backend.stop(REF, SPEC.name), context=context)
        process.stopped = True
        assert await phases(backend) == [InstancePhase.STOPPING]
        await asyncio.sleep(0.5)
        assert await phases(backend) == []

    loop.run_until_complete(story())


def test_instance_that_is_being_stopped_neither_becomes_ready_nor_crashes(loop: VirtualLoop) -> None:
    async def story() -> None:
        backend = SimulatedBackend(delay=0.2, stop_delay=0.5)
        await backend.start(REF, SPEC)
        await backend.stop(REF, SPEC.name)
        await asyncio.sleep(0.3)
        backend.crash(REF)
        backend.mend(REF)
        assert await phases(backend) == [InstancePhase.STOPPING]

    loop.run_until_complete(story())


def test_stop_in_a_removed_service_does_not_end_its_successor(loop: VirtualLoop) -> None:
    async def story() -> None:
        backend = SimulatedBackend(stop_delay=0.5)
        await backend.start(REF, SPEC)
        await backend.stop(REF, SPEC.name)
        await backend.remove(REF.system)
        await backend.start(REF, SPEC)
        await asyncio.sleep(1.0)
        assert await phases(backend) == [InstancePhase.UP]

    loop.run_until_complete(story())
