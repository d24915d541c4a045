"""Adoption of EC2 instances: our tag is put on an instance of others, and taken off again."""

from collections.abc import Mapping
from typing import Any

from stateward.drivers.aws.ec2_client import Ec2Client
from stateward.drivers.aws.instances import describe_instances
from stateward.drivers.aws.machines import GONE, KEY_TAG, observation
from stateward.drivers.cloud.errors import CloudCallFailed
from stateward.drivers.port import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    MachineHandle,
    Observation,
    Outcome,
    RefusalReason,
)


async def adopt_instance(calls: Ec2Client, handle: MachineHandle) -> Outcome:
    """Put a key on an instance that carries none."""
    native = handle.native_id or ""
    try:
        shown = await _describe(calls, native)
        if shown is None or shown.state in GONE:
            state = "there is no machine" if shown is None else f"{shown.native_state}:"
            return CallRefused(handle.key, RefusalReason.NOT_FOUND, f"{state} {native}")
        if shown.key:
            return _marked(handle, shown)
        await calls.call("create_tags", Resources=[native], Tags=[{"Key": KEY_TAG, "Value": handle.key}])
    except CloudCallFailed as failed:
        return failed.outcome_for(handle.key)
    return CallAccepted(handle.key, native)


async def release_instance(calls: Ec2Client, handle: MachineHandle) -> Outcome:
    """Take a key off the instance that carries it.

    EC2 removes a tag only if its value is the one of the call, so a known instance needs no listing: the listing may
    be older than the tag.
    """
    native = handle.native_id
    if not native:
        found = await describe_instances(calls, [handle.key])
        if found.failed is not None:
            return found.failed.outcome_for(handle.key)
        native = next((one.native_id for one in found.machines if one.state not in GONE), None)
    if native is None:
        return AlreadyDone(handle.key)
    try:
        await calls.call("delete_tags", Resources=[native], Tags=[{"Key": KEY_TAG, "Value": handle.key}])
    except CloudCallFailed as failed:
        return (
            AlreadyDone(handle.key, native) if failed.why is RefusalReason.NOT_FOUND else failed.outcome_for(handle.key)
        )
    return CallAccepted(handle.key, native)


async def _describe(calls: Ec2Client, native: str) -> Observation | None:
    answer: Mapping[str, Any] = await calls.call("describe_instances", InstanceIds=[native])
    shown = [one for reservation in answer.get("Reservations", ()) for one in reservation["Instances"]]
    return observation(shown[0]) if shown else None


def _marked(handle: MachineHandle, shown: Observation) -> Outcome:
    """Return the outcome of an adoption of an instance that carries a key."""
    if shown.key == handle.key:
        return AlreadyDone(handle.key, shown.native_id)
    return CallRefused(handle.key, RefusalReason.CONFLICT, f"{shown.native_id} carries another key, {shown.key!r}")
