"""Listings of EC2 instances, and actions on them in bulk.

A listing comes page by page; without one of its pages it is incomplete. EC2 carries out an action on all instances of a
call or on none: one missing instance fails the call for all. Mostly the message names the bad ones, and the call is
repeated without them. Otherwise the portion is halved.
"""

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from stateward.drivers.aws.ec2_client import Ec2Client
from stateward.drivers.aws.machines import ACTION_CALLS, GONE, KEY_TAG, already_done_ids, key_of, observation
from stateward.drivers.cloud.errors import CloudCallFailed
from stateward.drivers.port import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    MachineAction,
    MachineHandle,
    MachineListing,
    Observation,
    Outcome,
    RefusalReason,
)

PAGE_SIZE = 1000
OWN_FILTER: dict[str, object] = {"Name": "tag-key", "Values": [KEY_TAG]}
"""The filter for everything that carries one of our keys."""

MAX_FILTER_VALUES = 200
"""The maximum number of values of a filter."""


class DescribeResult(Struct, frozen=True):
    """The machines that were listed, and the failure that ended the listing, if any."""

    machines: Sequence[Observation]
    failed: CloudCallFailed | None = None

    def listing(self) -> MachineListing:
        """Return the result as the listing of the port."""
        if self.failed is None:
            return MachineListing(self.machines, complete=True)
        return self.failed.listing(self.machines)


async def describe_instances(calls: Ec2Client, keys: Collection[str] | None = None) -> DescribeResult:
    """List all our machines, or those with some keys."""
    if keys is None:
        return await _pages(calls, OWN_FILTER)
    wanted = sorted(set(keys))
    portions = [wanted[start : start + MAX_FILTER_VALUES] for start in range(0, len(wanted), MAX_FILTER_VALUES)]
    results = await asyncio.gather(*(_pages(calls, key_filter(portion)) for portion in portions))
    seen = [one for each in results for one in each.machines if one.key in set(wanted)]
    return DescribeResult(seen, next((each.failed for each in results if each.failed), None))


async def describe_unmarked(calls: Ec2Client) -> DescribeResult:
    """List the machines that carry no key of ours."""
    seen = await _pages(calls, None)
    return DescribeResult([one for one in seen.machines if not one.key and one.state not in GONE], seen.failed)


def key_filter(keys: Sequence[str]) -> dict[str, object]:
    """Return the filter for everything that carries one of these keys."""
    return {"Name": f"tag:{KEY_TAG}", "Values": [_literal(key) for key in keys]}


async def _pages(calls: Ec2Client, filtered: Mapping[str, object] | None) -> DescribeResult:
    """List the machines of a filter; without one, also those that carry no key."""
    only = {} if filtered is None else {"Filters": [filtered]}
    seen: dict[str, Observation] = {}  # a machine is on two pages if another was created meanwhile
    try:
        async for page in calls.pages("describe_instances", **only, MaxResults=PAGE_SIZE):
            machines = [one for reservation in page.get("Reservations", ()) for one in reservation["Instances"]]
            seen |= {one["InstanceId"]: observation(one) for one in machines if key_of(one) or not only}
    except CloudCallFailed as failed:
        return DescribeResult(list(seen.values()), failed)
    return DescribeResult(list(seen.values()))


def _literal(value: str) -> str:
    """Escape a value, so that EC2 does not read it as a pattern."""
    return value.replace("\\", "\\\\").replace("*", "\\*").replace("?", "\\?")


MAX_BULK = 100
MAX_REMEMBERED_REBOOTS = 10_000


class InstanceActions:
    """Carries out actions, and remembers the tokens of reboots, because EC2 would repeat a reboot."""

    def __init__(self, calls: Ec2Client) -> None:
        self._calls = calls
        self._rebooted: dict[str, str] = {}

    async def act(self, action: MachineAction, handles: Sequence[MachineHandle]) -> Sequence[Outcome]:
        """Carry out an action on machines; one outcome for each, in order."""
        found = await self._resolve([handle.key for handle in handles if not handle.native_id])
        known = {handle: handle.native_id or found.get(handle.key) for handle in handles}
        todo = [
            native
            for handle, native in known.items()
            if isinstance(native, str) and not self._is_repeated_reboot(action, handle, native)
        ]
        ids = list(dict.fromkeys(todo))
        portions = [ids[start : start + MAX_BULK] for start in range(0, len(ids), MAX_BULK)]
        done = await asyncio.gather(*(self._portion(action, portion) for portion in portions))
        ends = {native: end for each in done for native, end in each.items()}
        return [self._outcome(action, handle, known[handle], ends) for handle in handles]

    async def _resolve(self, keys: Sequence[str]) -> dict[str, str | CloudCallFailed]:
        """Find machines by their keys; a live one has priority over a terminated one."""
        seen = await describe_instances(self._calls, keys)
        found: dict[str, str | CloudCallFailed] = {} if seen.failed is None else dict.fromkeys(keys, seen.failed)
        for one in sorted(seen.machines, key=lambda one: one.state not in GONE):
            found[one.key] = one.native_id
        return found

    async def _portion(self, action: MachineAction, ids: Sequence[str]) -> dict[str, bool | CloudCallFailed]:
        """Carry out an action on some instances; returns for each whether it was done already, or the failure."""
        if not ids:
            return {}
        try:
            answer = await self._calls.call(ACTION_CALLS[action].call, InstanceIds=list(ids))
        except CloudCallFailed as failed:
            if len(ids) == 1 or failed.why in (None, RefusalReason.AUTH):
                return dict.fromkeys(ids, failed)
            bad = ids_in_text(failed.outcome.message, ids)
            if bad:
                others = await self._portion(action, [one for one in ids if one not in bad])
                return {**others, **dict.fromkeys(bad, failed)}
            half = len(ids) // 2
            first, second = await asyncio.gather(self._portion(action, ids[:half]), self._portion(action, ids[half:]))
            return {**first, **second}
        before = already_done_ids(action, answer)
        return {one: one in before for one in ids}

    def _outcome(
        self,
        action: MachineAction,
        handle: MachineHandle,
        native: str | CloudCallFailed | None,
        ends: dict[str, bool | CloudCallFailed],
    ) -> Outcome:
        if native is None:
            return CallRefused(handle.key, RefusalReason.NOT_FOUND, f"no machine carries the key {handle.key!r}")
        end = native if isinstance(native, CloudCallFailed) else ends.get(native, True)
        if isinstance(end, CloudCallFailed):
            return end.outcome_for(handle.key)
        assert isinstance(native, str)
        if action is MachineAction.REBOOT:
            self._remember(handle, native)
        return AlreadyDone(handle.key, native) if end else CallAccepted(handle.key, native)

    def _is_repeated_reboot(self, action: MachineAction, handle: MachineHandle, native: str) -> bool:
        return action is MachineAction.REBOOT and bool(handle.token) and self._rebooted.get(native) == handle.token

    def _remember(self, handle: MachineHandle, native: str) -> None:
        self._rebooted.pop(native, None)
        self._rebooted[native] = handle.token
        if len(self._rebooted) > MAX_REMEMBERED_REBOOTS:
            del self._rebooted[next(iter(self._rebooted))]


def ids_in_text(message: str, ids: Sequence[str]) -> set[str]:
    """Return the instances that a message names."""
    return set(re.findall(r"[\w-]+", message)) & set(ids)
