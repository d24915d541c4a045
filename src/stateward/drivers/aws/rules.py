"""The rules of security groups as EC2's permissions, and the calls that make a group have exactly the wanted ones.

A group without outbound rules of its own lets everything out, by the rule that EC2 adds to each new group.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from stateward.drivers.aws.client import Ec2Client
from stateward.drivers.cloud.errors import CloudCallFailed
from stateward.drivers.cloud.networks import rules_of
from stateward.drivers.port import CloudResource
from stateward.drivers.security_rules import ANY, SecurityRule

DEFAULT_EGRESS = SecurityRule(False, ANY, -1, -1, "0.0.0.0/0")
DEFAULT_EGRESS_6 = SecurityRule(False, ANY, -1, -1, "::/0")
"""The outbound rules that EC2 adds to a new group; the second one only in a network with IPv6."""

REFERENCES = ("UserIdGroupPairs", "PrefixListIds")
"""The parts of a permission that refer to other groups and to lists of addresses; no wanted rule has them."""


def present_rules(group: Mapping[str, Any]) -> set[SecurityRule]:
    """Return the rules that a group has."""
    sides = ((True, group.get("IpPermissions", ())), (False, group.get("IpPermissionsEgress", ())))
    return {
        rule for inbound, permissions in sides for permission in permissions for rule in _rules_of(inbound, permission)
    }


def permissions_of(rules: Iterable[SecurityRule]) -> list[dict[str, object]]:
    """Return rules as the permissions of an EC2 call."""
    return [_permission(rule) for rule in sorted(rules)]


def _rules_of(inbound: bool, permission: Mapping[str, Any]) -> Iterable[SecurityRule]:
    protocol = str(permission.get("IpProtocol", ANY))
    first, last = int(permission.get("FromPort", -1)), int(permission.get("ToPort", -1))
    for ip_range in permission.get("IpRanges", ()):
        yield SecurityRule(inbound, protocol, first, last, ip_range["CidrIp"])
    for ip_range in permission.get("Ipv6Ranges", ()):
        yield SecurityRule(inbound, protocol, first, last, ip_range["CidrIpv6"])


def _permission(rule: SecurityRule) -> dict[str, object]:
    where = ("Ipv6Ranges", "CidrIpv6") if ":" in rule.cidr else ("IpRanges", "CidrIp")
    ports = {} if rule.protocol == ANY else {"FromPort": rule.first, "ToPort": rule.last}
    return {"IpProtocol": rule.protocol, **ports, where[0]: [{where[1]: rule.cidr}]}


async def complete_rules(calls: Ec2Client, resource: CloudResource, group: Mapping[str, Any]) -> bool:
    """Add the rules that a group lacks, and remove its other ones; returns whether anything was changed."""
    wanted, present, native = rules_of(resource), present_rules(group), str(group["GroupId"])
    kept: set[SecurityRule] = set()
    if all(rule.inbound for rule in wanted):
        wanted, kept = wanted | {DEFAULT_EGRESS}, {DEFAULT_EGRESS_6}
    missing, surplus = wanted - present, present - wanted - kept
    is_changed = bool(missing or surplus)
    for inbound, word, listed in ((True, "ingress", "IpPermissions"), (False, "egress", "IpPermissionsEgress")):
        new = {rule for rule in missing if rule.inbound is inbound}
        await _add(calls, f"authorize_security_group_{word}", native, new)
        old = permissions_of(rule for rule in surplus if rule.inbound is inbound)
        old += _references(group.get(listed, ()))
        if old:
            await _revoke(calls, f"revoke_security_group_{word}", native, old)
            is_changed = True
    return is_changed


def _references(permissions: Iterable[Mapping[str, Any]]) -> list[dict[str, object]]:
    """Return the parts of permissions that refer to other groups, or to lists of addresses."""
    ports = ("IpProtocol", "FromPort", "ToPort")
    return [
        {**{name: permission[name] for name in ports if name in permission}, reference: permission[reference]}
        for permission in permissions
        for reference in REFERENCES
        if permission.get(reference)
    ]


async def _revoke(calls: Ec2Client, call: str, native: str, permissions: list[dict[str, object]]) -> None:
    try:
        await calls.call(call, GroupId=native, IpPermissions=permissions)
    except CloudCallFailed as failed:
        if failed.code != "InvalidPermission.NotFound":
            raise
        # one of them is gone by now; the others may not be
        for permission in permissions if len(permissions) > 1 else ():
            await _revoke(calls, call, native, [permission])


async def _add(calls: Ec2Client, call: str, native: str, rules: set[SecurityRule]) -> None:
    if not rules:
        return
    try:
        await calls.call(call, GroupId=native, IpPermissions=permissions_of(rules))
    except CloudCallFailed as failed:
        if failed.code != "InvalidPermission.Duplicate":
            raise
        for rule in rules if len(rules) > 1 else ():  # one of them exists by now; the others may not
            await _add(calls, call, native, {rule})
