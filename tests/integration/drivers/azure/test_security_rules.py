"""Rules of security groups, there and back."""

from hypothesis import given
from hypothesis import strategies as st

from stateward.drivers.azure.rules import group_rules, missing_rules, present_rules
from stateward.drivers.security_rules import SecurityRule

PORTS = st.tuples(st.integers(0, 65535), st.integers(0, 65535)).map(sorted)
CIDRS = st.sampled_from(["0.0.0.0/0", "10.0.0.0/8", "::/0", "fd00::/8"])
RULES = st.sets(
    st.one_of(
        st.builds(
            lambda inbound, protocol, ports, cidr: SecurityRule(inbound, protocol, ports[0], ports[1], cidr),
            st.booleans(),
            st.sampled_from(["tcp", "udp"]),
            PORTS,
            CIDRS,
        ),
        st.builds(SecurityRule, st.booleans(), st.sampled_from(["-1", "icmp"]), st.just(-1), st.just(-1), CIDRS),
    )
)


@given(RULES)
def test_what_is_sent_is_what_is_read_back_and_lacks_nothing(rules: set[SecurityRule]) -> None:
    group = {"properties": {"securityRules": group_rules(rules)}}
    assert present_rules(group) == rules
    assert missing_rules(rules, group) == []


@given(RULES, RULES)
def test_rules_that_are_added_later_have_places_of_their_own(first: set[SecurityRule], more: set[SecurityRule]) -> None:
    listed = group_rules(first)
    listed += missing_rules(first | more, {"properties": {"securityRules": listed}})
    assert present_rules({"properties": {"securityRules": listed}}) == first | more
    properties = [one["properties"] for one in listed]
    places = [(one["direction"], one["priority"]) for one in properties]  # type: ignore[index]
    assert len(places) == len(set(places))
    assert all(100 <= priority <= 4096 for _, priority in places)


def test_a_group_without_rules_lets_nothing_in() -> None:
    (rule,) = group_rules(set())
    properties = rule["properties"]
    assert isinstance(properties, dict)
    assert (properties["direction"], properties["access"], properties["priority"]) == ("Inbound", "Deny", 4096)
