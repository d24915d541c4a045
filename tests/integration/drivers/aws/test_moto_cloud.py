"""The test cloud itself, asked by boto3 alone: it behaves as EC2 does where moto does not."""

from typing import Any

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from tests.integration.drivers.aws.ec2_machines import describe_machines
from tests.integration.drivers.aws.instance_lifecycle import CloudBehaviour
from tests.integration.drivers.aws.moto_cloud import MotoCloud
from tests.integration.drivers.aws.moto_images import IMAGE


def run(ec2: Any, token: str = "token", **others: Any) -> str:
    asked = {"ImageId": IMAGE, "InstanceType": "t3.nano", "MinCount": 1, "MaxCount": 1, "ClientToken": token, **others}
    return str(ec2.run_instances(**asked)["Instances"][0]["InstanceId"])


def code_of(call: Any, **asked: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**asked)
    return str(caught.value.response["Error"]["Code"])


def settle(ec2: Any, state: str) -> None:
    for _ in range(5000):
        if all(one["State"]["Name"] == state for one in describe_machines(ec2)):
            return
    raise AssertionError(f"never {state}")


def test_states_between_states_take_their_time(cloud: MotoCloud, ec2: Any) -> None:
    cloud.reset(CloudBehaviour(pending=3600.0))
    run(ec2)
    assert describe_machines(ec2)[0]["State"] == {"Name": "pending", "Code": 0}


def test_one_token_is_one_machine(cloud: MotoCloud, ec2: Any) -> None:
    assert run(ec2) == run(ec2)
    assert run(ec2, "other") != run(ec2)
    assert len(describe_machines(ec2)) == 2


def test_a_token_with_other_parameters_is_refused(cloud: MotoCloud, ec2: Any) -> None:
    run(ec2)
    assert code_of(run, ec2=ec2, InstanceType="t3.micro") == "IdempotentParameterMismatch"


def test_a_token_whose_machine_was_terminated_is_refused(cloud: MotoCloud, ec2: Any) -> None:
    ec2.terminate_instances(InstanceIds=[run(ec2)])
    assert code_of(run, ec2=ec2) == "IdempotentInstanceTerminated"


def test_what_is_terminated_cannot_be_started_or_stopped(cloud: MotoCloud, ec2: Any) -> None:
    ids = [run(ec2)]
    ec2.terminate_instances(InstanceIds=ids)
    settle(ec2, "terminated")
    assert code_of(ec2.start_instances, InstanceIds=ids) == "IncorrectInstanceState"
    assert code_of(ec2.stop_instances, InstanceIds=ids) == "IncorrectInstanceState"


def test_a_call_that_names_one_that_is_not_there_does_nothing(cloud: MotoCloud, ec2: Any) -> None:
    ids = [run(ec2)]
    settle(ec2, "running")
    assert code_of(ec2.stop_instances, InstanceIds=[*ids, "i-0123456789abcdef0"]) == "InvalidInstanceID.NotFound"
    assert describe_machines(ec2)[0]["State"]["Name"] == "running"


def test_who_asks_too_often_is_told_so(cloud: MotoCloud, ec2: Any) -> None:
    cloud.behaviour.calls = 0
    assert code_of(ec2.describe_instances) == "RequestLimitExceeded"
