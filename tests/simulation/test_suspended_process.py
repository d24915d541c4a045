"""A process that is suspended, and goes on when another one has finished its operation: it changes no instance."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import closing

from stateward.domains.systems.backends.port import InstancePhase
from stateward.domains.systems.definition import read
from stateward.domains.systems.service import SystemActions
from stateward.engine import Accepted
from tests.simulation.domain_case import NS, virtual_clocks
from tests.simulation.domain_world import DomainProcess, DomainWorld
from tests.simulation.systems_case import DEFINITIONS, SystemsCase


class Shop(DomainWorld):
    """A shop with one process, and a second one as soon as the first is suspended."""

    case: SystemsCase

    def __init__(self) -> None:
        super().__init__(0, SystemsCase, 0.0)

    async def systems(self) -> SystemActions:
        return SystemActions((await self.living()).server.engine, NS, "ann")

    async def finish(self, accepted: Accepted) -> None:
        await (await self.living()).server.engine.wait_record(NS, accepted.op.id, 600.0)

    async def deploy(self) -> Accepted:
        return await (await self.systems()).deploy("shop", "/", read(DEFINITIONS[0]), 30.0)

    async def teardown(self) -> Accepted:
        return await (await self.systems()).teardown("shop", 30.0)

    def phases(self) -> set[InstancePhase]:
        return {one.phase for found in self.case.backend._instances.values() for one in found.values()}

    async def suspend_at(self, phase: InstancePhase, accepted: Accepted) -> DomainProcess:
        """Suspend the process as soon as an instance is in a phase; another one finishes the operation."""
        while phase not in self.phases():
            await asyncio.sleep(0.01)
        first = self.up[0]
        first.stop()
        self.add_process()
        await self.finish(accepted)
        return first


def run(course: Callable[[Shop], Coroutine[None, None, None]]) -> None:
    async def begin(shop: Shop) -> None:
        shop.add_process()
        await shop.case.prepare((await shop.living()).server)
        await course(shop)

    shop = Shop()
    with closing(shop.case), virtual_clocks():
        outcome = shop.run(begin)
    assert outcome.wrong is None, "\n".join(outcome.events)


def test_rollout_starts_no_instance_of_a_service_that_was_deleted_meanwhile() -> None:
    async def course(shop: Shop) -> None:
        await shop.finish(await shop.teardown())
        first = await shop.suspend_at(InstancePhase.STARTING, await shop.deploy())
        await shop.finish(await shop.teardown())
        first.go_on()
        await asyncio.sleep(5.0)
        assert shop.phases() == set()

    run(course)


def test_deletion_stops_no_instance_of_a_service_that_was_deployed_again_meanwhile() -> None:
    async def course(shop: Shop) -> None:
        first = await shop.suspend_at(InstancePhase.STOPPING, await shop.teardown())
        await shop.finish(await shop.deploy())
        first.go_on()
        await asyncio.sleep(0.2)
        assert shop.phases() == {InstancePhase.UP}

    run(course)
