"""What EC2 says, in the words of the port: over the wire for each code, and for any code whatever."""

import asyncio
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.drivers import Accepted, Already, Deed, Ref, Refused, Throttled, Transient, Unanswered, Why
from stateward.drivers.aws import AwsDriver
from stateward.drivers.aws.ec2_client import THREADS
from stateward.drivers.aws.errors import verdict
from tests.integration.drivers.aws.cloud import Cloud, Fault, Harm
from tests.integration.drivers.aws.conftest import MakeDriver
from tests.integration.drivers.aws.hands import described, made, wants

REFUSALS = [
    ("InsufficientInstanceCapacity", 500, Why.CAPACITY),
    ("InsufficientFreeAddressesInSubnet", 400, Why.CAPACITY),
    ("InstanceLimitExceeded", 400, Why.QUOTA),
    ("VcpuLimitExceeded", 400, Why.QUOTA),
    ("InvalidInstanceID.NotFound", 400, Why.NOT_FOUND),
    ("InvalidAMIID.NotFound", 400, Why.NOT_FOUND),
    ("InvalidSubnetID.NotFound", 400, Why.NOT_FOUND),
    ("IncorrectInstanceState", 400, Why.CONFLICT),
    ("IncorrectState", 400, Why.CONFLICT),
    ("IdempotentParameterMismatch", 400, Why.CONFLICT),
    ("IdempotentInstanceTerminated", 400, Why.CONFLICT),
    ("OperationNotPermitted", 400, Why.CONFLICT),
    ("UnauthorizedOperation", 403, Why.AUTH),
    ("AuthFailure", 401, Why.AUTH),
    ("ExpiredToken", 400, Why.AUTH),
    ("OptInRequired", 401, Why.AUTH),
    ("InvalidParameterValue", 400, Why.INVALID),
    ("InvalidInstanceType", 400, Why.INVALID),
    ("Unsupported", 400, Why.INVALID),
    ("DependencyViolation", 400, Why.IN_USE),
    ("InvalidGroup.InUse", 400, Why.IN_USE),
]
THROTTLING = [("RequestLimitExceeded", 503), ("Throttling", 400), ("ThrottlingException", 400)]
ITS_OWN_FAULT = [("InternalError", 500), ("ServiceUnavailable", 503), ("Unavailable", 503), ("BadGateway", 502)]


@pytest.mark.parametrize(("code", "status", "why"), REFUSALS)
async def test_a_refusal_is_told_with_its_reason(
    driver: AwsDriver, cloud: Cloud, code: str, status: int, why: Why
) -> None:
    cloud.harm(Fault(Harm.ERROR, "RunInstances", code, status))
    (outcome,) = await driver.create(wants(1))
    assert isinstance(outcome, Refused)
    assert (outcome.why, outcome.message) == (why, f"{code}: injected")


@pytest.mark.parametrize(("code", "status"), THROTTLING)
async def test_throttling_is_no_failure(driver: AwsDriver, cloud: Cloud, code: str, status: int) -> None:
    cloud.harm(Fault(Harm.ERROR, "RunInstances", code, status))
    (outcome,) = await driver.create(wants(1))
    assert isinstance(outcome, Throttled)
    assert outcome.after > 0


async def test_a_throttled_listing_says_how_long_to_wait(driver: AwsDriver, cloud: Cloud) -> None:
    cloud.harm(Fault(Harm.ERROR, "DescribeInstances", "RequestLimitExceeded", 503, headers=(("Retry-After", "7"),)))
    listing = await driver.observe()
    assert (listing.complete, listing.after) == (False, 7.0)


async def test_a_check_that_is_throttled_says_neither_yes_nor_no(driver: AwsDriver, cloud: Cloud) -> None:
    cloud.harm(Fault(Harm.ERROR, "DescribeInstanceTypes", "RequestLimitExceeded", 503))
    assert isinstance(await driver.check("t3.nano", "ami-1"), Throttled)


async def test_a_listing_of_parts_that_is_throttled_is_not_complete(driver: AwsDriver, cloud: Cloud) -> None:
    cloud.harm(Fault(Harm.ERROR, "DescribeSubnets", "RequestLimitExceeded", 503))
    listing = await driver.parts()
    assert (listing.complete, "RequestLimitExceeded" in listing.trouble) == (False, True)


async def test_the_provider_s_own_word_for_how_long_to_wait_counts(driver: AwsDriver, cloud: Cloud) -> None:
    cloud.harm(Fault(Harm.ERROR, "RunInstances", "RequestLimitExceeded", 503, headers=(("Retry-After", "7"),)))
    (outcome,) = await driver.create(wants(1))
    assert isinstance(outcome, Throttled)
    assert outcome.after == 7.0


@pytest.mark.parametrize(("code", "status"), ITS_OWN_FAULT)
async def test_after_an_error_inside_ec2_nobody_knows_what_was_done(
    driver: AwsDriver, cloud: Cloud, code: str, status: int
) -> None:
    cloud.harm(Fault(Harm.DONE_BUT_ERROR, "RunInstances", code, status))
    (want,) = wants(1)
    (outcome,) = await driver.create([want])
    assert isinstance(outcome, Unanswered)
    assert [one.key for one in (await driver.observe()).seen] == [want.key]


@pytest.mark.parametrize(("code", "status"), ITS_OWN_FAULT)
async def test_where_only_reading_failed_nothing_was_done(
    driver: AwsDriver, cloud: Cloud, ec2: Any, code: str, status: int
) -> None:
    cloud.harm(Fault(Harm.ERROR, "DescribeInstances", code, status))
    (outcome,) = await driver.create(wants(1))
    assert isinstance(outcome, Transient)
    assert described(ec2) == []


async def test_an_endpoint_that_nobody_listens_at_was_never_reached(make: MakeDriver) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    driver = make(endpoint_url=f"http://127.0.0.1:{port}")
    (outcome,) = await driver.act(Deed.TERMINATE, [Ref("key", "i-1234567890abcdef0")])
    assert isinstance(outcome, Transient)


async def test_silence_is_no_answer(make: MakeDriver, cloud: Cloud) -> None:
    driver = make(read_timeout="1.5")
    cloud.harm(Fault(Harm.SILENCE, "RunInstances"))
    (outcome,) = await driver.create(wants(1))
    assert isinstance(outcome, Unanswered)


async def test_the_sdk_repeats_nothing_by_itself(driver: AwsDriver, cloud: Cloud) -> None:
    cloud.harm(Fault(Harm.ERROR, "RunInstances", "RequestLimitExceeded", 503))
    await driver.create(wants(1))
    assert cloud.calls["RunInstances"] == 1


async def test_a_closed_driver_does_nothing_and_says_so(driver: AwsDriver) -> None:
    (ref,) = await made(driver, 1)
    await driver.close()
    (outcome,) = await driver.act(Deed.TERMINATE, [ref])
    assert isinstance(outcome, Transient)
    assert not (await driver.observe()).complete


async def test_closing_drops_what_was_not_sent_and_says_so(driver: AwsDriver, cloud: Cloud, ec2: Any) -> None:
    cloud.manners.latency = 0.2
    creating = asyncio.create_task(driver.create(wants(3 * THREADS)))
    while not cloud.calls["RunInstances"]:
        await asyncio.sleep(0.01)
    await driver.close()
    kinds = [type(outcome) for outcome in await creating]
    assert kinds.count(Transient) > 0
    assert kinds.count(Accepted) + kinds.count(Transient) == len(kinds)
    assert len(described(ec2)) == kinds.count(Accepted)


async def test_a_caller_that_is_cancelled_is_cancelled(driver: AwsDriver, cloud: Cloud) -> None:
    cloud.harm(Fault(Harm.SILENCE, "DescribeInstances"))
    looking = asyncio.create_task(driver.observe())
    while not cloud.calls["DescribeInstances"]:
        await asyncio.sleep(0.01)
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking
    cloud.reset()


async def test_a_budget_of_the_provider_is_felt_as_throttling_and_passes(driver: AwsDriver, cloud: Cloud) -> None:
    cloud.manners.calls, cloud.manners.window = 3, 3600.0
    wanted = wants(8)
    kinds = [type(outcome) for outcome in await driver.create(wanted)]
    assert (kinds.count(Accepted), kinds.count(Throttled)) == (2, 6)
    cloud.manners.calls = None
    kinds = [type(outcome) for outcome in await driver.create(wanted)]
    assert (kinds.count(Already), kinds.count(Accepted)) == (2, 6)


@given(st.text(min_size=1), st.integers(500, 599), st.sampled_from(["run_instances", "stop_instances"]))
def test_no_unknown_error_inside_ec2_is_ever_taken_for_nothing_done(code: str, status: int, call: str) -> None:
    assert not isinstance(verdict(call, code, status, ""), Transient)


@given(st.text(), st.integers(400, 499), st.sampled_from(["run_instances", "describe_instances"]), st.text())
def test_every_code_has_a_verdict_of_one_line(code: str, status: int, call: str, message: str) -> None:
    trouble = verdict(call, code, status, message)
    assert len(trouble.message.removeprefix(code).splitlines()) == 1
