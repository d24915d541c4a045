"""Listings of EC2 instances, page by page; a listing without one of its pages is incomplete."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from stateward.drivers.aws.ec2_client import Ec2Client
from stateward.drivers.aws.errors import Ec2CallFailed
from stateward.drivers.aws.machines import KEY_TAG, key_of, observation
from stateward.drivers.port import CallThrottled, MachineListing, Observation

PAGE_SIZE = 1000
OWN_FILTER: dict[str, object] = {"Name": "tag-key", "Values": [KEY_TAG]}
"""The filter for everything that carries one of our keys."""

MAX_FILTER_VALUES = 200
"""The maximum number of values of a filter."""


class DescribeResult(Struct, frozen=True):
    """The machines that were listed, and the failure that ended the listing, if any."""

    machines: Sequence[Observation]
    failed: Ec2CallFailed | None = None

    def listing(self) -> MachineListing:
        """Return the result as the listing of the port."""
        if self.failed is None:
            return MachineListing(self.machines, complete=True)
        outcome = self.failed.outcome
        after = outcome.retry_after_s if isinstance(outcome, CallThrottled) else 0.0
        return MachineListing(self.machines, complete=False, problem=str(self.failed), retry_after_s=after)


async def describe_instances(calls: Ec2Client, keys: Collection[str] | None = None) -> DescribeResult:
    """List all our machines, or those with some keys."""
    if keys is None:
        return await _pages(calls, OWN_FILTER)
    wanted = sorted(set(keys))
    portions = [wanted[start : start + MAX_FILTER_VALUES] for start in range(0, len(wanted), MAX_FILTER_VALUES)]
    results = await asyncio.gather(*(_pages(calls, key_filter(portion)) for portion in portions))
    seen = [one for each in results for one in each.machines if one.key in set(wanted)]
    return DescribeResult(seen, next((each.failed for each in results if each.failed), None))


def key_filter(keys: Sequence[str]) -> dict[str, object]:
    """Return the filter for everything that carries one of these keys."""
    return {"Name": f"tag:{KEY_TAG}", "Values": [_literal(key) for key in keys]}


async def _pages(calls: Ec2Client, filtered: Mapping[str, object]) -> DescribeResult:
    seen: dict[str, Observation] = {}  # a machine is on two pages if another was created meanwhile
    try:
        async for page in calls.pages("describe_instances", Filters=[filtered], MaxResults=PAGE_SIZE):
            machines = [one for reservation in page.get("Reservations", ()) for one in reservation["Instances"]]
            seen |= {one["InstanceId"]: observation(one) for one in machines if key_of(one)}
    except Ec2CallFailed as failed:
        return DescribeResult(list(seen.values()), failed)
    return DescribeResult(list(seen.values()))


def _literal(value: str) -> str:
    """Escape a value, so that EC2 does not read it as a pattern."""
    return value.replace("\\", "\\\\").replace("*", "\\*").replace("?", "\\?")
