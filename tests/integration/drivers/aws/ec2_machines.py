"""Creating machines in the test cloud, and waiting for their states."""

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Any

from stateward.drivers import CallAccepted, MachineHandle, MachineSpec, MachineState, Observation
from stateward.drivers.aws import AwsDriver
from tests.integration.drivers.aws.moto_cloud import SPEC
from tests.integration.drivers.aws.moto_images import IMAGE

MAX_LISTINGS = 1000
_numbers = count(1)


def new_machine_specs(number: int) -> list[MachineSpec]:
    """Return specs of new machines, with unused keys."""
    return [MachineSpec(f"key-{one}", f"machine-{one}", SPEC, IMAGE) for one in (next(_numbers) for _ in range(number))]


async def create_machines(driver: AwsDriver, number: int) -> list[MachineHandle]:
    """Create machines, and wait until they run."""
    wanted = new_machine_specs(number)
    outcomes = await driver.create(wanted)
    assert all(isinstance(outcome, CallAccepted) for outcome in outcomes), outcomes
    return [
        MachineHandle(one.key, one.native_id) for one in await wait_for_state(driver, [want.key for want in wanted])
    ]


async def wait_for_state(
    driver: AwsDriver, keys: Sequence[str], state: MachineState = MachineState.RUNNING
) -> Sequence[Observation]:
    """Wait until machines are in a state; return them in the order of their keys."""
    for _ in range(MAX_LISTINGS):
        seen = {one.key: one for one in (await driver.observe(keys)).machines}
        if all(key in seen and seen[key].state is state for key in keys):
            return [seen[key] for key in keys]
        await asyncio.sleep(0.01)
    raise AssertionError(f"never {state}: {seen}")


def describe_machines(ec2: Any, *states: str) -> list[dict[str, Any]]:
    """Return all instances that boto3 lists, or those in some states."""
    pages = ec2.get_paginator("describe_instances").paginate()
    found = [one for page in pages for each in page["Reservations"] for one in each["Instances"]]
    return [one for one in found if not states or one["State"]["Name"] in states]
