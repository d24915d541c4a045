"""Logins to the test cloud, and machines in it: creating them, and waiting for their states."""

import asyncio
from collections.abc import Sequence
from itertools import count

import pytest

from stateward.drivers import CallAccepted, MachineHandle, MachineSpec, MachineState, Observation
from stateward.drivers.openstack import OpenStackDriver

SPEC = "m1.tiny"
IMAGE = "155d900f-4e14-4e4c-a73d-069cbf4541e6"
PASSWORD = "very/secret+word"
MAX_LISTINGS = 1000
PAUSE_S = 0.3
"""The time between two listings: each takes time from the Nova that it looks at."""

_numbers = count(1)


def set_login(monkeypatch: pytest.MonkeyPatch, url: str, project: str, prefix: str = "TEST_CLOUD") -> None:
    """Put a login for a project into the environment."""
    login = {
        "AUTH_URL": f"{url}/identity/v3",
        "USERNAME": f"user-of-{project}",  # key pairs belong to a user
        "PASSWORD": PASSWORD,
        "PROJECT_NAME": project,
        "USER_DOMAIN_ID": "default",
        "PROJECT_DOMAIN_ID": "default",
    }
    for name, value in login.items():
        monkeypatch.setenv(f"{prefix}_{name}", value)


def new_machine_specs(number: int, **tags: str) -> list[MachineSpec]:
    """Return specs of new machines, with unused keys; tags can hold up or break the hypervisor."""
    ids = (next(_numbers) for _ in range(number))
    return [MachineSpec(f"key-{one}", f"machine-{one}", SPEC, IMAGE, tags=tags) for one in ids]


async def create_machines(driver: OpenStackDriver, number: int, **tags: str) -> list[MachineHandle]:
    """Create machines, and wait until they run."""
    wanted = new_machine_specs(number, **tags)
    outcomes = await driver.create(wanted)
    assert all(isinstance(outcome, CallAccepted) for outcome in outcomes), outcomes
    return [MachineHandle(one.key, one.native_id) for one in await wait_for_state(driver, [one.key for one in wanted])]


async def wait_for_state(
    driver: OpenStackDriver, keys: Sequence[str], state: MachineState = MachineState.RUNNING
) -> Sequence[Observation]:
    """Wait until machines are in a state; return them in the order of their keys."""
    for _ in range(MAX_LISTINGS):
        seen = {one.key: one for one in (await driver.observe(keys)).machines}
        if all(key in seen and seen[key].state is state for key in keys):
            return [seen[key] for key in keys]
        await asyncio.sleep(PAUSE_S)
    raise AssertionError(f"never {state}: {seen}")


async def wait_until_gone(driver: OpenStackDriver, key: str) -> None:
    """Wait until a complete listing shows a machine no more."""
    for _ in range(MAX_LISTINGS):
        listing = await driver.observe([key])
        if listing.complete and not listing.machines:
            return
        await asyncio.sleep(PAUSE_S)
    raise AssertionError(f"{key} never went")
