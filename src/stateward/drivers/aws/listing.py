"""Listings of EC2 instances, page by page; without one of its pages a listing is incomplete."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from stateward.drivers.aws.client import Ec2Client
from stateward.drivers.aws.states import key_of, observation
from stateward.drivers.cloud.errors import CloudCallFailed
from stateward.drivers.cloud.machines import GONE, KEY_TAG, FoundMachines
from stateward.drivers.port import Observation

PAGE_SIZE = 1000
OWN_FILTER: dict[str, object] = {"Name": "tag-key", "Values": [KEY_TAG]}
"""The filter for everything that carries one of our keys."""

MAX_FILTER_VALUES = 200
"""The maximum number of values of a filter."""


async def describe_instances(calls: Ec2Client, keys: Collection[str] | None = None) -> FoundMachines:
    """List all our machines, or those with some keys."""
    if keys is None:
        return await _pages(calls, OWN_FILTER)
    wanted = sorted(set(keys))
    portions = [wanted[start : start + MAX_FILTER_VALUES] for start in range(0, len(wanted), MAX_FILTER_VALUES)]
    results = await asyncio.gather(*(_pages(calls, key_filter(portion)) for portion in portions))
    seen = [machine for each in results for machine in each.machines if machine.key in set(wanted)]
    return FoundMachines(seen, next((each.failed for each in results if each.failed), None))


async def describe_unmarked(calls: Ec2Client) -> FoundMachines:
    """List the machines that carry no key of ours."""
    seen = await _pages(calls, None)
    return FoundMachines(
        [machine for machine in seen.machines if not machine.key and machine.state not in GONE], seen.failed
    )


def key_filter(keys: Sequence[str]) -> dict[str, object]:
    """Return the filter for everything that carries one of these keys."""
    return {
        "Name": f"tag:{KEY_TAG}",
        "Values": [key.replace("\\", "\\\\").replace("*", "\\*").replace("?", "\\?") for key in keys],
    }


async def _pages(calls: Ec2Client, filtered: Mapping[str, object] | None) -> FoundMachines:
    """List the machines of a filter; without one, also those that carry no key."""
    only = {} if filtered is None else {"Filters": [filtered]}
    seen: dict[str, Observation] = {}  # a machine is on two pages if another was created meanwhile
    try:
        async for page in calls.pages("describe_instances", **only, MaxResults=PAGE_SIZE):
            machines = [
                instance for reservation in page.get("Reservations", ()) for instance in reservation["Instances"]
            ]
            seen |= {
                instance["InstanceId"]: observation(instance) for instance in machines if key_of(instance) or not only
            }
    except CloudCallFailed as failed:
        return FoundMachines(list(seen.values()), failed)
    return FoundMachines(list(seen.values()))
