"""What machines stand on, as a client sees it that is not ours: networks, subnets, groups and key pairs."""

from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stateward.drivers import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CallThrottled,
    CallUnanswered,
    CloudResource,
    RefusalReason,
    ResourceKind,
    TransientFailure,
)
from stateward.drivers.openstack import OpenStackDriver
from stateward.drivers.openstack.networks import key_in_name, keypair_name
from stateward.drivers.openstack.rules import present_rules, rule_body
from stateward.drivers.security_rules import SecurityRule
from tests.integration.drivers.openstack.breaking_proxy import BreakingProxy, BreakKind
from tests.integration.drivers.openstack.nova_server import NovaClient, NovaServer
from tests.integration.drivers.openstack.nova_worlds import new_machine_specs, wait_for_state

NETWORK = CloudResource(ResourceKind.NETWORK, "net-key", "net", facts={"cidr": "10.1.0.0/16"})
GROUP = CloudResource(ResourceKind.SECURITY_GROUP, "group-key", "group")
KEY = CloudResource(ResourceKind.SSH_KEY, "ssh-key", "my key")
INBOUND = '{"direction":"inbound","protocol":"tcp","ports":"22,900-1000","cidr":"0.0.0.0/0"}'
OUTBOUND = '{"direction":"outbound","protocol":"udp","ports":"53","cidr":"10.0.0.0/8"}'
EVERYTHING = {("egress", "IPv4", None, None, None, None), ("egress", "IPv6", None, None, None, None)}
FIELDS = ("direction", "ethertype", "protocol", "port_range_min", "port_range_max", "remote_ip_prefix")


def with_rules(*rules: str) -> CloudResource:
    return replace(GROUP, facts={"rules": f"[{','.join(rules)}]"})


def rules_in(nova: NovaClient, native_id: str) -> set[tuple[Any, ...]]:
    group = nova.get(f"/network/v2.0/security-groups/{native_id}")["security_group"]
    return {tuple(rule[name] for name in FIELDS) for rule in group["security_group_rules"]}


def described(nova: NovaClient, kind: str, key: str) -> list[str]:
    found = nova.get(f"/network/v2.0/{kind}")[kind.replace("-", "_")]
    return [one["id"] for one in found if one["description"] == f"stateward:{key}"]


async def made(driver: OpenStackDriver, resource: CloudResource) -> CloudResource:
    outcome = await driver.ensure(resource)
    assert isinstance(outcome, (CallAccepted, AlreadyDone)), outcome
    return replace(resource, native_id=outcome.native_id)


async def test_a_group_lets_nothing_in_that_no_rule_allows(driver: OpenStackDriver, nova: NovaClient) -> None:
    group = await made(driver, GROUP)
    assert rules_in(nova, group.native_id) == EVERYTHING


async def test_a_group_has_the_rules_that_were_asked_for(driver: OpenStackDriver, nova: NovaClient) -> None:
    group = await made(driver, with_rules(INBOUND))
    assert rules_in(nova, group.native_id) - EVERYTHING == {
        ("ingress", "IPv4", "tcp", 22, 22, "0.0.0.0/0"),
        ("ingress", "IPv4", "tcp", 900, 1000, "0.0.0.0/0"),
    }


async def test_rules_for_what_goes_out_delete_those_that_let_everything_out(
    driver: OpenStackDriver, nova: NovaClient
) -> None:
    group = await made(driver, with_rules(OUTBOUND))
    assert rules_in(nova, group.native_id) == {("egress", "IPv4", "udp", 53, 53, "10.0.0.0/8")}
    assert isinstance(await driver.ensure(with_rules(OUTBOUND)), AlreadyDone)


async def test_every_sort_of_rule_is_found_again(driver: OpenStackDriver, nova: NovaClient) -> None:
    group = with_rules(
        '{"protocol":"tcp"}',
        '{"protocol":"udp","ports":"0-99"}',
        '{"protocol":"icmp","cidr":"::/0"}',
        '{"protocol":"all","cidr":"10.0.0.0/8"}',
    )
    outcome = await driver.ensure(group)
    assert isinstance(outcome, CallAccepted)
    assert rules_in(nova, outcome.native_id) - EVERYTHING == {
        ("ingress", "IPv4", "tcp", None, None, "0.0.0.0/0"),
        ("ingress", "IPv4", "udp", 1, 99, "0.0.0.0/0"),
        ("ingress", "IPv6", "ipv6-icmp", None, None, "::/0"),
        ("ingress", "IPv4", None, None, None, "10.0.0.0/8"),
    }
    assert isinstance(await driver.ensure(group), AlreadyDone)


async def test_a_group_left_without_its_rules_gets_them_the_next_time(
    driver: OpenStackDriver, proxy: BreakingProxy, nova: NovaClient
) -> None:
    proxy.lose(BreakKind.ERROR, r"POST .*/security-group-rules", status=429)
    assert isinstance(await driver.ensure(with_rules(INBOUND)), CallThrottled)
    outcome = await driver.ensure(with_rules(INBOUND))
    assert isinstance(outcome, CallAccepted)
    assert len(rules_in(nova, outcome.native_id) - EVERYTHING) == 2


async def test_a_group_whose_rules_are_refused_is_not_left_behind(
    driver: OpenStackDriver, proxy: BreakingProxy, nova: NovaClient
) -> None:
    body = (
        '{"NeutronError": {"type": "OverQuota", "message": "Quota exceeded for resources: [\'rule\'].", "detail": ""}}'
    )
    proxy.lose(BreakKind.ERROR, r"POST .*/security-group-rules", status=409, body=body)
    outcome = await driver.ensure(with_rules(INBOUND))
    assert isinstance(outcome, CallRefused)
    assert (outcome.why, described(nova, "security-groups", "group-key")) == (RefusalReason.QUOTA, [])


@pytest.mark.parametrize("rules", ["no json", '{"ports":"70000"}', '{"protocol":"sctp"}', '{"cidr":"x"}'])
async def test_rules_that_are_none_are_refused_before_anything_is_made(
    driver: OpenStackDriver, proxy: BreakingProxy, rules: str
) -> None:
    outcome = await driver.ensure(with_rules(rules))
    assert isinstance(outcome, CallRefused)
    assert (outcome.why, proxy.calls.total()) == (RefusalReason.INVALID, 0)


async def test_a_subnet_whose_addresses_are_none_is_refused(driver: OpenStackDriver) -> None:
    network = await made(driver, NETWORK)
    outcome = await driver.ensure(
        CloudResource(ResourceKind.SUBNET, "subnet-key", "subnet", network.native_id, {"cidr": "10.1.1.1/24"})
    )
    assert isinstance(outcome, CallRefused)
    assert outcome.why is RefusalReason.INVALID


@pytest.mark.parametrize("kind", [BreakKind.LOST_ANSWER, BreakKind.LOST_REQUEST])
async def test_a_network_whose_answer_was_lost_is_found_and_not_made_twice(
    driver: OpenStackDriver, proxy: BreakingProxy, nova: NovaClient, kind: BreakKind
) -> None:
    proxy.lose(kind, r"POST .*/networks")
    lost, again = await driver.ensure(NETWORK), await driver.ensure(NETWORK)
    assert isinstance(lost, CallUnanswered)
    assert isinstance(again, AlreadyDone if kind is BreakKind.LOST_ANSWER else CallAccepted)
    assert described(nova, "networks", "net-key") == [again.native_id]


async def test_where_somebody_else_was_making_it_too_one_is_left(
    driver: OpenStackDriver, proxy: BreakingProxy, nova: NovaClient
) -> None:
    document = {"network": {"name": "first", "description": "stateward:net-key"}}
    proxy.lose(
        BreakKind.LATE, r"POST .*/networks", meanwhile=lambda: nova.send("POST", "/network/v2.0/networks", document)
    )
    assert isinstance(await driver.ensure(NETWORK), TransientFailure)
    assert isinstance(await driver.ensure(NETWORK), AlreadyDone)
    assert len(described(nova, "networks", "net-key")) == 1


async def test_a_network_that_another_project_shares_is_never_taken_for_ours(
    driver: OpenStackDriver, nova_server: NovaServer, nova: NovaClient
) -> None:
    other = nova_server.client("somebody-else")
    document = {"network": {"name": "bait", "description": "stateward:bait-key", "shared": True}}
    bait = other.send("POST", "/network/v2.0/networks", document).json()["network"]["id"]
    resource = replace(NETWORK, key="bait-key")
    outcome = await driver.ensure(resource)
    assert isinstance(outcome, CallAccepted)
    assert outcome.native_id != bait
    await driver.remove(resource)
    assert described(nova, "networks", "bait-key") == [bait]
    assert (await driver.list_resources()).resources == []
    other.send("DELETE", f"/network/v2.0/networks/{bait}")
    other.close()


async def test_a_full_quota_of_networks_is_told(driver: OpenStackDriver) -> None:
    outcomes = [await driver.ensure(replace(NETWORK, key=f"net-{number}")) for number in range(11)]
    last = outcomes.pop()
    assert all(isinstance(outcome, CallAccepted) for outcome in outcomes)
    assert isinstance(last, CallRefused)
    assert last.why is RefusalReason.QUOTA


async def test_a_network_with_subnets_is_not_removed_with_them(driver: OpenStackDriver, nova: NovaClient) -> None:
    network = await made(driver, NETWORK)
    subnet = CloudResource(ResourceKind.SUBNET, "subnet-key", "subnet", network.native_id, {"cidr": "10.1.1.0/24"})
    await made(driver, subnet)
    outcome = await driver.remove(network)
    assert isinstance(outcome, CallRefused)
    assert outcome.why is RefusalReason.IN_USE
    assert len(described(nova, "subnets", "subnet-key")) == 1


@pytest.mark.long
async def test_a_machine_stands_on_the_network_of_its_subnet(driver: OpenStackDriver) -> None:
    network = await made(driver, NETWORK)
    subnet = CloudResource(ResourceKind.SUBNET, "subnet-key", "subnet", network.native_id, {"cidr": "10.1.1.0/24"})
    (want,) = new_machine_specs(1)
    await driver.create([replace(want, resources={ResourceKind.SUBNET: (await made(driver, subnet)).native_id})])
    (seen,) = await wait_for_state(driver, [want.key])
    assert seen.private_ip.startswith("10.1.1.")


async def test_a_subnet_beside_others_is_refused_because_nova_would_choose(
    driver: OpenStackDriver, nova: NovaClient
) -> None:
    network = await made(driver, NETWORK)
    subnets = [
        CloudResource(ResourceKind.SUBNET, f"s-{number}", "s", network.native_id, {"cidr": f"10.1.{number}.0/24"})
        for number in range(2)
    ]
    first, _ = [await made(driver, subnet) for subnet in subnets]
    (want,) = new_machine_specs(1)
    (outcome,) = await driver.create([replace(want, resources={ResourceKind.SUBNET: first.native_id})])
    assert isinstance(outcome, CallRefused)
    assert (outcome.why, nova.servers()) == (RefusalReason.UNABLE, [])


async def test_a_key_pair_s_secret_is_a_private_key_that_nova_never_saw(
    driver: OpenStackDriver, proxy: BreakingProxy, nova_server: NovaServer, project: str
) -> None:
    outcome = await driver.ensure(KEY)
    assert isinstance(outcome, CallAccepted)
    private = serialization.load_ssh_private_key(outcome.secret.encode(), None)
    user = nova_server.client(project, f"user-of-{project}")
    shown = user.get(f"/compute/v2.1/os-keypairs/{outcome.native_id}")["keypair"]
    form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    assert shown["public_key"] == private.public_key().public_bytes(*form).decode()
    user.close()


async def test_a_public_key_of_one_s_own_is_imported_and_there_is_no_secret(driver: OpenStackDriver) -> None:
    form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    public = Ed25519PrivateKey.generate().public_key().public_bytes(*form).decode()
    outcome = await driver.ensure(replace(KEY, key="own-key", facts={"public_key": public}))
    assert isinstance(outcome, CallAccepted)
    assert outcome.secret == ""


async def test_a_key_pair_whose_answer_was_lost_is_made_anew_after_its_removal(
    driver: OpenStackDriver, proxy: BreakingProxy
) -> None:
    proxy.lose(BreakKind.LOST_ANSWER, r"POST .*/os-keypairs")
    outcomes = [await driver.ensure(KEY), await driver.ensure(KEY), await driver.remove(KEY), await driver.ensure(KEY)]
    assert [type(one) for one in outcomes] == [CallUnanswered, AlreadyDone, CallAccepted, CallAccepted]


@given(st.text(max_size=60), st.text(min_size=1, max_size=40))
def test_the_name_of_a_key_pair_tells_its_key(name: str, key: str) -> None:
    written = keypair_name(CloudResource(ResourceKind.SSH_KEY, key, name))
    assert key_in_name(written) == key
    assert written.replace("-", "").isalnum()
    assert written.isascii()


@pytest.mark.parametrize("name", ["alice", "stateward-", "stateward-web-xyz", "stateward-web-ff"])
def test_a_key_pair_of_somebody_else_is_not_ours(name: str) -> None:
    assert key_in_name(name) == ""


CIDRS = st.sampled_from(["0.0.0.0/0", "10.0.0.0/8", "::/0", "fd00::/8"])
PORTS = st.tuples(st.integers(1, 65535), st.integers(1, 65535)).map(sorted)


@given(st.booleans(), st.sampled_from(["tcp", "udp", "icmp", "-1"]), PORTS, CIDRS)
def test_a_rule_that_is_sent_is_the_rule_that_is_read_back(
    inbound: bool, protocol: str, ports: list[int], cidr: str
) -> None:
    first, last = ports if protocol in ("tcp", "udp") else (-1, -1)
    rule = SecurityRule(inbound, protocol, first, last, cidr)
    body = rule_body("group", rule)["security_group_rule"]
    assert isinstance(body, dict)
    assert present_rules({"security_group_rules": [{**body, "id": "1"}]}) == {rule: "1"}
