"""The rules of one security group: what is added and what is deleted. It needs no Nova; the contract suite does."""

import json
from itertools import count
from typing import Any

from stateward.drivers import CallRefused, CloudResource, RefusalReason, ResourceKind
from stateward.drivers.cloud.errors import CloudCallFailed
from stateward.drivers.openstack.client import ApiCall, OpenStackClient
from stateward.drivers.openstack.rules import EXISTS, complete_rules

SSH = {"ports": "22", "cidr": "10.0.0.0/8"}
WEB = {"ports": "80,8000-8080", "cidr": "0.0.0.0/0"}
OUTBOUND = {"direction": "outbound", "protocol": "udp", "ports": "53", "cidr": "10.0.0.0/8"}


class RulesOfGroup:
    """The rules of a new group in Neutron's form: it has two, which let everything out."""

    def __init__(self) -> None:
        self._ids = count(1)
        self.rules: dict[str, dict[str, Any]] = {}
        for family in ("IPv4", "IPv6"):
            self._add({"security_group_id": "g", "direction": "egress", "ethertype": family})

    def _add(self, body: dict[str, Any]) -> None:
        if body in self.rules.values():
            raise CloudCallFailed("create", EXISTS, CallRefused("", RefusalReason.CONFLICT, "it exists"))
        self.rules[str(next(self._ids))] = body

    async def call(self, call: ApiCall) -> None:
        if call.method == "POST":
            body: Any = call.body
            self._add(body["security_group_rule"])
        elif self.rules.pop(call.path.rpartition("/")[2], None) is None:
            raise CloudCallFailed("delete", "NotFound", CallRefused("", RefusalReason.NOT_FOUND, "it is gone"))

    def shown(self) -> dict[str, Any]:
        return {"id": "g", "security_group_rules": [{"id": id_, **one} for id_, one in self.rules.items()]}


async def complete(group: RulesOfGroup, *rules: dict[str, str], shown: dict[str, Any] | None = None) -> bool:
    """Give a group rules; returns whether that changed it."""
    resource = CloudResource(ResourceKind.SECURITY_GROUP, "key", "group", "", {"rules": json.dumps(rules)})
    calls: OpenStackClient = group  # type: ignore[assignment]
    return await complete_rules(calls, resource, shown or group.shown())


async def test_a_group_gets_exactly_the_wanted_rules() -> None:
    group = RulesOfGroup()
    assert not await complete(group)
    for rules, number in (((SSH, WEB), 5), ((SSH,), 3), ((SSH, WEB), 5), ((WEB, OUTBOUND), 3), ((OUTBOUND,), 1)):
        assert await complete(group, *rules), rules
        assert not await complete(group, *reversed(rules)), rules
        assert len(group.rules) == number
    assert await complete(group)
    assert {(one["direction"], one["remote_ip_prefix"]) for one in group.rules.values()} == {
        ("egress", "0.0.0.0/0"),
        ("egress", "::/0"),
    }


async def test_a_rule_for_another_group_is_deleted_and_one_that_is_gone_is_no_error() -> None:
    group = RulesOfGroup()
    group.rules["foreign"] = {"direction": "ingress", "ethertype": "IPv4", "remote_group_id": "other"}
    before = group.shown()
    assert await complete(group, SSH)
    assert "foreign" not in group.rules
    assert await complete(group, SSH, shown=before)
    assert not await complete(group, SSH)
