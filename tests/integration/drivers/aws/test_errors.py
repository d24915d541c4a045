"""What EC2 says, in the words of the port: over the wire for each code, and for any code whatever."""

import asyncio
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.drivers import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CallThrottled,
    RefusalReason,
    TransientFailure,
)
from stateward.drivers.aws import AwsDriver
from stateward.drivers.aws.errors import classify_answer
from stateward.drivers.cloud.client import THREADS
from stateward.drivers.cloud.errors import FailedOutcome
from tests.integration.drivers.aws.ec2_machines import MACHINES, describe_machines, new_machine_specs
from tests.integration.drivers.aws.moto_cloud import MotoCloud
from tests.integration.drivers.cloud_error_contract import CloudErrorContract
from tests.integration.drivers.cloud_faults import Fault, FaultKind
from tests.waiting import until

REFUSALS = [
    ("InsufficientInstanceCapacity", 500, RefusalReason.CAPACITY),
    ("InsufficientFreeAddressesInSubnet", 400, RefusalReason.CAPACITY),
    ("InstanceLimitExceeded", 400, RefusalReason.QUOTA),
    ("VcpuLimitExceeded", 400, RefusalReason.QUOTA),
    ("InvalidInstanceID.NotFound", 400, RefusalReason.NOT_FOUND),
    ("InvalidAMIID.NotFound", 400, RefusalReason.NOT_FOUND),
    ("InvalidSubnetID.NotFound", 400, RefusalReason.NOT_FOUND),
    ("IncorrectInstanceState", 400, RefusalReason.CONFLICT),
    ("IncorrectState", 400, RefusalReason.CONFLICT),
    ("IdempotentParameterMismatch", 400, RefusalReason.CONFLICT),
    ("IdempotentInstanceTerminated", 400, RefusalReason.CONFLICT),
    ("OperationNotPermitted", 400, RefusalReason.CONFLICT),
    ("UnauthorizedOperation", 403, RefusalReason.AUTH),
    ("AuthFailure", 401, RefusalReason.AUTH),
    ("ExpiredToken", 400, RefusalReason.AUTH),
    ("OptInRequired", 401, RefusalReason.AUTH),
    ("InvalidParameterValue", 400, RefusalReason.INVALID),
    ("InvalidInstanceType", 400, RefusalReason.INVALID),
    ("Unsupported", 400, RefusalReason.INVALID),
    ("DependencyViolation", 400, RefusalReason.IN_USE),
    ("InvalidGroup.InUse", 400, RefusalReason.IN_USE),
]
THROTTLING = [("RequestLimitExceeded", 503), ("Throttling", 400), ("ThrottlingException", 400)]


class TestEc2Errors(CloudErrorContract):
    """What the drivers of all clouds do."""

    machines = MACHINES
    native_id = "i-1234567890abcdef0"
    creating, reading = "RunInstances", "DescribeInstances"
    listing, checking = "DescribeInstances", "DescribeInstanceTypes"
    listing_parts = ("DescribeSubnets",)
    throttled = "RequestLimitExceeded", 503
    inside: ClassVar = [("InternalError", 500), ("ServiceUnavailable", 503), ("Unavailable", 503), ("BadGateway", 502)]


@pytest.mark.parametrize(("code", "status", "why"), REFUSALS)
async def test_a_refusal_is_told_with_its_reason(
    driver: AwsDriver, cloud: MotoCloud, code: str, status: int, why: RefusalReason
) -> None:
    cloud.inject_fault(Fault(FaultKind.ERROR, "RunInstances", code, status))
    (outcome,) = await driver.create(new_machine_specs(1))
    assert isinstance(outcome, CallRefused)
    assert (outcome.why, outcome.message) == (why, f"{code}: injected")


@pytest.mark.parametrize(("code", "status"), THROTTLING)
async def test_throttling_is_no_failure(driver: AwsDriver, cloud: MotoCloud, code: str, status: int) -> None:
    cloud.inject_fault(Fault(FaultKind.ERROR, "RunInstances", code, status))
    (outcome,) = await driver.create(new_machine_specs(1))
    assert isinstance(outcome, CallThrottled)
    assert outcome.retry_after_s > 0


async def test_a_throttled_listing_says_how_long_to_wait(driver: AwsDriver, cloud: MotoCloud) -> None:
    cloud.inject_fault(
        Fault(FaultKind.ERROR, "DescribeInstances", "RequestLimitExceeded", 503, headers=(("Retry-After", "7"),))
    )
    listing = await driver.observe()
    assert (listing.complete, listing.retry_after_s) == (False, 7.0)


async def test_the_provider_s_own_word_for_how_long_to_wait_counts(driver: AwsDriver, cloud: MotoCloud) -> None:
    cloud.inject_fault(
        Fault(FaultKind.ERROR, "RunInstances", "RequestLimitExceeded", 503, headers=(("Retry-After", "7"),))
    )
    (outcome,) = await driver.create(new_machine_specs(1))
    assert isinstance(outcome, CallThrottled)
    assert outcome.retry_after_s == 7.0


async def test_the_sdk_repeats_nothing_by_itself(driver: AwsDriver, cloud: MotoCloud) -> None:
    cloud.inject_fault(Fault(FaultKind.ERROR, "RunInstances", "RequestLimitExceeded", 503))
    await driver.create(new_machine_specs(1))
    assert cloud.calls["RunInstances"] == 1


async def test_closing_drops_what_was_not_sent_and_says_so(driver: AwsDriver, cloud: MotoCloud, ec2: Any) -> None:
    cloud.behaviour.latency = 0.2
    creating = asyncio.create_task(driver.create(new_machine_specs(3 * THREADS)))
    await until(lambda: cloud.calls["RunInstances"])
    await driver.close()
    kinds = [type(outcome) for outcome in await creating]
    assert kinds.count(TransientFailure) > 0
    assert kinds.count(CallAccepted) + kinds.count(TransientFailure) == len(kinds)
    assert len(describe_machines(ec2)) == kinds.count(CallAccepted)


async def test_a_budget_of_the_provider_is_felt_as_throttling_and_passes(driver: AwsDriver, cloud: MotoCloud) -> None:
    cloud.behaviour.calls, cloud.behaviour.window = 3, 3600.0
    wanted = new_machine_specs(8)
    kinds = [type(outcome) for outcome in await driver.create(wanted)]
    assert (kinds.count(CallAccepted), kinds.count(CallThrottled)) == (2, 6)
    cloud.behaviour.calls = None
    kinds = [type(outcome) for outcome in await driver.create(wanted)]
    assert (kinds.count(AlreadyDone), kinds.count(CallAccepted)) == (2, 6)


def outcome_of(call: str, code: str, status: int, message: str) -> FailedOutcome:
    answer = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return classify_answer(call, answer).outcome


@given(st.text(min_size=1), st.integers(500, 599), st.sampled_from(["run_instances", "stop_instances"]))
def test_no_unknown_error_inside_ec2_is_ever_taken_for_nothing_done(code: str, status: int, call: str) -> None:
    assert not isinstance(outcome_of(call, code, status, ""), TransientFailure)


@given(st.text(), st.integers(400, 499), st.sampled_from(["run_instances", "describe_instances"]), st.text())
def test_every_code_has_a_verdict_of_one_line(code: str, status: int, call: str, message: str) -> None:
    trouble = outcome_of(call, code, status, message)
    assert len(trouble.message.removeprefix(code).splitlines()) == 1
