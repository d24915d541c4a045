"""A machine from its network to its end, seen by a client that is not the driver's; states and images."""

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stateward.drivers import (
    CallAccepted,
    CallRefused,
    CloudResource,
    MachineAction,
    MachineHandle,
    MachineState,
    RefusalReason,
    ResourceKind,
)
from stateward.drivers.azure import AzureDriver
from stateward.drivers.azure.names import arm_name
from stateward.drivers.azure.states import MachineRecords, host_name, machine_state
from stateward.drivers.ssh_keys import new_ssh_key_pair
from tests.integration.drivers.azure.arm_cloud import GROUP, SCOPE, ArmCloud
from tests.integration.drivers.azure.arm_machines import ARM_IMAGE, ARM_SPEC, CLOSED_SPEC, IMAGE, OWN_IMAGE, SPEC
from tests.integration.drivers.azure.azure_machines import (
    counts,
    create_machines,
    new_machine_specs,
    wait_for_state,
    wait_until_gone,
)
from tests.integration.drivers.azure.conftest import MakeDriver

if TYPE_CHECKING:
    from azure.mgmt.compute.aio import ComputeManagementClient

FURTHER_KEY = new_ssh_key_pair().public
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFmNQ6i0yKJ1dVMqLkSvp8hYwmGMSdUqSdQyZ0c0z5vC"


async def test_a_machine_lives_from_its_network_to_its_end_as_another_client_sees_it(
    make: MakeDriver, cloud: ArmCloud, compute: "ComputeManagementClient"
) -> None:
    driver = make(public_address="true")
    network = await driver.ensure(CloudResource(ResourceKind.NETWORK, "net", "net", facts={"cidr": "10.7.0.0/16"}))
    assert isinstance(network, CallAccepted)
    resources = {
        kind: outcome.native_id
        for kind, facts in {
            ResourceKind.SUBNET: {"cidr": "10.7.1.0/24"},
            ResourceKind.SECURITY_GROUP: {"rules": '[{"ports":"22"}]'},
            ResourceKind.SSH_KEY: {"public_key": PUBLIC_KEY},
        }.items()
        if isinstance(
            outcome := await driver.ensure(CloudResource(kind, f"k-{kind}", "x", network.native_id, facts)),
            CallAccepted,
        )
    }
    want = replace(
        new_machine_specs(1)[0],
        resources=resources,
        disk_gib=64,
        user="jo",
        authorized_keys=(f"{FURTHER_KEY} somebody",),
        tags={"team": "blue", "a/b": "c", "stateward:key": "forged"},
    )
    (outcome,) = await driver.create([want])
    assert isinstance(outcome, CallAccepted)

    there = await compute.virtual_machines.get(GROUP, arm_name(want.key))
    assert there["id"] == outcome.native_id
    assert there["tags"] == {"team": "blue", "a-b": "c", "stateward:key": want.key, "stateward:name": want.name}
    properties = there["properties"]
    assert properties["storageProfile"]["osDisk"]["diskSizeGB"] == 64
    assert properties["osProfile"]["adminUsername"] == "jo"
    keys = properties["osProfile"]["linuxConfiguration"]["ssh"]["publicKeys"]
    assert [one["keyData"] for one in keys] == [PUBLIC_KEY, FURTHER_KEY]
    assert {one["path"] for one in keys} == {"/home/jo/.ssh/authorized_keys"}

    handle = MachineHandle(want.key, outcome.native_id)
    (seen,) = await wait_for_state(driver, [want.key])
    assert (seen.name, seen.private_ip, seen.public_ip) == (want.name, "10.7.1.4", "203.0.113.1")
    assert (seen.details["spec"], seen.details["image"]) == (want.spec, want.image)
    assert seen.details["subnet"] == resources[ResourceKind.SUBNET]
    for action, state, words in (
        (MachineAction.SUSPEND, MachineState.SUSPENDED, "Succeeded/deallocated"),
        (MachineAction.RESUME, MachineState.RUNNING, "Succeeded/running"),
    ):
        assert isinstance((await driver.act(action, [handle]))[0], CallAccepted)
        (seen,) = await wait_for_state(driver, [want.key], state)
        assert seen.native_state == words
    assert counts(cloud) == [1, 1, 1, 1]
    assert isinstance((await driver.act(MachineAction.TERMINATE, [handle]))[0], CallAccepted)
    await wait_until_gone(driver, want.key)
    assert counts(cloud) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("provisioning", "power", "state"),
    [
        ("Creating", "starting", MachineState.PENDING),
        ("Creating", "running", MachineState.PENDING),
        ("Succeeded", "running", MachineState.RUNNING),
        ("Succeeded", "deallocated", MachineState.SUSPENDED),
        ("Succeeded", "stopped", MachineState.SUSPENDED),
        ("Updating", "deallocating", MachineState.SUSPENDING),
        ("Updating", "stopping", MachineState.SUSPENDING),
        ("Updating", "starting", MachineState.RESUMING),
        ("Updating", "running", MachineState.REBOOTING),
        ("Deleting", "running", MachineState.TERMINATING),
        ("Deleting", "", MachineState.TERMINATING),
        ("Failed", "", MachineState.FAILED),
        ("Canceled", "", MachineState.FAILED),
        ("Failed", "deallocated", MachineState.SUSPENDED),
        ("Failed", "running", MachineState.RUNNING),
        ("Succeeded", "", MachineState.OTHER),
        ("Succeeded", "hibernated", MachineState.OTHER),
    ],
)
def test_a_state_is_read_from_both_words_and_both_are_kept(provisioning: str, power: str, state: MachineState) -> None:
    statuses = [{"code": f"ProvisioningState/{provisioning.lower()}"}]
    statuses += [{"code": f"PowerState/{power}"}] if power else []
    records = MachineRecords({"properties": {"provisioningState": provisioning}}, tuple(statuses))
    assert machine_state(records) == (state, f"{provisioning}/{power}" if power else provisioning)


@given(st.text(), st.text())
def test_any_words_give_a_state_and_none_of_them_is_terminated(provisioning: str, power: str) -> None:
    statuses = ({"code": f"PowerState/{power}"},)
    records = MachineRecords({"properties": {"provisioningState": provisioning}}, statuses)
    assert machine_state(records)[0] is not MachineState.TERMINATED


def test_a_removal_that_has_begun_counts_more_than_an_older_status() -> None:
    statuses = ({"code": "ProvisioningState/succeeded"}, {"code": "PowerState/running"})
    records = MachineRecords({"properties": {"provisioningState": "Deleting"}}, statuses)
    assert machine_state(records) == (MachineState.TERMINATING, "Deleting/running")


async def test_a_restart_is_seen_while_it_lasts(driver: AzureDriver, cloud: ArmCloud) -> None:
    (handle,) = await create_machines(driver, 1)
    cloud.behaviour.changing = 3600.0
    await driver.act(MachineAction.REBOOT, [handle])
    (seen,) = (await driver.observe([handle.key])).machines
    assert (seen.state, seen.native_state) == (MachineState.REBOOTING, "Updating/running")


async def test_a_creation_that_fails_later_is_shown_with_its_code(driver: AzureDriver, cloud: ArmCloud) -> None:
    cloud.records.failures["create"] = ("AllocationFailed", "no room for it")
    (want,) = new_machine_specs(1)
    await driver.create([want])
    (seen,) = await wait_for_state(driver, [want.key], MachineState.FAILED)
    assert (seen.native_state, seen.details["reason"]) == ("Failed", "AllocationFailed: no room for it")
    await driver.act(MachineAction.TERMINATE, [MachineHandle(want.key)])
    await wait_until_gone(driver, want.key)
    assert counts(cloud) == [0, 0, 0, 0]


async def test_a_start_that_fails_later_leaves_a_suspended_machine_and_says_why(
    driver: AzureDriver, cloud: ArmCloud
) -> None:
    (handle,) = await create_machines(driver, 1)
    await driver.act(MachineAction.SUSPEND, [handle])
    await wait_for_state(driver, [handle.key], MachineState.SUSPENDED)
    cloud.records.failures["start"] = ("ZonalAllocationFailed", "no room in the zone")
    await driver.act(MachineAction.RESUME, [handle])
    (seen,) = await wait_for_state(driver, [handle.key], MachineState.SUSPENDED)
    assert (seen.native_state, seen.details["reason"]) == (
        "Failed/deallocated",
        "ZonalAllocationFailed: no room in the zone",
    )


async def test_machines_of_others_and_of_other_locations_are_not_shown(driver: AzureDriver, cloud: ArmCloud) -> None:
    handles = await create_machines(driver, 2)
    cloud.records.of("virtualMachines")[arm_name(handles[0].key)].body["location"] = "koreasouth"
    cloud.records.of("networkInterfaces")[arm_name(handles[0].key)].body["location"] = "koreasouth"
    cloud.records.of("virtualMachines")[arm_name(handles[1].key)].body["tags"] = {}
    cloud.records.of("networkInterfaces")[arm_name(handles[1].key)].body["tags"] = {}
    assert list((await driver.observe()).machines) == []


async def test_the_region_s_own_spelling_of_a_location_is_the_same_location(
    driver: AzureDriver, cloud: ArmCloud
) -> None:
    (handle,) = await create_machines(driver, 1)
    cloud.records.of("virtualMachines")[arm_name(handle.key)].body["location"] = "Korea Central"
    assert [one.key for one in (await driver.observe()).machines] == [handle.key]


async def test_a_zone_is_asked_for(make: MakeDriver, cloud: ArmCloud) -> None:
    driver = make(zone="2", public_address="true")
    (handle,) = await create_machines(driver, 1)
    (seen,) = (await driver.observe([handle.key])).machines
    assert seen.details["zone"] == "2"
    assert cloud.records.of("publicIPAddresses")[arm_name(handle.key)].body["zones"] == ["2"]


@pytest.mark.parametrize(
    ("resources", "options", "word"),
    [({}, {"subnet": ""}, "subnet"), ({ResourceKind.SECURITY_GROUP: "one,two"}, {}, "one security group")],
)
async def test_what_azure_cannot_do_is_refused_before_anything_is_made(
    make: MakeDriver, cloud: ArmCloud, resources: dict[str, str], options: dict[str, str], word: str
) -> None:
    driver = make(**options)
    (outcome,) = await driver.create([replace(new_machine_specs(1)[0], resources=resources)])
    assert isinstance(outcome, CallRefused)
    assert (outcome.why, word in outcome.message) == (RefusalReason.INVALID, True)
    assert counts(cloud) == [0, 0, 0, 0]


OWN = f"{SCOPE}/Microsoft.Compute/images"


@pytest.mark.parametrize(
    ("spec", "image", "why"),
    [
        (SPEC, IMAGE, None),
        (SPEC.lower(), IMAGE.replace("26.4.1", "latest"), None),
        (ARM_SPEC, ARM_IMAGE, None),
        (SPEC, f"{OWN}/{OWN_IMAGE}", None),
        (SPEC, f"{OWN.replace('-000000000001', '-000000000002')}/any", None),
        (SPEC, "/CommunityGalleries/acme/images/hill/versions/latest", None),
        (SPEC, f"{OWN}/none", RefusalReason.NOT_FOUND),
        (SPEC, "acme:meadow:26_04:1.0.0", RefusalReason.NOT_FOUND),
        (SPEC, "acme:meadow:none:latest", RefusalReason.NOT_FOUND),
        (SPEC, "acme:meadow:26_04", RefusalReason.INVALID),
        (SPEC, f"{OWN}/{OWN_IMAGE}/parts", RefusalReason.INVALID),
        (SPEC, ARM_IMAGE, RefusalReason.INVALID),
        (CLOSED_SPEC, IMAGE, RefusalReason.CAPACITY),
        ("Premium_LRS", IMAGE, RefusalReason.NOT_FOUND),
    ],
)
async def test_a_size_and_an_image_are_checked(
    driver: AzureDriver, spec: str, image: str, why: RefusalReason | None
) -> None:
    refusal = await driver.check(spec, image)
    assert getattr(refusal, "why", None) is why, refusal


async def test_sizes_are_listed_once_for_many_checks(driver: AzureDriver, cloud: ArmCloud) -> None:
    for _ in range(3):
        await driver.check(SPEC, IMAGE)
    assert cloud.calls["GET skus"] == 1


async def test_every_call_is_told_to_the_meter_under_its_own_name(make: MakeDriver) -> None:
    told: list[str] = []
    driver = make(meter=told.append)
    await driver.create(new_machine_specs(1))
    changing = [one for one in told if ".get" not in one]
    assert told[0] == "compute.virtual_machines.get"
    assert changing == [
        "network.network_interfaces.begin_create_or_update",
        "compute.virtual_machines.begin_create_or_update",
    ]


def test_a_host_name_has_what_host_names_have() -> None:
    assert host_name("shop-web_1.ü", "x") == "shop-web-1"
    assert host_name("---", "x") == "x"
    assert len(host_name("n" * 200, "x")) == 63


async def test_a_text_that_is_no_public_key_creates_nothing(driver: AzureDriver, cloud: ArmCloud) -> None:
    (outcome,) = await driver.create([replace(new_machine_specs(1)[0], authorized_keys=("no key",))])
    assert isinstance(outcome, CallRefused)
    assert outcome.why is RefusalReason.INVALID
    assert not any(counts(cloud))
