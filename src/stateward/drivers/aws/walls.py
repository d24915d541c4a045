"""The rules of security groups, brought to what is wanted: what is missing is added, again if need be."""

from collections.abc import Mapping
from typing import Any

from stateward.drivers.aws.calls import Calls
from stateward.drivers.aws.errors import CallFailed
from stateward.drivers.aws.rules import EVERYTHING_OUT, Rule, permissions_of, present_rules, wanted_rules
from stateward.drivers.port import Part, Refused, Why
from stateward.errors import BadInput


class Walls:
    """Brings groups to their rules."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def check(self, part: Part) -> set[Rule]:
        """Read the rules that a group is to have; raises `CallFailed` before anything is made."""
        try:
            return wanted_rules(part.facts.get("rules", ""))
        except BadInput as error:
            raise CallFailed("rules", "BadInput", Refused(part.key, Why.INVALID, str(error))) from None

    async def complete(self, part: Part, group: Mapping[str, Any]) -> bool:
        """Add the rules that a group lacks; whether there were any."""
        wanted, present = self.check(part), present_rules(group)
        native, missing = str(group["GroupId"]), wanted - present
        await self._add("authorize_security_group_ingress", native, {rule for rule in missing if rule.inbound})
        await self._add("authorize_security_group_egress", native, {rule for rule in missing if not rule.inbound})
        # Who says what may go out does not mean everything.
        open_door = present & EVERYTHING_OUT - wanted if any(not rule.inbound for rule in wanted) else set()
        if open_door:
            await self._calls.call(
                "revoke_security_group_egress", GroupId=native, IpPermissions=permissions_of(open_door)
            )
        return bool(missing or open_door)

    async def _add(self, call: str, native: str, rules: set[Rule]) -> None:
        if not rules:
            return
        try:
            await self._calls.call(call, GroupId=native, IpPermissions=permissions_of(rules))
        except CallFailed as failed:
            if failed.code != "InvalidPermission.Duplicate":
                raise
            for rule in rules if len(rules) > 1 else ():  # one of them is there by now: the others may not be
                await self._add(call, native, {rule})
