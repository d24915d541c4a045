"""The rules of security groups as EC2's permissions, and the calls that add the missing ones."""

from collections.abc import Iterable, Mapping
from typing import Any

from stateward.drivers.aws.ec2_client import Ec2Client
from stateward.drivers.aws.errors import Ec2CallFailed
from stateward.drivers.port import CallRefused, CloudResource, RefusalReason
from stateward.drivers.security_rules import ANY, SecurityRule, wanted_rules
from stateward.errors import BadInput

DEFAULT_EGRESS = {SecurityRule(False, ANY, -1, -1, "0.0.0.0/0"), SecurityRule(False, ANY, -1, -1, "::/0")}
"""The outbound rules that EC2 adds to a new group."""


def present_rules(group: Mapping[str, Any]) -> set[SecurityRule]:
    """Return the rules that a group has."""
    sides = ((True, group.get("IpPermissions", ())), (False, group.get("IpPermissionsEgress", ())))
    return {rule for inbound, permissions in sides for one in permissions for rule in _rules_of(inbound, one)}


def permissions_of(rules: Iterable[SecurityRule]) -> list[dict[str, object]]:
    """Return rules as the permissions of an EC2 call."""
    return [_permission(rule) for rule in sorted(rules)]


def _rules_of(inbound: bool, permission: Mapping[str, Any]) -> Iterable[SecurityRule]:
    protocol = str(permission.get("IpProtocol", ANY))
    first, last = int(permission.get("FromPort", -1)), int(permission.get("ToPort", -1))
    for one in permission.get("IpRanges", ()):
        yield SecurityRule(inbound, protocol, first, last, one["CidrIp"])
    for one in permission.get("Ipv6Ranges", ()):
        yield SecurityRule(inbound, protocol, first, last, one["CidrIpv6"])


def _permission(rule: SecurityRule) -> dict[str, object]:
    where = ("Ipv6Ranges", "CidrIpv6") if ":" in rule.cidr else ("IpRanges", "CidrIp")
    ports = {} if rule.protocol == ANY else {"FromPort": rule.first, "ToPort": rule.last}
    return {"IpProtocol": rule.protocol, **ports, where[0]: [{where[1]: rule.cidr}]}


def rules_of(resource: CloudResource) -> set[SecurityRule]:
    """Read the rules that a group must have; raises `Ec2CallFailed` for bad ones."""
    try:
        return wanted_rules(resource.facts.get("rules", ""))
    except BadInput as error:
        refusal = CallRefused(resource.key, RefusalReason.INVALID, str(error))
        raise Ec2CallFailed("rules", "BadInput", refusal) from None


async def add_missing_rules(calls: Ec2Client, resource: CloudResource, group: Mapping[str, Any]) -> bool:
    """Add the rules that a group lacks; returns whether there were any."""
    wanted, present = rules_of(resource), present_rules(group)
    native, missing = str(group["GroupId"]), wanted - present
    await _add(calls, "authorize_security_group_ingress", native, {rule for rule in missing if rule.inbound})
    await _add(calls, "authorize_security_group_egress", native, {rule for rule in missing if not rule.inbound})
    # A group with outbound rules allows only those, so the rule that EC2 adds by itself is removed.
    surplus = present & DEFAULT_EGRESS - wanted if any(not rule.inbound for rule in wanted) else set()
    if surplus:
        await calls.call("revoke_security_group_egress", GroupId=native, IpPermissions=permissions_of(surplus))
    return bool(missing or surplus)


async def _add(calls: Ec2Client, call: str, native: str, rules: set[SecurityRule]) -> None:
    if not rules:
        return
    try:
        await calls.call(call, GroupId=native, IpPermissions=permissions_of(rules))
    except Ec2CallFailed as failed:
        if failed.code != "InvalidPermission.Duplicate":
            raise
        for rule in rules if len(rules) > 1 else ():  # one of them exists by now; the others may not
            await _add(calls, call, native, {rule})
