"""Looking at what is there: page by page, and complete only if every page came."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from stateward.drivers.aws.ec2_client import Calls
from stateward.drivers.aws.errors import CallFailed
from stateward.drivers.aws.machines import KEY_TAG, key_of, observation
from stateward.drivers.port import CallThrottled, MachineListing, Observation

PAGE = 1000
OURS: dict[str, object] = {"Name": "tag-key", "Values": [KEY_TAG]}
"""The filter for all that carries a key of ours."""

VALUES = 200
"""How many values a filter may have."""


class Look(Struct, frozen=True):
    """What was seen, and what kept us from seeing more."""

    seen: Sequence[Observation]
    failed: CallFailed | None = None

    def listing(self) -> MachineListing:
        """Return it as the port has it."""
        if self.failed is None:
            return MachineListing(self.seen, complete=True)
        trouble = self.failed.trouble
        after = trouble.retry_after_s if isinstance(trouble, CallThrottled) else 0.0
        return MachineListing(self.seen, complete=False, problem=str(self.failed), retry_after_s=after)


async def look(calls: Calls, keys: Collection[str] | None = None) -> Look:
    """Look at all machines of ours, or at those with some keys."""
    if keys is None:
        return await _pages(calls, OURS)
    wanted = sorted(set(keys))
    portions = [wanted[start : start + VALUES] for start in range(0, len(wanted), VALUES)]
    looks = await asyncio.gather(*(_pages(calls, having(portion)) for portion in portions))
    seen = [one for each in looks for one in each.seen if one.key in set(wanted)]
    return Look(seen, next((each.failed for each in looks if each.failed), None))


def having(keys: Sequence[str]) -> dict[str, object]:
    """Return the filter for what carries one of some keys."""
    return {"Name": f"tag:{KEY_TAG}", "Values": [_literal(key) for key in keys]}


async def _pages(calls: Calls, filtered: Mapping[str, object]) -> Look:
    seen: dict[str, Observation] = {}  # a machine may be on two pages if something came in between
    asked: dict[str, Any] = {"Filters": [filtered], "MaxResults": PAGE}
    while True:
        try:
            page = await calls.call("describe_instances", **asked)
        except CallFailed as failed:
            return Look(list(seen.values()), failed)
        machines = [one for reservation in page.get("Reservations", ()) for one in reservation["Instances"]]
        seen |= {one["InstanceId"]: observation(one) for one in machines if key_of(one)}
        if not page.get("NextToken"):
            return Look(list(seen.values()))
        asked["NextToken"] = page["NextToken"]


def _literal(value: str) -> str:
    """Keep a value from being read as a pattern."""
    return value.replace("\\", "\\\\").replace("*", "\\*").replace("?", "\\?")
