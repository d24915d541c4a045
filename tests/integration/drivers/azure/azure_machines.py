"""Creating machines in the test cloud, and waiting for their states."""

import asyncio
from collections.abc import Sequence
from itertools import count

from stateward.drivers import CallAccepted, MachineHandle, MachineSpec, MachineState, Observation
from stateward.drivers.azure import AzureDriver
from tests.integration.drivers.azure.arm_cloud import ArmCloud
from tests.integration.drivers.azure.arm_machines import IMAGE, SPEC

KINDS = ("virtualMachines", "disks", "networkInterfaces", "publicIPAddresses")
MAX_LISTINGS = 1000
_numbers = count(1)


def new_machine_specs(number: int) -> list[MachineSpec]:
    """Return specs of new machines, with unused keys."""
    return [MachineSpec(f"key-{one}", f"machine-{one}", SPEC, IMAGE) for one in (next(_numbers) for _ in range(number))]


async def create_machines(driver: AzureDriver, number: int) -> list[MachineHandle]:
    """Create machines, and wait until they run."""
    wanted = new_machine_specs(number)
    outcomes = await driver.create(wanted)
    assert all(isinstance(outcome, CallAccepted) for outcome in outcomes), outcomes
    return [
        MachineHandle(one.key, one.native_id) for one in await wait_for_state(driver, [want.key for want in wanted])
    ]


async def wait_for_state(
    driver: AzureDriver, keys: Sequence[str], state: MachineState = MachineState.RUNNING
) -> Sequence[Observation]:
    """Wait until machines are in a state; return them in the order of their keys."""
    for _ in range(MAX_LISTINGS):
        seen = {one.key: one for one in (await driver.observe(keys)).machines}
        if all(key in seen and seen[key].state is state for key in keys):
            return [seen[key] for key in keys]
        await asyncio.sleep(0.01)
    raise AssertionError(f"never {state}: {seen}")


async def wait_until_gone(driver: AzureDriver, keys: Sequence[str]) -> None:
    """Wait until machines and their parts are no longer listed."""
    for _ in range(MAX_LISTINGS):
        listing = await driver.observe(keys)
        if listing.complete and not listing.machines:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"never gone: {listing.machines}")


def counts(cloud: ArmCloud) -> list[int]:
    """Return how many virtual machines, disks, interfaces and public addresses there are."""
    return [len(cloud.names(kind)) for kind in KINDS]
