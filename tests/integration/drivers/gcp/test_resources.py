"""What machines stand on, as the test cloud keeps it."""

import asyncio
import json
from typing import Any

import pytest
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
)
from stateward.drivers.gcp import GcpDriver
from stateward.drivers.gcp.names import name_of
from tests.integration.drivers.cloud_faults import Fault, FaultKind
from tests.integration.drivers.gcp.conftest import MakeGcpDriver
from tests.integration.drivers.gcp.gce_cloud import GceCloud
from tests.integration.drivers.gcp.gce_test_machines import new_machine_specs

NETWORK = CloudResource(ResourceKind.NETWORK, "net-key", "net", facts={"cidr": "10.1.0.0/16"})
KEY = CloudResource(ResourceKind.SSH_KEY, "ssh-key", "my key")
INBOUND = '{"direction":"inbound","protocol":"tcp","ports":"22,900-1000","cidr":"0.0.0.0/0"}'
OUTBOUND = '{"direction":"outbound","protocol":"udp","ports":"53","cidr":"10.0.0.0/8"}'


async def group(driver: GcpDriver, rules: str) -> CloudResource:
    network = await driver.ensure(NETWORK)
    assert isinstance(network, (CallAccepted, AlreadyDone))
    return CloudResource(ResourceKind.SECURITY_GROUP, "group-key", "group", network.native_id, {"rules": rules})


def holes(cloud: GceCloud) -> set[tuple[Any, ...]]:
    """Return what the firewall rules say: direction, verdict, ranges, protocols with ports."""
    return {
        (
            one["direction"],
            "allow" if one.get("allowed") else "deny",
            *(one.get("sourceRanges") or one["destinationRanges"]),
            json.dumps(one.get("allowed") or one["denied"], sort_keys=True),
        )
        for one in cloud.world.resources["firewalls"].values()
    }


CLOSED = ("INGRESS", "deny", "0.0.0.0/0", '[{"IPProtocol": "all"}]')


async def test_a_group_without_rules_is_closed_also_in_a_network_that_is_open(
    driver: GcpDriver, cloud: GceCloud
) -> None:
    assert isinstance(await driver.ensure(replace(await group(driver, ""), within="default")), CallAccepted)
    assert holes(cloud) == {CLOSED}
    (rule,) = cloud.world.resources["firewalls"].values()
    assert (rule["priority"] < 65534, rule["targetTags"]) == (True, [name_of("group-key")])


async def test_a_group_has_the_rules_that_were_asked_for_and_is_closed_first(
    driver: GcpDriver, cloud: GceCloud
) -> None:
    assert isinstance(await driver.ensure(await group(driver, f"[{INBOUND}]")), CallAccepted)
    allowed = '[{"IPProtocol": "tcp", "ports": ["22", "900-1000"]}]'
    assert holes(cloud) == {CLOSED, ("INGRESS", "allow", "0.0.0.0/0", allowed)}
    assert next(iter(cloud.world.resources["firewalls"])) == name_of("group-key")


async def test_rules_for_what_goes_out_close_the_rest(driver: GcpDriver, cloud: GceCloud) -> None:
    resource = await group(driver, f"[{OUTBOUND}]")
    assert isinstance(await driver.ensure(resource), CallAccepted)
    assert holes(cloud) == {
        CLOSED,
        ("EGRESS", "deny", "0.0.0.0/0", '[{"IPProtocol": "all"}]'),
        ("EGRESS", "allow", "10.0.0.0/8", '[{"IPProtocol": "udp", "ports": ["53"]}]'),
    }
    assert isinstance(await driver.ensure(resource), AlreadyDone)


async def test_a_group_gets_the_rules_that_it_has_now_and_loses_the_others(driver: GcpDriver, cloud: GceCloud) -> None:
    resource = await group(driver, f"[{INBOUND},{OUTBOUND}]")
    await driver.ensure(resource)
    changed = replace(resource, facts={"rules": '[{"ports":"443"}]'})
    assert isinstance(await driver.ensure(changed), CallAccepted)
    allowed = '[{"IPProtocol": "tcp", "ports": ["443"]}]'
    assert holes(cloud) == {CLOSED, ("INGRESS", "allow", "0.0.0.0/0", allowed)}


async def test_a_rule_that_somebody_has_turned_off_is_turned_on_again(driver: GcpDriver, cloud: GceCloud) -> None:
    resource = await group(driver, "[]")
    await driver.ensure(resource)
    rule = cloud.world.resources["firewalls"][name_of("group-key")]
    rule["disabled"] = True
    assert isinstance(await driver.ensure(resource), CallAccepted)
    assert cloud.world.resources["firewalls"][name_of("group-key")]["disabled"] is False


async def test_a_group_left_without_its_rules_gets_them_the_next_time(driver: GcpDriver, cloud: GceCloud) -> None:
    resource = await group(driver, f"[{INBOUND}]")
    cloud.inject_fault(Fault(FaultKind.ERROR, "firewalls.insert", status=429, skip=1))
    assert isinstance(await driver.ensure(resource), CallThrottled)
    assert holes(cloud) == {CLOSED}
    assert isinstance(await driver.ensure(resource), CallAccepted)
    assert len(holes(cloud)) == 2


async def test_a_group_whose_rules_are_refused_is_not_left_behind(driver: GcpDriver, cloud: GceCloud) -> None:
    resource = await group(driver, f"[{INBOUND}]")
    cloud.inject_fault(Fault(FaultKind.ERROR, "firewalls.insert", "quotaExceeded", 403, skip=1))
    outcome = await driver.ensure(resource)
    assert isinstance(outcome, CallRefused)
    assert (outcome.why, holes(cloud)) == (RefusalReason.QUOTA, set())


@pytest.mark.parametrize("rules", ["no json", '[{"ports":"70000"}]', '[{"protocol":"sctp"}]', '[{"cidr":"x"}]'])
async def test_rules_that_are_none_are_refused_before_anything_is_made(
    driver: GcpDriver, cloud: GceCloud, rules: str
) -> None:
    outcome = await driver.ensure(await group(driver, rules))
    assert isinstance(outcome, CallRefused)
    assert (outcome.why, cloud.calls["firewalls.insert"]) == (RefusalReason.INVALID, 0)


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST])
async def test_a_network_whose_answer_was_lost_is_found_and_not_made_twice(
    driver: GcpDriver, cloud: GceCloud, kind: FaultKind
) -> None:
    cloud.inject_fault(Fault(kind, "networks.insert"))
    lost, again = await driver.ensure(NETWORK), await driver.ensure(NETWORK)
    assert isinstance(lost, CallUnanswered)
    assert isinstance(again, AlreadyDone if kind is FaultKind.LOST_ANSWER else CallAccepted)
    assert set(cloud.world.resources["networks"]) == {"default", name_of("net-key")}


async def test_a_network_can_be_made_again_after_its_removal(driver: GcpDriver, cloud: GceCloud) -> None:
    kinds = [type(await call(NETWORK)) for call in (driver.ensure, driver.remove, driver.ensure)]
    assert kinds == [CallAccepted] * 3
    assert name_of("net-key") in cloud.world.resources["networks"]


async def test_two_drivers_that_make_one_network_at_once_end_with_one(make: MakeGcpDriver, cloud: GceCloud) -> None:
    cloud.behaviour.latency = 0.05
    outcomes = await asyncio.gather(*(driver.ensure(NETWORK) for driver in (make(), make())))
    assert all(isinstance(one, (CallAccepted, AlreadyDone)) for one in outcomes)
    assert set(cloud.world.resources["networks"]) == {"default", name_of("net-key")}


async def test_a_network_has_no_subnets_but_ours(driver: GcpDriver, cloud: GceCloud) -> None:
    await driver.ensure(NETWORK)
    assert cloud.world.resources["networks"][name_of("net-key")]["autoCreateSubnetworks"] is False


async def test_what_does_not_carry_the_key_is_never_removed(driver: GcpDriver, cloud: GceCloud) -> None:
    await driver.ensure(NETWORK)
    cloud.world.resources["networks"][name_of("net-key")]["description"] = "of somebody else"
    assert isinstance(await driver.remove(NETWORK), AlreadyDone)
    assert isinstance(await driver.remove(replace(NETWORK, native_id="default")), AlreadyDone)
    assert len(cloud.world.resources["networks"]) == 2


async def test_parts_of_another_region_are_not_listed(driver: GcpDriver, cloud: GceCloud) -> None:
    await driver.ensure(await group(driver, "[]"))
    await driver.ensure(KEY)
    assert len((await driver.list_resources()).resources) == 3
    for service in ("networks", "firewalls"):
        for one in cloud.world.resources[service].values():
            one["description"] = one.get("description", "").replace("europe-west4", "us-east1")
    cloud.world.metadata = {
        name: text.replace("europe-west4", "us-east1") for name, text in cloud.world.metadata.items()
    }
    assert list((await driver.list_resources()).resources) == []


async def test_a_key_is_an_entry_of_the_project_that_opens_no_machine(driver: GcpDriver, cloud: GceCloud) -> None:
    outcome = await driver.ensure(KEY)
    assert isinstance(outcome, CallAccepted)
    assert "PRIVATE KEY" in outcome.secret
    assert set(cloud.world.metadata) == {"enable-oslogin", outcome.native_id}  # what was there stays
    record = json.loads(cloud.world.metadata[outcome.native_id])
    assert (record["key"], record["public_key"].startswith("ssh-ed25519 ")) == ("ssh-key", True)
    assert "PRIVATE" not in cloud.world.metadata[outcome.native_id]


@pytest.mark.parametrize("public", ["ssh-ed25519 AAAA a\nroot:ssh-ed25519 BBBB b", "ssh-ed25519\x00"])
async def test_a_public_key_that_is_two_is_refused(driver: GcpDriver, cloud: GceCloud, public: str) -> None:
    outcome = await driver.ensure(replace(KEY, facts={"public_key": public}))
    assert isinstance(outcome, CallRefused)
    assert (outcome.why, set(cloud.world.metadata)) == (RefusalReason.INVALID, {"enable-oslogin"})


async def test_keys_that_two_drivers_make_at_once_are_both_kept(make: MakeGcpDriver, cloud: GceCloud) -> None:
    cloud.behaviour.latency = 0.02
    keys = [replace(KEY, key=f"ssh-{number}") for number in range(6)]
    drivers = [make(), make()]
    outcomes = await asyncio.gather(*(drivers[number % 2].ensure(key) for number, key in enumerate(keys)))
    assert all(isinstance(one, CallAccepted) for one in outcomes), outcomes
    assert len(cloud.world.metadata) == 7


async def test_a_key_whose_answer_was_lost_is_made_anew_after_its_removal(driver: GcpDriver, cloud: GceCloud) -> None:
    cloud.inject_fault(Fault(FaultKind.LOST_ANSWER, "projects.set_common_instance_metadata"))
    outcomes = [await driver.ensure(KEY), await driver.ensure(KEY), await driver.remove(KEY), await driver.ensure(KEY)]
    assert [type(one) for one in outcomes] == [CallUnanswered, AlreadyDone, CallAccepted, CallAccepted]
    assert isinstance(outcomes[-1], CallAccepted)
    assert outcomes[-1].secret


async def test_a_machine_keeps_its_key_when_the_key_is_removed(driver: GcpDriver, cloud: GceCloud) -> None:
    key = await driver.ensure(KEY)
    assert isinstance(key, CallAccepted)
    want = replace(new_machine_specs(1)[0], resources={ResourceKind.SSH_KEY: key.native_id})
    await driver.create([want])
    assert isinstance(await driver.remove(KEY), CallAccepted)
    items = {item["key"]: item["value"] for item in cloud.world.find(want.key).body["metadata"]["items"]}
    assert items["ssh-keys"].startswith("stateward:ssh-ed25519 ")
