"""The rules of network security groups: from the port's rules to Azure's, and back.

A group is closed: it lets in what its rules name, and nothing else, not even from its own network. A group with
outbound rules lets out only those. Azure's own default rules would allow more, so a rule of the lowest priority denies
the rest.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from stateward.drivers.azure.names import properties_of
from stateward.drivers.security_rules import ALL_PORTS, ANY, SecurityRule

FIRST_PRIORITY, LAST_PRIORITY = 100, 4096
PROTOCOL_NAMES = {"tcp": "Tcp", "udp": "Udp", "icmp": "Icmp", ANY: "*"}
PROTOCOLS_BY_NAME = {name.lower(): protocol for protocol, name in PROTOCOL_NAMES.items()}
DIRECTION_NAMES = {True: "Inbound", False: "Outbound"}
DENY_PREFIX = "stateward-deny-"


def group_rules(rules: Iterable[SecurityRule]) -> list[dict[str, object]]:
    """Return all rules of a new group, as Azure has them."""
    return missing_rules(set(rules), {})


def missing_rules(wanted: set[SecurityRule], group: Mapping[str, Any]) -> list[dict[str, object]]:
    """Return the rules that a group lacks, as Azure has them, each with a priority that is free."""
    listed = properties_of(group).get("securityRules") or ()
    present, names = (
        {rule for record in listed for rule in _rules_of(record)},
        {str(record.get("name")) for record in listed},
    )
    taken = {(properties_of(record).get("direction"), properties_of(record).get("priority")) for record in listed}
    made: list[dict[str, object]] = []
    for inbound, direction in DIRECTION_NAMES.items():
        free = (number for number in range(FIRST_PRIORITY, LAST_PRIORITY) if (direction, number) not in taken)
        lacking = sorted(rule for rule in wanted - present if rule.inbound is inbound)
        made += [_allow(rule, priority) for rule, priority in zip(lacking, free, strict=False)]
        is_restricted = inbound or any(not rule.inbound for rule in wanted)
        if is_restricted and f"{DENY_PREFIX}{direction.lower()}" not in names:
            made.append(_deny(direction))
    return made


def surplus_rules(wanted: set[SecurityRule], group: Mapping[str, Any]) -> list[str]:
    """Return the names of the rules that a group has beside the wanted ones, and beside those that deny the rest."""
    denied = [inbound for inbound in DIRECTION_NAMES if inbound or any(not rule.inbound for rule in wanted)]
    names = {f"{DENY_PREFIX}{DIRECTION_NAMES[inbound].lower()}" for inbound in denied}
    listed = properties_of(group).get("securityRules") or ()
    return [
        str(record["name"])
        for record in listed
        if record["name"] not in names and not wanted.intersection(_rules_of(record))
    ]


def present_rules(group: Mapping[str, Any]) -> set[SecurityRule]:
    """Return the rules that a group has, without those that deny."""
    return {rule for record in properties_of(group).get("securityRules") or () for rule in _rules_of(record)}


def rule_name(rule: SecurityRule) -> str:
    """Return the name of a rule, which follows from its content."""
    return f"stateward-{sha256(repr(tuple(rule)).encode()).hexdigest()[:16]}"


def _allow(rule: SecurityRule, priority: int) -> dict[str, object]:
    inbound = rule.inbound
    return _rule(
        rule_name(rule),
        access="Allow",
        direction=DIRECTION_NAMES[inbound],
        priority=priority,
        protocol=PROTOCOL_NAMES[rule.protocol],
        sourceAddressPrefix=rule.cidr if inbound else "*",
        destinationAddressPrefix="*" if inbound else rule.cidr,
        destinationPortRange=rule.ports or "*",
    )


def _deny(direction: str) -> dict[str, object]:
    return _rule(
        f"{DENY_PREFIX}{direction.lower()}",
        access="Deny",
        direction=direction,
        priority=LAST_PRIORITY,
        protocol="*",
        sourceAddressPrefix="*",
        destinationAddressPrefix="*",
        destinationPortRange="*",
    )


def _rule(name: str, **properties: object) -> dict[str, object]:
    return {"name": name, "properties": {**properties, "sourcePortRange": "*"}}


def _rules_of(listed: Mapping[str, Any]) -> Iterable[SecurityRule]:
    properties = properties_of(listed)
    protocol = PROTOCOLS_BY_NAME.get(str(properties.get("protocol", "")).lower())
    if properties.get("access") != "Allow" or protocol is None:
        return
    inbound = properties.get("direction") == DIRECTION_NAMES[True]
    cidr = str(properties.get("sourceAddressPrefix" if inbound else "destinationAddressPrefix") or "")
    first, last = _ports(str(properties.get("destinationPortRange") or "*"), protocol)
    yield SecurityRule(inbound, protocol, first, last, cidr)


def _ports(text: str, protocol: str) -> tuple[int, int]:
    if protocol in (ANY, "icmp"):
        return -1, -1
    if text == "*":
        return ALL_PORTS
    first, _, last = text.partition("-")
    return int(first), int(last or first)
