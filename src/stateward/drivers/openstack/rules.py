"""The rules of security groups as Neutron's, and the calls that make a group have the wanted ones.

A new group of Neutron lets nothing in and everything out, by two rules that Neutron adds by itself. A group with
outbound rules of its own has those instead.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from stateward.drivers.cloud.errors import CloudCallFailed, found_or_none
from stateward.drivers.cloud.networks import rules_of
from stateward.drivers.openstack.client import ApiCall, OpenStackClient
from stateward.drivers.port import CloudResource
from stateward.drivers.security_rules import ALL_PORTS, ANY, SecurityRule

EVERYWHERE = {"IPv4": "0.0.0.0/0", "IPv6": "::/0"}
DEFAULT_EGRESS = {SecurityRule(False, ANY, -1, -1, cidr) for cidr in EVERYWHERE.values()}
"""The outbound rules that Neutron adds to a new group."""

EXISTS = "SecurityGroupRuleExists"


def rule_body(group: str, rule: SecurityRule) -> dict[str, object]:
    """Return a rule as Neutron creates it."""
    family = "IPv6" if ":" in rule.cidr else "IPv4"
    body: dict[str, object] = {
        "security_group_id": group,
        "direction": "ingress" if rule.inbound else "egress",
        "ethertype": family,
        "remote_ip_prefix": rule.cidr,
    }
    if rule.protocol != ANY:
        body["protocol"] = "ipv6-icmp" if (rule.protocol, family) == ("icmp", "IPv6") else rule.protocol
    if rule.protocol in ("tcp", "udp") and (rule.first, rule.last) != ALL_PORTS:
        body |= {"port_range_min": max(rule.first, 1), "port_range_max": rule.last}  # Neutron has no port 0
    return {"security_group_rule": body}


def present_rules(group: Mapping[str, Any]) -> dict[SecurityRule, str]:
    """Return the rules that a group has, with their ids, without those that refer to others."""
    return {
        _rule_of(record): str(record["id"])
        for record in group.get("security_group_rules", ())
        if not (record.get("remote_group_id") or record.get("remote_address_group_id"))  # for others: no wanted rule is
    }


def _rule_of(shown: Mapping[str, Any]) -> SecurityRule:
    protocol = {None: ANY, "ipv6-icmp": "icmp", "icmpv6": "icmp"}.get(shown.get("protocol"), str(shown.get("protocol")))
    inbound, cidr = shown["direction"] == "ingress", shown.get("remote_ip_prefix") or EVERYWHERE[shown["ethertype"]]
    first, last = shown.get("port_range_min"), shown.get("port_range_max")
    if protocol in (ANY, "icmp"):
        return SecurityRule(inbound, protocol, -1, -1, cidr)
    return SecurityRule(
        inbound, protocol, ALL_PORTS[0] if first is None else first, ALL_PORTS[1] if last is None else last, cidr
    )


def _as_shown(rules: Iterable[SecurityRule]) -> dict[SecurityRule, SecurityRule]:
    """Return rules by how Neutron shows them once they are there."""
    return {_rule_of(rule_body("", rule)["security_group_rule"]): rule for rule in rules}  # type: ignore[arg-type]


async def complete_rules(calls: OpenStackClient, resource: CloudResource, group: Mapping[str, Any]) -> bool:
    """Add the rules that a group lacks, and delete its other ones; returns whether there were any."""
    rules, present, native = rules_of(resource), present_rules(group), str(group["id"])
    wanted = _as_shown(rules | DEFAULT_EGRESS if all(rule.inbound for rule in rules) else rules)
    missing = [rule for shown, rule in sorted(wanted.items()) if shown not in present]
    for rule in missing:
        path, body = "/security-group-rules", rule_body(native, rule)
        try:
            await calls.call(ApiCall("CreateSecurityGroupRule", "network", "POST", path, body))
        except CloudCallFailed as failed:
            if failed.code != EXISTS:
                raise
    kept = {present[rule] for rule in present.keys() & wanted.keys()}
    surplus = [id_ for record in group.get("security_group_rules", ()) if (id_ := str(record["id"])) not in kept]
    for id_ in surplus:
        call = ApiCall("DeleteSecurityGroupRule", "network", "DELETE", f"/security-group-rules/{id_}")
        await found_or_none(calls.call(call))
    return bool(missing or surplus)
