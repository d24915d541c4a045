"""Actions on EC2 instances in bulk: one bad instance does not fail the call for the others.

EC2 does all or nothing: a call with one missing instance fails for all. Mostly the message names the bad instances; the
call is repeated without them. If it does not, the portion is halved.
"""

import asyncio
import re
from collections.abc import Sequence

from stateward.drivers.aws.ec2_client import Ec2Client
from stateward.drivers.aws.errors import Ec2CallFailed
from stateward.drivers.aws.instance_listing import describe_instances
from stateward.drivers.aws.machines import ACTION_CALLS, GONE, already_done_ids
from stateward.drivers.port import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    MachineAction,
    MachineHandle,
    Outcome,
    RefusalReason,
)

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

    async def _resolve(self, keys: Sequence[str]) -> dict[str, str | Ec2CallFailed]:
        """Find machines by their keys; a live one has priority over a terminated one."""
        seen = await describe_instances(self._calls, keys)
        found: dict[str, str | Ec2CallFailed] = {} if seen.failed is None else dict.fromkeys(keys, seen.failed)
        for one in sorted(seen.machines, key=lambda one: one.state not in GONE):
            found[one.key] = one.native_id
        return found

    async def _portion(self, action: MachineAction, ids: Sequence[str]) -> dict[str, bool | Ec2CallFailed]:
        """Carry out an action on some instances; returns for each whether it was done already, or the failure."""
        if not ids:
            return {}
        try:
            answer = await self._calls.call(ACTION_CALLS[action].call, InstanceIds=list(ids))
        except Ec2CallFailed as failed:
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
        native: str | Ec2CallFailed | None,
        ends: dict[str, bool | Ec2CallFailed],
    ) -> Outcome:
        if native is None:
            return CallRefused(handle.key, RefusalReason.NOT_FOUND, f"no machine carries the key {handle.key!r}")
        end = native if isinstance(native, Ec2CallFailed) else ends.get(native, True)
        if isinstance(end, Ec2CallFailed):
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
