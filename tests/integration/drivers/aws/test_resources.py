"""What machines stand on, as boto3 sees it."""

import asyncio
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

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
from stateward.drivers.aws import AwsDriver
from tests.integration.drivers.aws.conftest import MakeDriver
from tests.integration.drivers.aws.moto_cloud import MotoCloud
from tests.integration.drivers.cloud_faults import Fault, FaultKind

NETWORK = CloudResource(ResourceKind.NETWORK, "net-key", "net", facts={"cidr": "10.1.0.0/16"})
KEY = CloudResource(ResourceKind.SSH_KEY, "ssh-key", "my key")
INBOUND = '{"direction":"inbound","protocol":"tcp","ports":"22,900-1000","cidr":"0.0.0.0/0"}'
OUTBOUND = '{"direction":"outbound","protocol":"udp","ports":"53","cidr":"10.0.0.0/8"}'


def ours(ec2: Any) -> list[str]:
    found = ec2.describe_vpcs(Filters=[{"Name": "tag:stateward:key", "Values": ["net-key"]}])["Vpcs"]
    return [one["VpcId"] for one in found]


async def group(driver: AwsDriver, rules: str) -> CloudResource:
    network = await driver.ensure(NETWORK)
    assert isinstance(network, (CallAccepted, AlreadyDone))
    return CloudResource(ResourceKind.SECURITY_GROUP, "group-key", "group", network.native_id, {"rules": rules})


def holes(ec2: Any, native: str, side: str) -> set[tuple[str, int, int]]:
    (found,) = ec2.describe_security_groups(GroupIds=[native])["SecurityGroups"]
    return {(one["IpProtocol"], one.get("FromPort", -1), one.get("ToPort", -1)) for one in found[side]}


async def test_a_group_has_the_rules_that_were_asked_for(driver: AwsDriver, ec2: Any) -> None:
    outcome = await driver.ensure(await group(driver, f"[{INBOUND}]"))
    assert isinstance(outcome, CallAccepted)
    assert holes(ec2, outcome.native_id, "IpPermissions") == {("tcp", 22, 22), ("tcp", 900, 1000)}
    assert holes(ec2, outcome.native_id, "IpPermissionsEgress") == {("-1", -1, -1)}


async def test_rules_for_what_goes_out_close_the_door_that_is_open_by_itself(driver: AwsDriver, ec2: Any) -> None:
    resource = await group(driver, f"[{OUTBOUND}]")
    outcome = await driver.ensure(resource)
    assert isinstance(outcome, CallAccepted)
    assert holes(ec2, outcome.native_id, "IpPermissionsEgress") == {("udp", 53, 53)}
    assert isinstance(await driver.ensure(resource), AlreadyDone)


async def test_rules_that_somebody_has_added_are_removed_also_those_for_other_groups(
    driver: AwsDriver, ec2: Any
) -> None:
    resource = await group(driver, f"[{INBOUND}]")
    outcome = await driver.ensure(resource)
    assert isinstance(outcome, CallAccepted)
    open_to_all = {"IpProtocol": "tcp", "FromPort": 3389, "ToPort": 3389, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    pair = [{"GroupId": outcome.native_id}]
    of_group = {"IpProtocol": "tcp", "FromPort": 1, "ToPort": 9, "UserIdGroupPairs": pair}
    ec2.authorize_security_group_ingress(GroupId=outcome.native_id, IpPermissions=[open_to_all, of_group])
    assert isinstance(await driver.ensure(resource), CallAccepted)
    assert holes(ec2, outcome.native_id, "IpPermissions") == {("tcp", 22, 22), ("tcp", 900, 1000)}
    assert isinstance(await driver.ensure(resource), AlreadyDone)


async def test_a_group_left_without_its_rules_gets_them_the_next_time(
    driver: AwsDriver, cloud: MotoCloud, ec2: Any
) -> None:
    resource = await group(driver, f"[{INBOUND}]")
    cloud.inject_fault(Fault(FaultKind.ERROR, "AuthorizeSecurityGroupIngress", "RequestLimitExceeded", 503))
    assert isinstance(await driver.ensure(resource), CallThrottled)
    outcome = await driver.ensure(resource)
    assert isinstance(outcome, CallAccepted)
    assert len(holes(ec2, outcome.native_id, "IpPermissions")) == 2


async def test_a_group_whose_rules_are_refused_is_not_left_behind(
    driver: AwsDriver, cloud: MotoCloud, ec2: Any
) -> None:
    resource = await group(driver, f"[{INBOUND}]")
    cloud.inject_fault(Fault(FaultKind.ERROR, "AuthorizeSecurityGroupIngress", "RulesPerSecurityGroupLimitExceeded"))
    outcome = await driver.ensure(resource)
    assert isinstance(outcome, CallRefused)
    assert outcome.why is RefusalReason.QUOTA
    assert [one["GroupName"] for one in ec2.describe_security_groups()["SecurityGroups"]].count("default") == 2
    assert len(ec2.describe_security_groups()["SecurityGroups"]) == 2


@pytest.mark.parametrize(
    "rules",
    ["no json", '[{"ports":"70000"}]', '[{"ports":"9-1"}]', '[{"protocol":"sctp"}]', '[{"cidr":"x"}]'],
)
async def test_rules_that_are_none_are_refused_before_anything_is_made(
    driver: AwsDriver, cloud: MotoCloud, rules: str
) -> None:
    outcome = await driver.ensure(await group(driver, rules))
    assert isinstance(outcome, CallRefused)
    assert outcome.why is RefusalReason.INVALID
    assert cloud.calls["CreateSecurityGroup"] == 0


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST])
async def test_a_network_whose_answer_was_lost_is_found_and_not_made_twice(
    driver: AwsDriver, cloud: MotoCloud, ec2: Any, kind: FaultKind
) -> None:
    cloud.inject_fault(Fault(kind, "CreateVpc"))
    lost, again = await driver.ensure(NETWORK), await driver.ensure(NETWORK)
    assert isinstance(lost, CallUnanswered)
    assert isinstance(again, AlreadyDone if kind is FaultKind.LOST_ANSWER else CallAccepted)
    assert ours(ec2) == [again.native_id]


async def test_two_drivers_that_make_one_network_at_once_end_with_one(
    make: MakeDriver, cloud: MotoCloud, ec2: Any
) -> None:
    cloud.behaviour.latency = 0.05
    drivers = [make(), make()]
    for _ in range(50):
        outcomes = await asyncio.gather(*(driver.ensure(NETWORK) for driver in drivers))
        assert all(isinstance(one, (CallAccepted, AlreadyDone, TransientFailure)) for one in outcomes)
        if all(isinstance(one, (CallAccepted, AlreadyDone)) for one in outcomes):
            break
        drivers.reverse()
        await drivers[0].ensure(NETWORK)
    assert ours(ec2) == list({one.native_id for one in outcomes if isinstance(one, (CallAccepted, AlreadyDone))})


async def test_a_key_pair_s_secret_is_a_private_key_that_boto3_does_not_show(driver: AwsDriver, ec2: Any) -> None:
    outcome = await driver.ensure(KEY)
    assert isinstance(outcome, CallAccepted)
    assert "PRIVATE KEY" in outcome.secret
    (shown,) = ec2.describe_key_pairs()["KeyPairs"]
    assert shown["KeyName"] == outcome.native_id
    assert "KeyMaterial" not in shown


async def test_a_public_key_of_one_s_own_is_imported_and_there_is_no_secret(driver: AwsDriver, ec2: Any) -> None:
    public = Ed25519PrivateKey.generate().public_key()
    form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    resource = CloudResource(
        ResourceKind.SSH_KEY, "own-key", "own", facts={"public_key": public.public_bytes(*form).decode()}
    )
    outcome = await driver.ensure(resource)
    assert isinstance(outcome, CallAccepted)
    assert outcome.secret == ""
    assert ec2.describe_key_pairs()["KeyPairs"][0]["KeyName"] == outcome.native_id


async def test_a_key_pair_whose_answer_was_lost_is_made_anew_after_its_removal(
    driver: AwsDriver, cloud: MotoCloud
) -> None:
    cloud.inject_fault(Fault(FaultKind.LOST_ANSWER, "CreateKeyPair"))
    outcomes = [await driver.ensure(KEY), await driver.ensure(KEY), await driver.remove(KEY), await driver.ensure(KEY)]
    assert [type(one) for one in outcomes] == [CallUnanswered, AlreadyDone, CallAccepted, CallAccepted]
    assert isinstance(outcomes[-1], CallAccepted)
    assert outcomes[-1].secret


async def test_parts_of_the_same_name_do_not_meet(driver: AwsDriver) -> None:
    one = await driver.ensure(CloudResource(ResourceKind.SSH_KEY, "one", "key"))
    other = await driver.ensure(CloudResource(ResourceKind.SSH_KEY, "other", "key"))
    assert isinstance(one, CallAccepted)
    assert isinstance(other, CallAccepted)
    assert one.native_id != other.native_id


async def test_what_does_not_carry_the_key_is_never_removed(driver: AwsDriver, ec2: Any) -> None:
    foreign = ec2.create_vpc(CidrBlock="10.2.0.0/16")["Vpc"]["VpcId"]
    outcome = await driver.remove(CloudResource(ResourceKind.NETWORK, "net-key", "net", native_id=foreign))
    assert isinstance(outcome, AlreadyDone)
    assert foreign in [one["VpcId"] for one in ec2.describe_vpcs()["Vpcs"]]
