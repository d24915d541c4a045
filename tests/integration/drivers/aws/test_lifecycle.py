"""A machine from its network to its end, seen by a boto3 that is not the driver's."""

from base64 import b64decode
from typing import Any

import yaml
from msgspec.structs import replace

from stateward.drivers import (
    CallAccepted,
    CallRefused,
    CloudResource,
    MachineAction,
    MachineHandle,
    MachineState,
    ResourceKind,
)
from stateward.drivers.aws import AwsDriver
from stateward.drivers.aws.listing import key_filter
from stateward.drivers.ssh_keys import new_ssh_key_pair
from tests.integration.drivers.aws.conftest import MakeDriver
from tests.integration.drivers.aws.ec2_machines import (
    create_machines,
    describe_machines,
    new_machine_specs,
    wait_for_state,
)
from tests.integration.drivers.aws.moto_images import NAME, NEWER


def tags_of(one: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in one["Tags"]}


async def test_a_machine_lives_from_its_network_to_its_end_as_boto3_sees_it(driver: AwsDriver, ec2: Any) -> None:
    network = await driver.ensure(CloudResource(ResourceKind.NETWORK, "net", "net", facts={"cidr": "10.9.0.0/16"}))
    assert isinstance(network, CallAccepted)
    resources = {
        kind: outcome.native_id
        for kind, facts in {
            ResourceKind.SUBNET: {"cidr": "10.9.1.0/24"},
            ResourceKind.SECURITY_GROUP: {"rules": '[{"ports":"22"}]'},
            ResourceKind.SSH_KEY: {},
        }.items()
        if isinstance(
            outcome := await driver.ensure(CloudResource(kind, f"k-{kind}", "x", network.native_id, facts)),
            CallAccepted,
        )
    }
    want = replace(
        new_machine_specs(1)[0], resources=resources, disk_gib=20, tags={"team": "blue", "stateward:key": "forged"}
    )
    (outcome,) = await driver.create([want])
    assert isinstance(outcome, CallAccepted)

    (there,) = describe_machines(ec2)
    assert there["InstanceId"] == outcome.native_id
    assert tags_of(there) == {"team": "blue", "stateward:key": want.key, "Name": want.name}
    assert (there["VpcId"], there["SubnetId"]) == (network.native_id, resources[ResourceKind.SUBNET])
    assert (there["KeyName"], there["SecurityGroups"][0]["GroupId"]) == (
        resources[ResourceKind.SSH_KEY],
        resources[ResourceKind.SECURITY_GROUP],
    )
    (disk,) = ec2.describe_volumes(Filters=[{"Name": "attachment.instance-id", "Values": [outcome.native_id]}])[
        "Volumes"
    ]
    assert disk["Size"] == 20

    handle = MachineHandle(want.key, outcome.native_id)
    (seen,) = await wait_for_state(driver, [want.key])
    assert seen.private_ip == there["PrivateIpAddress"]
    assert seen.details["spec"] == want.spec
    for action, state, word in (
        (MachineAction.SUSPEND, MachineState.SUSPENDED, "stopped"),
        (MachineAction.RESUME, MachineState.RUNNING, "running"),
        (MachineAction.TERMINATE, MachineState.TERMINATED, "terminated"),
    ):
        assert isinstance((await driver.act(action, [handle]))[0], CallAccepted)
        (seen,) = await wait_for_state(driver, [want.key], state)
        assert seen.native_state == word
        assert describe_machines(ec2)[0]["State"]["Name"] == word


async def test_what_lies_between_two_states_is_told_as_such(driver: AwsDriver) -> None:
    (handle,) = await create_machines(driver, 1)
    await driver.act(MachineAction.SUSPEND, [handle])
    (seen,) = (await driver.observe([handle.key])).machines
    assert (seen.state, seen.native_state) in (
        (MachineState.SUSPENDING, "stopping"),
        (MachineState.SUSPENDED, "stopped"),
    )


async def test_a_machine_stays_running_while_it_reboots(driver: AwsDriver) -> None:
    (handle,) = await create_machines(driver, 1)
    await driver.act(MachineAction.REBOOT, [handle])
    (seen,) = (await driver.observe([handle.key])).machines
    assert seen.state is MachineState.RUNNING


async def test_machines_of_others_are_not_shown(driver: AwsDriver, ec2: Any) -> None:
    ec2.run_instances(ImageId=NEWER, InstanceType="t3.nano", MinCount=1, MaxCount=1)
    assert list((await driver.observe()).machines) == []


async def test_a_key_is_no_pattern(driver: AwsDriver) -> None:
    await create_machines(driver, 2)
    assert list((await driver.observe(["key-*", "key-?"])).machines) == []


def test_a_key_is_sent_as_itself() -> None:
    assert key_filter(["a*b?c\\d"])["Values"] == ["a\\*b\\?c\\\\d"]


async def test_an_image_by_name_is_the_newest_of_that_name(driver: AwsDriver, ec2: Any) -> None:
    await driver.create([replace(new_machine_specs(1)[0], image=NAME)])
    assert [one["ImageId"] for one in describe_machines(ec2)] == [NEWER]


async def test_an_image_for_another_processor_is_refused_by_the_check(driver: AwsDriver) -> None:
    refusal = await driver.check("t3.nano", "dune-26.04")
    assert refusal is not None
    assert "arm64" in refusal.message


async def test_every_call_is_told_to_the_meter_under_its_own_name(make: MakeDriver) -> None:
    told: list[str] = []
    driver = make(meter=told.append)
    await driver.create(new_machine_specs(2))
    assert told == ["DescribeInstances", "RunInstances", "RunInstances"]


async def test_further_keys_log_in_through_cloud_init(driver: AwsDriver, ec2: Any) -> None:
    key = new_ssh_key_pair().public
    want = replace(new_machine_specs(1)[0], authorized_keys=(f"{key} somebody",))
    (outcome,) = await driver.create([want])
    assert isinstance(outcome, CallAccepted)
    shown = ec2.describe_instance_attribute(InstanceId=outcome.native_id, Attribute="userData")["UserData"]["Value"]
    head, body = b64decode(shown).decode().split("\n", 1)
    assert head == "#cloud-config"
    assert yaml.safe_load(body) == {"ssh_authorized_keys": [key]}


async def test_a_text_that_is_no_public_key_creates_nothing(driver: AwsDriver, ec2: Any) -> None:
    (outcome,) = await driver.create([replace(new_machine_specs(1)[0], authorized_keys=("no key",))])
    assert isinstance(outcome, CallRefused)
    assert describe_machines(ec2) == []
