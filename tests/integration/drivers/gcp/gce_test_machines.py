"""Creating machines in the test cloud, and waiting for their states."""

import asyncio
from collections.abc import Sequence
from itertools import count

from stateward.drivers import CallAccepted, MachineHandle, MachineSpec, MachineState, Observation
from stateward.drivers.gcp import GcpDriver
from tests.integration.drivers.gcp.gce_world import IMAGE, SPEC

MAX_LISTINGS = 1000
_numbers = count(1)


def new_machine_specs(number: int) -> list[MachineSpec]:
    """Return specs of new machines, with unused keys."""
    return [MachineSpec(f"key-{one}", f"Machine {one}", SPEC, IMAGE) for one in (next(_numbers) for _ in range(number))]


async def create_machines(driver: GcpDriver, number: int) -> list[MachineHandle]:
    """Create machines, and wait until they run."""
    wanted = new_machine_specs(number)
    outcomes = await driver.create(wanted)
    assert all(isinstance(outcome, CallAccepted) for outcome in outcomes), outcomes
    seen = await wait_for_state(driver, [want.key for want in wanted])
    return [MachineHandle(one.key, one.native_id) for one in seen]


async def wait_for_state(
    driver: GcpDriver, keys: Sequence[str], state: MachineState = MachineState.RUNNING
) -> Sequence[Observation]:
    """Wait until machines are in a state; return them in the order of their keys."""
    for _ in range(MAX_LISTINGS):
        seen = {one.key: one for one in (await driver.observe(keys)).machines}
        if all(key in seen and seen[key].state is state for key in keys):
            return [seen[key] for key in keys]
        await asyncio.sleep(0.01)
    raise AssertionError(f"never {state}: {seen}")


async def wait_until_gone(driver: GcpDriver, key: str) -> None:
    """Wait until a machine is no longer listed."""
    for _ in range(MAX_LISTINGS):
        listing = await driver.observe([key])
        if listing.complete and not listing.machines:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"never gone: {listing}")
