"""Orphan subnets of a network change that was undone: they are found, and deleted."""

import asyncio

import pytest
from msgspec.structs import replace

from stateward.domains.mci.control import drift
from stateward.domains.mci.guards import object_guards
from stateward.domains.mci.lifecycle import ResourceState
from stateward.domains.mci.model import NetworkSpec, Subnet, network_of, resource_seen, subnet_key
from stateward.domains.mci.provider import provider_client
from stateward.drivers import CloudResource, ProviderRegion, ResourceKind
from stateward.drivers.simulated.faults import CALM, CallFate
from stateward.engine import job
from stateward.lifecycle import CONTROLLER
from stateward.store.records import Object, Status
from tests.integration.domains.mci.conftest import ANN, NS, PATIENT, MciHarness
from tests.waiting import until

SEOUL = ProviderRegion("aws", "ap-northeast-2")
FRONT, BACK = Subnet("front", "10.0.1.0/24"), Subnet("back", "10.0.2.0/24")
NET = NetworkSpec("net", "uid-net", "aws-ap-northeast-2", "aws", "ap-northeast-2", subnets=(FRONT,))
LONG = 3600.0
LEFT = subnet_key("uid-net", "back")


def shown(harness: MciHarness) -> set[str]:
    """Return the keys of the subnets that there are at the provider."""
    return {one.key for one in harness.cloud.region(SEOUL).resources.all() if one.kind is ResourceKind.SUBNET}


def leave_behind(harness: MciHarness, key: str = LEFT) -> None:
    """Make a subnet within the network that no record knows."""
    network = harness.cloud.region(SEOUL).resources.get(ResourceKind.NETWORK, "uid-net")
    assert network is not None
    harness.cloud.region(SEOUL).ensure(CloudResource(ResourceKind.SUBNET, key, "back", network.native_id))


async def made(harness: MciHarness) -> Object:
    found, _ = await harness.service.create_resource(NS, "vNet", NET, ANN, PATIENT)
    assert found.state == ResourceState.AVAILABLE
    return found


async def until_gone(harness: MciHarness) -> None:
    async with asyncio.timeout(PATIENT):
        while LEFT in shown(harness):
            await harness.plugin.reconciler.reconcile_all()
            await asyncio.sleep(0.01)


async def test_a_subnet_that_a_change_left_behind_is_taken_away(
    harness: MciHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "CALL_END_TIMEOUT_S", 0.1)  # the answer never comes
    await made(harness)
    harness.cloud.set_profile(SEOUL, replace(CALM, patience=LONG))
    # The network, the listing and the first subnet are answered for, and the second one is not.
    harness.cloud.region(SEOUL).fault_injector.script_next(
        CallFate.DONE, CallFate.DONE, CallFate.DONE, CallFate.ANSWER_LOST
    )
    accepted = await harness.service.add_subnet(NS, "net", BACK, ANN)
    await until(lambda: LEFT in shown(harness))
    await harness.engine.cancel(NS, accepted.op.id)
    assert (await harness.ended(accepted)).status is Status.CANCELLED
    assert LEFT in shown(harness)
    await until_gone(harness)
    found = await harness.service.resource(NS, "vNet", "net")
    assert [one.name for one in network_of(found).subnets] == list(resource_seen(found).subnets) == ["front"]
    assert shown(harness) == {subnet_key("uid-net", "front")}


async def test_who_takes_it_away_is_in_the_journal(harness: MciHarness) -> None:
    found = await made(harness)
    leave_behind(harness)
    await until_gone(harness)
    lines = await harness.engine.history(NS, found.id)
    assert [(one.event, one.actor) for one in lines if one.event == "reshape"] == [("reshape", CONTROLLER)]


async def test_subnets_of_others_are_left_alone(harness: MciHarness) -> None:
    await made(harness)
    region = harness.cloud.region(SEOUL)
    region.ensure(CloudResource(ResourceKind.NETWORK, "uid-net-2", "other"))
    other = region.resources.get(ResourceKind.NETWORK, "uid-net-2")
    assert other is not None
    region.ensure(CloudResource(ResourceKind.SUBNET, "uid-net-2-a", "a", other.native_id))
    leave_behind(harness, "of-somebody-else")
    await harness.plugin.reconciler.reconcile_all()
    assert {"uid-net-2-a", "of-somebody-else"} <= shown(harness)
    assert (await harness.service.resource(NS, "vNet", "net")).op is None


async def test_one_that_would_not_go_is_not_tried_again_at_once(
    harness: MciHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await made(harness)
    leave_behind(harness)
    inside = harness.cloud.region(SEOUL).resources.get(ResourceKind.SUBNET, LEFT)
    assert inside is not None
    harness.cloud.region(SEOUL).ensure(CloudResource(ResourceKind.SECURITY_GROUP, "in-it", "x", inside.native_id))
    for _ in range(3):
        await harness.plugin.reconciler.reconcile_all()
        await until(lambda: harness.service.resource(NS, "vNet", "net"), lambda resource: resource.op is None)
    lines = await harness.engine.history(NS, found.id)
    assert [one.event for one in lines].count("reshape") == 1
    accepted = await harness.service.add_subnet(NS, "net", Subnet("side", "10.0.3.0/24"), ANN)  # it is in nobody's way
    assert (await harness.ended(accepted)).status is Status.SUCCEEDED
    harness.cloud.remove_resource(SEOUL, ResourceKind.SECURITY_GROUP, "in-it")
    monkeypatch.setattr(drift, "RETRY_REMOVAL_S", 0.0)
    await until_gone(harness)


async def test_a_network_is_removed_with_what_was_left_behind_in_it(harness: MciHarness) -> None:
    await made(harness)
    leave_behind(harness)
    accepted = await harness.service.delete_resource(NS, "vNet", "net", ANN)
    assert (await harness.ended(accepted)).status is Status.SUCCEEDED
    assert harness.cloud.region(SEOUL).resources.all() == []


async def test_a_subnet_that_is_asked_for_again_is_the_one_that_was_left_behind(harness: MciHarness) -> None:
    await made(harness)
    leave_behind(harness)
    native = getattr(harness.cloud.region(SEOUL).resources.get(ResourceKind.SUBNET, LEFT), "native_id", "")
    accepted = await harness.service.add_subnet(NS, "net", BACK, ANN)
    assert (await harness.ended(accepted)).status is Status.SUCCEEDED
    assert resource_seen(await harness.service.resource(NS, "vNet", "net")).subnets["back"] == native


@pytest.fixture(autouse=True)
def _absent_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_client, "ABSENT_AFTER_S", 3600.0)


@pytest.fixture(autouse=True)
def _known_uid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_guards, "deterministic_uid", lambda _op, _name: NET.uid)
