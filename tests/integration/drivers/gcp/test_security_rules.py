"""Rules of security groups as firewall rules: no more and no less than what was asked for."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stateward.drivers import CloudResource, ResourceKind
from stateward.drivers.gcp.rules import ALLOW_PRIORITY, rule_of, wanted_firewalls
from stateward.drivers.security_rules import wanted_rules

PORTS = st.tuples(st.integers(0, 65535), st.integers(0, 65535)).map(sorted)
RULE = st.fixed_dictionaries(
    {
        "direction": st.sampled_from(["inbound", "outbound"]),
        "protocol": st.sampled_from(["tcp", "udp", "icmp", "all"]),
        "ports": st.one_of(st.just(""), PORTS.map(lambda ports: f"{ports[0]}-{ports[1]}")),
        "cidr": st.sampled_from(["0.0.0.0/0", "10.0.0.0/8", "::/0"]),
    }
)


NAMES = {("-1", False): "all", ("-1", True): "all", ("icmp", True): "58"}


def firewalls(rules: str) -> list[Any]:
    group = CloudResource(ResourceKind.SECURITY_GROUP, "key", "group", "net", {"rules": rules})
    from google.cloud.compute_v1 import Firewall

    return [Firewall(one) for one in wanted_firewalls(group, "europe-west4").values()]


def opened(firewall: Any) -> set[tuple[str, str, str, str]]:
    (cidr,) = list(firewall.source_ranges) + list(firewall.destination_ranges)
    return {
        (firewall.direction, str(cidr), one.I_p_protocol, port)
        for one in firewall.allowed
        for port in (one.ports or ["0-65535"])
    }


@given(st.lists(RULE, max_size=8))
def test_what_is_opened_is_what_was_asked_for(written: list[dict[str, str]]) -> None:
    text = json.dumps(written)
    asked = {
        (
            "INGRESS" if rule.inbound else "EGRESS",
            rule.cidr,
            NAMES.get((rule.protocol, ":" in rule.cidr), rule.protocol),
            str(max(rule.first, 0)) if 0 <= rule.first == rule.last else f"{max(rule.first, 0)}-{rule.last % 65536}",
        )
        for rule in wanted_rules(text)
    }
    found = set[tuple[str, str, str, str]]().union(*(opened(one) for one in firewalls(text)))
    whole = {one[:3] for one in asked if one[3] == "0-65535"}  # all ports of a protocol include the others
    assert found == {one for one in asked if one[:3] not in whole or one[3] == "0-65535"}


@given(st.lists(RULE, max_size=8))
def test_every_group_denies_what_comes_in_and_an_outbound_rule_denies_the_rest(written: list[dict[str, str]]) -> None:
    denied = [one.direction for one in firewalls(json.dumps(written)) if one.denied and one.priority > ALLOW_PRIORITY]
    assert denied == ["INGRESS", "EGRESS"] if any(one["direction"] == "outbound" for one in written) else ["INGRESS"]


def test_a_rule_equals_itself_in_any_order() -> None:
    from google.cloud.compute_v1 import Firewall

    one, other = (
        Firewall(allowed=[{"I_p_protocol": "tcp", "ports": ports}], source_ranges=ranges)
        for ports, ranges in ((["1", "2"], ["::/0", "10.0.0.0/8"]), (["2", "1"], ["10.0.0.0/8", "::/0"]))
    )
    assert rule_of(one) == rule_of(other) != rule_of(Firewall(allowed=[{"I_p_protocol": "tcp", "ports": ["1"]}]))
