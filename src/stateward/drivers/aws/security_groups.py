"""The rules of security groups: from JSON to EC2's permissions, and the calls that add the missing ones.

A rule is `{"direction", "protocol", "ports", "cidr"}`; ports may be many (`"22,900-1000"`), and none means all of them.
"""

from collections.abc import Iterable, Mapping
from ipaddress import ip_network
from typing import Any, NamedTuple

import msgspec

from stateward.drivers.aws.ec2_client import Ec2Client
from stateward.drivers.aws.errors import Ec2CallFailed
from stateward.drivers.port import CallRefused, CloudResource, RefusalReason
from stateward.errors import BadInput

ANY = "-1"
PROTOCOLS = {"tcp": "tcp", "udp": "udp", "icmp": "icmp", "all": ANY, "any": ANY, "*": ANY, ANY: ANY, "": ANY}
DIRECTIONS = {"inbound": True, "ingress": True, "outbound": False, "egress": False}
ALL_PORTS = (0, 65535)


class RuleSpec(msgspec.Struct, frozen=True, rename=str.lower):
    """A rule as it is written in a resource's facts."""

    direction: str = "inbound"
    protocol: str = "tcp"
    ports: str = ""
    cidr: str = "0.0.0.0/0"


class SecurityRule(NamedTuple):
    """One rule: direction, protocol, a range of ports and a range of addresses."""

    inbound: bool
    protocol: str
    first: int
    last: int
    cidr: str


DEFAULT_EGRESS = {SecurityRule(False, ANY, -1, -1, "0.0.0.0/0"), SecurityRule(False, ANY, -1, -1, "::/0")}
"""The outbound rules that EC2 adds to a new group."""


def wanted_rules(text: str) -> set[SecurityRule]:
    """Read rules from JSON; raises `BadInput` for bad ones."""
    try:
        written = msgspec.json.decode(text or "[]", type=list[RuleSpec])
    except msgspec.DecodeError as error:
        raise BadInput("rules", text, f"a list of rules ({error})") from None
    return {rule for one in written for rule in _rules(one)}


def present_rules(group: Mapping[str, Any]) -> set[SecurityRule]:
    """Return the rules that a group has."""
    sides = ((True, group.get("IpPermissions", ())), (False, group.get("IpPermissionsEgress", ())))
    return {rule for inbound, permissions in sides for one in permissions for rule in _rules_of(inbound, one)}


def permissions_of(rules: Iterable[SecurityRule]) -> list[dict[str, object]]:
    """Return rules as the permissions of an EC2 call."""
    return [_permission(rule) for rule in sorted(rules)]


def _rules(written: RuleSpec) -> Iterable[SecurityRule]:
    protocol, inbound = PROTOCOLS.get(written.protocol.lower()), DIRECTIONS.get(written.direction.lower())
    if protocol is None:
        raise BadInput("protocol", written.protocol, "tcp, udp, icmp or all")
    if inbound is None:
        raise BadInput("direction", written.direction, "inbound or outbound")
    try:
        cidr = str(ip_network(written.cidr, strict=False))
    except ValueError:
        raise BadInput("cidr", written.cidr, "a range of addresses") from None
    for first, last in _ranges(written.ports, protocol):
        yield SecurityRule(inbound, protocol, first, last, cidr)


def _ranges(ports: str, protocol: str) -> Iterable[tuple[int, int]]:
    if protocol in (ANY, "icmp"):
        return [(-1, -1)]
    if ports.strip() in ("", "*", "-1"):
        return [ALL_PORTS]
    return [_range(one.strip()) for one in ports.split(",")]


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    if first.isdecimal() and (last or first).isdecimal() and 0 <= int(first) <= int(last or first) <= ALL_PORTS[1]:
        return int(first), int(last or first)
    raise BadInput("ports", text, "a port or a range of ports")


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
