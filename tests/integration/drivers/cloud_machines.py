"""Creating machines in a test cloud, and waiting for their states; the same for every provider."""

import asyncio
from collections.abc import Sequence
from itertools import count

from msgspec import Struct, field

from stateward.drivers import CallAccepted, Driver, MachineHandle, MachineSpec, MachineState, Observation

MAX_LISTINGS = 1000


class CloudMachines(Struct):
    """Machines of one size and image, with keys that were never used."""

    spec: str
    image: str
    name: str = "machine-"
    pause_s: float = 0.01  # between two listings
    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    def new_specs(self, number: int, **tags: str) -> list[MachineSpec]:
        """Return specs of new machines, with unused keys; tags can hold up or break a hypervisor."""
        ids = [next(self._numbers) for _ in range(number)]
        return [MachineSpec(f"key-{id_}", f"{self.name}{id_}", self.spec, self.image, tags=tags) for id_ in ids]

    async def create(self, driver: Driver, number: int, **tags: str) -> list[MachineHandle]:
        """Create machines, and wait until they run."""
        wanted = self.new_specs(number, **tags)
        outcomes = await driver.create(wanted)
        assert all(isinstance(outcome, CallAccepted) for outcome in outcomes), outcomes
        running = await self.wait_for_state(driver, [spec.key for spec in wanted])
        return [MachineHandle(machine.key, machine.native_id) for machine in running]

    async def wait_for_state(
        self, driver: Driver, keys: Sequence[str], state: MachineState = MachineState.RUNNING
    ) -> Sequence[Observation]:
        """Wait until machines are in a state; return them in the order of their keys."""
        for _ in range(MAX_LISTINGS):
            seen = {machine.key: machine for machine in (await driver.observe(keys)).machines}
            if all(key in seen and seen[key].state is state for key in keys):
                return [seen[key] for key in keys]
            await asyncio.sleep(self.pause_s)
        raise AssertionError(f"never {state}: {seen}")

    async def wait_until_gone(self, driver: Driver, *keys: str) -> None:
        """Wait until a complete listing shows neither machines nor parts of them."""
        for _ in range(MAX_LISTINGS):
            listing = await driver.observe(keys)
            if listing.complete and not listing.machines:
                return
            await asyncio.sleep(self.pause_s)
        raise AssertionError(f"never gone: {listing}")
