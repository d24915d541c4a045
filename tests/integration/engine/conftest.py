"""The fixture `site`: an engine on a real store with the pumps of `pump_kinds`. Every test runs on both stores."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from stateward.engine import Accepted, Engine, OperationSnapshot
from stateward.store.port import Store
from tests.integration.engine.pump_kinds import PUMP, Plant


class Site:
    """An engine at work, and ways to say what a test waits for."""

    def __init__(self, engine: Engine, plant: Plant) -> None:
        self.engine = engine
        self.plant = plant

    async def built(self, name: str, **how: Any) -> None:
        """Build a pump and wait until it is there."""
        await self.ended(await self.engine.create("ns", name, PUMP.kind, "build", **how))

    async def ended(self, accepted: Accepted) -> OperationSnapshot:
        """Wait for the end of an operation."""
        return await self.engine.wait(accepted.op.ns, accepted.op.id, 30)

    async def state(self, name: str) -> str:
        """Return an object's state."""
        return (await self.engine.get("ns", name)).state


@pytest.fixture
async def site(new_store: Callable[[], Store]) -> AsyncIterator[Site]:
    plant = Plant()
    async with Engine(new_store(), [plant.pump(), plant.station()]) as engine:
        yield Site(engine, plant)
        plant.release()
