"""Rules of security groups, there and back."""

from hypothesis import given
from hypothesis import strategies as st

from stateward.drivers.aws.rules import permissions_of, present_rules
from stateward.drivers.security_rules import ALL_PORTS, SecurityRule, wanted_rules

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
def test_what_is_sent_is_what_is_read_back(rules: set[SecurityRule]) -> None:
    group = {
        "IpPermissions": permissions_of(rule for rule in rules if rule.inbound),
        "IpPermissionsEgress": permissions_of(rule for rule in rules if not rule.inbound),
    }
    assert present_rules(group) == rules


def test_ports_may_be_many() -> None:
    rules = wanted_rules('[{"ports":"22, 900-1000","protocol":"TCP"}]')
    assert {(rule.first, rule.last) for rule in rules} == {(22, 22), (900, 1000)}


def test_no_ports_are_all_ports() -> None:
    (rule,) = wanted_rules('[{"protocol":"udp"}]')
    assert (rule.first, rule.last) == ALL_PORTS


def test_all_protocols_have_no_ports() -> None:
    (rule,) = wanted_rules('[{"protocol":"all","ports":"22","direction":"outbound","cidr":"10.1.2.3/8"}]')
    assert rule == SecurityRule(False, "-1", -1, -1, "10.0.0.0/8")


def test_no_rules_are_none() -> None:
    assert wanted_rules("") == set()
