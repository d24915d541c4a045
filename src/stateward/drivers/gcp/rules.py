"""Security groups, which Compute Engine has no resource for: firewall rules for the machines with a tag.

The tag is the group's name. A group has one base rule that denies everything that comes in, also what a network would
allow by itself; it carries the record of the group. Each range of addresses that may come in, or be reached, has a rule
of a higher priority. If anything outbound is allowed, a rule denies the rest. The base rule is the first to be created
and the last to be deleted: in between the machines are closed, never open.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from stateward.drivers import port
from stateward.drivers.cloud.errors import CloudCallFailed, found_or_none, refusal
from stateward.drivers.cloud.networks import rules_of
from stateward.drivers.gcp.client import GceClient
from stateward.drivers.gcp.names import OWN_NAMES, last_part, name_of, read_record, write_record
from stateward.drivers.security_rules import ANY, SecurityRule

ALLOW_PRIORITY, DENY_PRIORITY = 1000, 65533
"""A lower number comes first. The rules that a default network has by itself are at 65534."""

EVERYWHERE = "0.0.0.0/0"
ICMP6 = "58"
"""The number of ICMP for IPv6, which has no name in Compute Engine."""


class SecurityGroups:
    """Finds, creates and removes the firewall rules of groups."""

    def __init__(self, calls: GceClient) -> None:
        self._calls = calls

    async def ensure(self, resource: port.CloudResource) -> port.Outcome:
        """Give a group exactly its rules; raises `CloudCallFailed`."""
        wanted = wanted_firewalls(resource, (await self._calls.settings()).region)
        present = await self._present(resource.key)
        tag = name_of(resource.key)
        changed = False
        try:
            for name, firewall in wanted.items():  # the base rule is the first
                changed |= await self._put(name, firewall, present.get(name))
        except CloudCallFailed as failed:
            if failed.why is not None and not present:  # a group whose rules are refused is not left behind
                await self._delete(await self._present(resource.key))
            raise
        surplus = {name: firewall for name, firewall in present.items() if name not in wanted}
        await self._delete(surplus)
        return (port.CallAccepted if changed or surplus else port.AlreadyDone)(resource.key, tag)

    async def remove(self, resource: port.CloudResource) -> port.Outcome:
        """Remove a group that no machine is in; raises `CloudCallFailed`."""
        tag, present = name_of(resource.key), await self._present(resource.key)
        if not present:
            return port.AlreadyDone(resource.key, tag)
        async for page in self._calls.pages("instances.aggregated_list", filter=f"labels.{tag}:*"):
            for zone in page.items.values():
                if zone.instances:
                    text = f"machine {zone.instances[0].name} is in the security group"
                    raise refusal("firewalls.delete", port.RefusalReason.IN_USE, text)
        await self._delete(present)
        return port.CallAccepted(resource.key, tag)

    async def listing(self, region: str) -> list[port.CloudResource]:
        """List the groups that were made for a region; raises `CloudCallFailed`."""
        resources = []
        async for page in self._calls.pages("firewalls.list", filter=OWN_NAMES):
            for firewall in page.items:
                record = read_record(firewall.description)
                if record is not None and record.region == region:
                    kind, network = port.ResourceKind.SECURITY_GROUP, last_part(firewall.network)
                    resources.append(
                        port.CloudResource(kind, record.key, record.name, network, native_id=firewall.name)
                    )
        return resources

    async def _present(self, key: str) -> dict[str, Any]:
        """Return the firewall rules of a group by name, of this key alone."""
        chosen = f'name eq "{name_of(key)}(-[0-9a-f]{{8}})?"'
        firewalls: dict[str, Any] = {}
        async for page in self._calls.pages("firewalls.list", filter=chosen):
            for firewall in page.items:
                record = read_record(firewall.description)
                if record is not None and record.key == key:
                    firewalls[str(firewall.name)] = firewall
        return firewalls

    async def _put(self, name: str, firewall: Mapping[str, object], present: Any) -> bool:  # noqa: ANN401
        """Create a rule, or change it; tells whether that was necessary."""
        if present is None:
            await self._calls.change("firewalls.insert", firewall_resource=firewall)
            return True
        if rule_of(present) == rule_of(type(present)(firewall)):
            return False
        await self._calls.change("firewalls.patch", firewall=name, firewall_resource=firewall)
        return True

    async def _delete(self, firewalls: Mapping[str, Any]) -> None:
        for name in sorted(firewalls, key=len, reverse=True):  # the base rule has the shortest name, and is the last
            await found_or_none(self._calls.change("firewalls.delete", firewall=name))


def wanted_firewalls(resource: port.CloudResource, region: str) -> dict[str, dict[str, object]]:
    """Return the firewall rules of a group by name; raises `BadInput` for bad rules."""
    rules, tag = rules_of(resource), name_of(resource.key)
    base: dict[str, object] = {
        "network": f"global/networks/{resource.within}",
        "description": write_record(resource, region),
        "target_tags": [tag],
        "disabled": False,
    }
    firewalls = {tag: {**base, "name": tag, **_deny("INGRESS")}}
    if any(not rule.inbound for rule in rules):
        name = f"{tag}-{_digest('EGRESS', 'denied')}"
        firewalls[name] = {**base, "name": name, **_deny("EGRESS")}
    grouped: defaultdict[tuple[bool, str], list[SecurityRule]] = defaultdict(list)
    for rule in sorted(rules):
        grouped[rule.inbound, rule.cidr].append(rule)
    for (inbound, cidr), allowed in grouped.items():
        direction, ranges = ("INGRESS", "source_ranges") if inbound else ("EGRESS", "destination_ranges")
        name = f"{tag}-{_digest(direction, cidr)}"
        how = {"direction": direction, "priority": ALLOW_PRIORITY, ranges: [cidr], "allowed": _allowed(allowed)}
        firewalls[name] = {**base, "name": name, **how}
    return firewalls


def rule_of(firewall: Any) -> list[object]:  # noqa: ANN401 - the library's type
    """Return what a firewall rule does, so that two can be compared."""
    sides = [
        sorted((entry.I_p_protocol, *sorted(entry.ports)) for entry in side)
        for side in (firewall.allowed, firewall.denied)
    ]
    ranges = [
        sorted(members) for members in (firewall.source_ranges, firewall.destination_ranges, firewall.target_tags)
    ]
    return [str(firewall.direction), int(firewall.priority), bool(firewall.disabled), *sides, *ranges]


def _deny(direction: str) -> dict[str, object]:
    ranges = "source_ranges" if direction == "INGRESS" else "destination_ranges"
    everything = [{"I_p_protocol": "all"}]
    return {"direction": direction, "priority": DENY_PRIORITY, ranges: [EVERYWHERE], "denied": everything}


def _allowed(rules: Iterable[SecurityRule]) -> list[dict[str, object]]:
    ports: defaultdict[str, list[str]] = defaultdict(list)
    for rule in rules:
        is_icmp6 = rule.protocol == "icmp" and ":" in rule.cidr
        ports[ICMP6 if is_icmp6 else rule.protocol].append(rule.ports)
    return [_permission(protocol, ranges) for protocol, ranges in sorted(ports.items())]


def _permission(protocol: str, ports: list[str]) -> dict[str, object]:
    """Return what a rule allows; no ports mean all of them."""
    named: dict[str, object] = {"I_p_protocol": "all" if protocol == ANY else protocol}
    return named if "" in ports else named | {"ports": ports}


def _digest(*words: str) -> str:
    return sha256(" ".join(words).encode()).hexdigest()[:8]
