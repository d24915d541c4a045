"""What machines stand on, as the test cloud keeps it."""

import asyncio

import pytest

from stateward.drivers import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CallThrottled,
    CallUnanswered,
    CloudResource,
    Outcome,
    RefusalReason,
    ResourceKind,
    TransientFailure,
)
from stateward.drivers.azure import AzureDriver, client
from stateward.drivers.azure.names import arm_name
from stateward.drivers.azure.rules import present_rules
from tests.integration.drivers.azure.arm_cloud import SCOPE, ArmCloud
from tests.integration.drivers.azure.arm_networks import GROUPS, KEYS, NETWORKS
from tests.integration.drivers.azure.conftest import MakeDriver
from tests.integration.drivers.cloud_faults import Fault, FaultKind

NETWORK = CloudResource(ResourceKind.NETWORK, "net-key", "net", facts={"cidr": "10.1.0.0/16"})
NETWORK_ID = f"{SCOPE}/Microsoft.Network/virtualNetworks/{arm_name('net-key')}"
KEY = CloudResource(ResourceKind.SSH_KEY, "ssh-key", "my key")
INBOUND = '{"direction":"inbound","protocol":"tcp","ports":"22,900-1000","cidr":"0.0.0.0/0"}'
OUTBOUND = '{"direction":"outbound","protocol":"udp","ports":"53","cidr":"10.0.0.0/8"}'


def subnet(number: int) -> CloudResource:
    facts = {"cidr": f"10.1.{number}.0/24"}
    return CloudResource(ResourceKind.SUBNET, f"subnet-{number}", "subnet", NETWORK_ID, facts)


def group(rules: str) -> CloudResource:
    return CloudResource(ResourceKind.SECURITY_GROUP, "group-key", "group", NETWORK_ID, {"rules": rules})


def holes(cloud: ArmCloud) -> set[tuple[bool, str, int, int]]:
    body = cloud.records.of(GROUPS)[arm_name("group-key")].body
    return {(one.inbound, one.protocol, one.first, one.last) for one in present_rules(body)}


def denied(cloud: ArmCloud) -> set[str]:
    rules = cloud.records.of(GROUPS)[arm_name("group-key")].body["properties"]["securityRules"]
    return {one["properties"]["direction"] for one in rules if one["properties"]["access"] == "Deny"}


async def test_a_group_has_the_rules_that_were_asked_for_and_is_closed_otherwise(
    driver: AzureDriver, cloud: ArmCloud
) -> None:
    assert isinstance(await driver.ensure(group(f"[{INBOUND}]")), CallAccepted)
    assert holes(cloud) == {(True, "tcp", 22, 22), (True, "tcp", 900, 1000)}
    assert denied(cloud) == {"Inbound"}
    assert cloud.calls["PUT networkSecurityGroups"] == 1


async def test_rules_for_what_goes_out_close_everything_else(driver: AzureDriver, cloud: ArmCloud) -> None:
    assert isinstance(await driver.ensure(group(f"[{OUTBOUND}]")), CallAccepted)
    assert holes(cloud) == {(False, "udp", 53, 53)}
    assert denied(cloud) == {"Inbound", "Outbound"}
    assert isinstance(await driver.ensure(group(f"[{OUTBOUND}]")), AlreadyDone)


async def test_a_group_that_lacks_a_rule_gets_it_at_a_free_place(driver: AzureDriver, cloud: ArmCloud) -> None:
    await driver.ensure(group(f"[{INBOUND}]"))
    cloud.inject_fault(Fault(FaultKind.ERROR, "PUT networkSecurityGroups/securityRules", "TooManyRequests", 429))
    assert isinstance(await driver.ensure(group(f"[{INBOUND},{OUTBOUND}]")), CallThrottled)
    assert isinstance(await driver.ensure(group(f"[{INBOUND},{OUTBOUND}]")), CallAccepted)
    assert holes(cloud) == {(True, "tcp", 22, 22), (True, "tcp", 900, 1000), (False, "udp", 53, 53)}
    assert isinstance(await driver.ensure(group(f"[{INBOUND},{OUTBOUND}]")), AlreadyDone)


@pytest.mark.parametrize(
    "rules",
    ["no json", '[{"ports":"70000"}]', '[{"ports":"9-1"}]', '[{"protocol":"sctp"}]', '[{"cidr":"x"}]'],
)
async def test_rules_that_are_none_are_refused_before_anything_is_made(
    driver: AzureDriver, cloud: ArmCloud, rules: str
) -> None:
    outcome = await driver.ensure(group(rules))
    assert isinstance(outcome, CallRefused)
    assert (outcome.why, cloud.calls.total()) == (RefusalReason.INVALID, 0)


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST])
@pytest.mark.parametrize(
    ("resource", "call"),
    [
        (NETWORK, f"PUT {NETWORKS}"),
        (subnet(1), f"PUT {NETWORKS}/subnets"),
        (subnet(1), f"PATCH {NETWORKS}"),
        (group(f"[{INBOUND}]"), f"PUT {GROUPS}"),
    ],
)
async def test_a_part_whose_answer_was_lost_is_found_and_not_made_twice(
    driver: AzureDriver, cloud: ArmCloud, resource: CloudResource, call: str, kind: FaultKind
) -> None:
    if resource.kind is not ResourceKind.NETWORK:
        await driver.ensure(NETWORK)
    cloud.inject_fault(Fault(kind, call))
    lost, again = await driver.ensure(resource), await driver.ensure(resource)
    assert isinstance(lost, CallUnanswered)
    assert isinstance(again, AlreadyDone | CallAccepted)
    listing = await driver.list_resources()
    assert [one.native_id for one in listing.resources if one.key == resource.key] == [again.native_id]


async def test_a_subnet_survives_a_second_driver_that_ensures_its_network(make: MakeDriver, cloud: ArmCloud) -> None:
    one, other = make(), make()
    await one.ensure(NETWORK)
    await one.ensure(subnet(1))
    cloud.inject_fault(Fault(FaultKind.ERROR, f"GET {NETWORKS}", "ResourceNotFound", 404))  # as it was for the other
    assert isinstance(await other.ensure(NETWORK), AlreadyDone)
    assert cloud.calls[f"PUT {NETWORKS}"] == 2
    assert {one.key for one in (await other.list_resources()).resources} == {"net-key", "subnet-1"}


async def test_subnets_that_are_made_at_once_all_get_their_keys(driver: AzureDriver, cloud: ArmCloud) -> None:
    await driver.ensure(NETWORK)
    made: set[str] = set()
    for _ in range(50):
        outcomes = await asyncio.gather(*(driver.ensure(subnet(number)) for number in range(1, 6)))
        assert all(isinstance(one, CallAccepted | AlreadyDone | TransientFailure) for one in outcomes), outcomes
        made |= {one.key for one in outcomes if isinstance(one, CallAccepted | AlreadyDone)}
        if len(made) == 5:
            break
    listing = await driver.list_resources()
    keys = {one.key for one in listing.resources if one.kind is ResourceKind.SUBNET and one.within == NETWORK_ID}
    assert keys == {f"subnet-{number}" for number in range(1, 6)}


async def test_two_drivers_that_make_one_group_at_once_both_succeed(make: MakeDriver, cloud: ArmCloud) -> None:
    cloud.behaviour.latency = 0.02
    outcomes = await asyncio.gather(*(make().ensure(group(f"[{INBOUND}]")) for _ in range(3)))
    assert [type(one) for one in outcomes].count(CallAccepted) == 1
    assert all(isinstance(one, CallAccepted | AlreadyDone) for one in outcomes)


async def test_a_subnet_that_is_removed_takes_its_tag_along(driver: AzureDriver, cloud: ArmCloud) -> None:
    await driver.ensure(NETWORK)
    before = dict(cloud.records.of(NETWORKS)[arm_name("net-key")].body["tags"])
    await driver.ensure(subnet(1))
    removed = CloudResource(ResourceKind.SUBNET, "subnet-1", "subnet")  # neither its id nor its network is known
    assert isinstance(await driver.remove(removed), CallAccepted)
    assert cloud.records.of(NETWORKS)[arm_name("net-key")].body["tags"] == before
    assert isinstance(await driver.remove(removed), AlreadyDone)


async def test_a_subnet_outside_of_its_network_is_refused(driver: AzureDriver) -> None:
    await driver.ensure(NETWORK)
    wrong = CloudResource(ResourceKind.SUBNET, "subnet", "subnet", NETWORK_ID, {"cidr": "192.168.0.0/24"})
    outcome = await driver.ensure(wrong)
    assert isinstance(outcome, CallRefused)
    assert outcome.why is RefusalReason.INVALID


async def test_a_part_whose_provisioning_failed_is_refused_until_it_is_removed(
    driver: AzureDriver, cloud: ArmCloud
) -> None:
    await driver.ensure(NETWORK)
    cloud.records.of(NETWORKS)[arm_name("net-key")].state = "Failed"
    outcome = await driver.ensure(NETWORK)
    assert isinstance(outcome, CallRefused)
    assert "Failed" in outcome.message
    assert isinstance(await driver.remove(NETWORK), CallAccepted)
    assert isinstance(await driver.ensure(NETWORK), CallAccepted)


async def test_a_part_that_takes_too_long_is_neither_a_yes_nor_a_no(
    driver: AzureDriver, cloud: ArmCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_POLLS", 3)
    cloud.behaviour.network = 3600.0
    outcomes: list[Outcome] = [await driver.ensure(NETWORK), await driver.ensure(NETWORK), await driver.remove(NETWORK)]
    assert [type(one) for one in outcomes] == [TransientFailure] * 3


async def test_a_key_pair_s_secret_is_a_private_key_that_azure_never_has(driver: AzureDriver, cloud: ArmCloud) -> None:
    outcome = await driver.ensure(KEY)
    assert isinstance(outcome, CallAccepted)
    assert "PRIVATE KEY" in outcome.secret
    kept = cloud.records.of(KEYS)[arm_name("ssh-key")].body
    assert kept["properties"]["publicKey"].startswith("ssh-ed25519 ")
    assert "PRIVATE" not in str(kept)


async def test_a_public_key_of_one_s_own_is_kept_and_there_is_no_secret(driver: AzureDriver, cloud: ArmCloud) -> None:
    resource = CloudResource(ResourceKind.SSH_KEY, "ssh-key", "own", facts={"public_key": "ssh-ed25519 AAAA"})
    outcome = await driver.ensure(resource)
    assert isinstance(outcome, CallAccepted)
    assert outcome.secret == ""
    assert cloud.records.of(KEYS)[arm_name("ssh-key")].body["properties"]["publicKey"] == "ssh-ed25519 AAAA"


async def test_a_key_pair_whose_answer_was_lost_is_made_anew_after_its_removal(
    driver: AzureDriver, cloud: ArmCloud
) -> None:
    cloud.inject_fault(Fault(FaultKind.LOST_ANSWER, f"PUT {KEYS}"))
    outcomes = [await driver.ensure(KEY), await driver.ensure(KEY), await driver.remove(KEY), await driver.ensure(KEY)]
    assert [type(one) for one in outcomes] == [CallUnanswered, AlreadyDone, CallAccepted, CallAccepted]
    assert isinstance(outcomes[-1], CallAccepted)
    assert outcomes[-1].secret


@pytest.mark.parametrize("resource", [NETWORK, group("[]"), KEY])
async def test_what_does_not_carry_the_key_is_never_changed_or_removed(
    driver: AzureDriver, cloud: ArmCloud, resource: CloudResource
) -> None:
    await driver.ensure(resource)
    kind = {ResourceKind.NETWORK: NETWORKS, ResourceKind.SECURITY_GROUP: GROUPS, ResourceKind.SSH_KEY: KEYS}
    cloud.records.of(kind[resource.kind])[arm_name(resource.key)].body["tags"] = {}
    for outcome in (await driver.ensure(resource), await driver.remove(resource)):
        assert isinstance(outcome, CallRefused)
        assert outcome.why is RefusalReason.CONFLICT
    assert cloud.names(kind[resource.kind]) == [arm_name(resource.key)]


async def test_listings_of_parts_read_all_pages(driver: AzureDriver, cloud: ArmCloud) -> None:
    for number in range(3):
        await driver.ensure(CloudResource(ResourceKind.SSH_KEY, f"key-{number}", "key"))
    cloud.behaviour.page = 2
    assert len((await driver.list_resources()).resources) == 3
