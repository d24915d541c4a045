"""Many machines: one bad one spoils nothing, pages are all read, and a call names as many as it may."""

from typing import Any

import pytest

from stateward.drivers import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CallThrottled,
    MachineAction,
    MachineHandle,
    MachineState,
    RefusalReason,
)
from stateward.drivers.aws import AwsDriver
from stateward.drivers.aws.instance_actions import ids_in_text
from tests.integration.drivers.aws.cloud import Cloud, Fault, Harm
from tests.integration.drivers.aws.hands import described, made, until, wants

NOWHERE = "i-0123456789abcdef0"


async def test_120_machines_are_made_listed_over_pages_and_terminated_in_two_calls(
    driver: AwsDriver, cloud: Cloud, ec2: Any
) -> None:
    wanted = wants(120)
    assert all(isinstance(one, CallAccepted) for one in await driver.create(wanted))
    cloud.manners.page = 50
    cloud.calls.clear()
    listing = await driver.observe()
    assert (listing.complete, len(listing.machines), cloud.calls["DescribeInstances"]) == (True, 120, 3)
    refs = [MachineHandle(one.key, one.native_id) for one in await until(driver, [want.key for want in wanted])]
    assert all(isinstance(one, CallAccepted) for one in await driver.act(MachineAction.TERMINATE, refs))
    assert cloud.calls["TerminateInstances"] == 2
    await until(driver, [ref.key for ref in refs], MachineState.TERMINATED)
    assert len(described(ec2, "terminated")) == 120


async def test_many_keys_are_looked_for_in_portions(driver: AwsDriver, cloud: Cloud) -> None:
    refs = await made(driver, 3)
    cloud.calls.clear()
    listing = await driver.observe([ref.key for ref in refs] + [f"none-{number}" for number in range(500)])
    assert (listing.complete, {one.key for one in listing.machines}) == (True, {ref.key for ref in refs})
    assert cloud.calls["DescribeInstances"] == 3


async def test_a_machine_that_is_gone_does_not_spoil_the_deed_for_the_others(driver: AwsDriver, cloud: Cloud) -> None:
    refs = await made(driver, 4)
    asked = [*refs[:2], MachineHandle("gone", NOWHERE), *refs[2:]]
    cloud.calls.clear()
    outcomes = await driver.act(MachineAction.SUSPEND, asked)
    assert [one.key for one in outcomes] == [ref.key for ref in asked]
    assert [type(one) for one in outcomes] == [CallAccepted, CallAccepted, CallRefused, CallAccepted, CallAccepted]
    assert cloud.calls["StopInstances"] == 2


async def test_a_machine_in_the_wrong_state_is_refused_alone(driver: AwsDriver) -> None:
    refs = await made(driver, 3)
    await driver.act(MachineAction.TERMINATE, refs[:1])
    await until(driver, [refs[0].key], MachineState.TERMINATED)
    outcomes = await driver.act(MachineAction.SUSPEND, refs)
    assert isinstance(outcomes[0], CallRefused)
    assert outcomes[0].why is RefusalReason.CONFLICT
    assert all(isinstance(one, CallAccepted) for one in outcomes[1:])


async def test_where_ec2_does_not_say_which_it_is_the_portion_is_halved(driver: AwsDriver, cloud: Cloud) -> None:
    refs = await made(driver, 4)
    cloud.harm(Fault(Harm.ERROR, "StartInstances", "InsufficientInstanceCapacity", 500))
    await driver.act(MachineAction.SUSPEND, refs)
    await until(driver, [ref.key for ref in refs], MachineState.SUSPENDED)
    assert all(isinstance(one, CallAccepted) for one in await driver.act(MachineAction.RESUME, refs))
    assert cloud.calls["StartInstances"] == 3


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "RequestLimitExceeded"])
async def test_what_holds_for_all_is_asked_only_once(driver: AwsDriver, cloud: Cloud, code: str) -> None:
    refs = await made(driver, 5)
    cloud.harm(Fault(Harm.ERROR, "StopInstances", code, 403, times=100))
    outcomes = await driver.act(MachineAction.SUSPEND, refs)
    assert all(isinstance(one, (CallRefused, CallThrottled)) for one in outcomes)
    assert cloud.calls["StopInstances"] == 1


async def test_a_machine_named_twice_gets_the_same_answer_twice(driver: AwsDriver) -> None:
    (ref,) = await made(driver, 1)
    first, second = await driver.act(MachineAction.SUSPEND, [ref, MachineHandle(ref.key)])
    assert first == second == CallAccepted(ref.key, ref.native_id or "")


async def test_one_refused_want_among_many_is_refused_alone(driver: AwsDriver, cloud: Cloud, ec2: Any) -> None:
    cloud.harm(Fault(Harm.ERROR, "RunInstances", "InsufficientInstanceCapacity", 500, skip=4))
    outcomes = await driver.create(wants(9))
    assert [type(one) for one in outcomes].count(CallAccepted) == 8
    assert len(described(ec2)) == 8


async def test_what_is_there_already_costs_one_look_and_no_launch(driver: AwsDriver, cloud: Cloud) -> None:
    wanted = wants(20)
    await driver.create(wanted)
    cloud.calls.clear()
    assert all(isinstance(one, AlreadyDone) for one in await driver.create(wanted))
    assert cloud.calls == {"DescribeInstances": 1}


def test_only_whole_ids_count_as_named() -> None:
    ids = ["i-0aa", "i-0aab", "i-0cc"]
    assert ids_in_text("The instance IDs 'i-0aab, i-0cc' do not exist", ids) == {"i-0aab", "i-0cc"}
