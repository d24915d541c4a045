"""Waiting for a resource: until Azure has provisioned it, or until it is gone.

Azure accepts a network interface at once, but a virtual machine cannot use it before it is provisioned. So the few
resources that another call depends on are waited for, by reading them. The wait is short and has a limit: a repeated
call continues where this one stopped.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from stateward.drivers.azure.arm_client import ArmClient
from stateward.drivers.azure.vm_records import provisioning_of
from stateward.drivers.cloud.errors import CloudCallFailed, refusal
from stateward.drivers.port import RefusalReason, TransientFailure

MAX_POLLS = 30
MAX_PAUSE_FACTOR = 5.0
UNFINISHED = ("Creating", "Updating")


async def find_resource(arm: ArmClient, operations: str, *names: str) -> Mapping[str, Any] | None:
    """Return a resource of a group of operations, such as `network.subnets`, or None; raises `CloudCallFailed`."""
    try:
        return await arm.call(f"{operations}.get", *names)
    except CloudCallFailed as failed:
        if failed.why is RefusalReason.NOT_FOUND:
            return None
        raise


async def wait_until_provisioned(
    arm: ArmClient, shown: Mapping[str, Any] | None, operations: str, *names: str
) -> Mapping[str, Any]:
    """Wait until a resource is provisioned; raises `CloudCallFailed` if it fails, or is not there."""
    for number in range(MAX_POLLS):
        state = "" if shown is None else provisioning_of(shown)
        if shown is not None and state not in UNFINISHED:
            break
        await _pause(arm, number)
        shown = await find_resource(arm, operations, *names)
    else:
        raise _unfinished(operations, names, "is not provisioned yet")
    if state == "Succeeded" or not state:
        return shown
    if state == "Deleting":
        raise _unfinished(operations, names, "is being removed")
    text = f"{names[-1]} is {state}: remove it, and create it again"
    raise refusal(f"{operations}.get", RefusalReason.CONFLICT, text)


async def delete_resource(arm: ArmClient, operations: str, *names: str, delete: str = "begin_delete") -> bool:
    """Delete a resource, and wait until it is gone; returns whether there was one."""
    if not await arm.delete(f"{operations}.{delete}", *names):
        return False
    for number in range(MAX_POLLS):
        if await find_resource(arm, operations, *names) is None:
            return True
        await _pause(arm, number)
    raise _unfinished(operations, names, "is still being removed")


async def _pause(arm: ArmClient, number: int) -> None:
    """Wait before the next reading, longer each time: Azure counts the readings of all machines together."""
    await asyncio.sleep((await arm.settings()).poll_interval * min(1 + number / 2, MAX_PAUSE_FACTOR))


def _unfinished(operations: str, names: tuple[str, ...], problem: str) -> CloudCallFailed:
    return CloudCallFailed(f"{operations}.get", "Unfinished", TransientFailure("", f"{names[-1]} {problem}"))
