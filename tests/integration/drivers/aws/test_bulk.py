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
from stateward.drivers.aws import AwsDriver, machines
from stateward.drivers.aws.machines import ids_in_text
from tests.integration.drivers.aws.ec2_machines import (
    create_machines,
    describe_machines,
    new_machine_specs,
    wait_for_state,
)
from tests.integration.drivers.aws.moto_cloud import MotoCloud
from tests.integration.drivers.cloud_faults import Fault, FaultKind

NOWHERE = "i-0123456789abcdef0"


async def test_more_machines_than_one_call_may_name_are_made_listed_over_pages_and_terminated_in_two_calls(
    driver: AwsDriver, cloud: MotoCloud, ec2: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines, "MAX_BULK", 20)
    wanted = new_machine_specs(24)
    assert all(isinstance(one, CallAccepted) for one in await driver.create(wanted))
    cloud.behaviour.page = 10
    cloud.calls.clear()
    listing = await driver.observe()
    assert (listing.complete, len(listing.machines), cloud.calls["DescribeInstances"]) == (True, 24, 3)
    handles = [
        MachineHandle(one.key, one.native_id) for one in await wait_for_state(driver, [want.key for want in wanted])
    ]
    assert all(isinstance(one, CallAccepted) for one in await driver.act(MachineAction.TERMINATE, handles))
    assert cloud.calls["TerminateInstances"] == 2
    await wait_for_state(driver, [handle.key for handle in handles], MachineState.TERMINATED)
    assert len(describe_machines(ec2, "terminated")) == 24


async def test_many_keys_are_looked_for_in_portions(driver: AwsDriver, cloud: MotoCloud) -> None:
    handles = await create_machines(driver, 3)
    cloud.calls.clear()
    listing = await driver.observe([handle.key for handle in handles] + [f"none-{number}" for number in range(500)])
    assert (listing.complete, {one.key for one in listing.machines}) == (True, {handle.key for handle in handles})
    assert cloud.calls["DescribeInstances"] == 3


async def test_a_machine_that_is_gone_does_not_spoil_the_deed_for_the_others(
    driver: AwsDriver, cloud: MotoCloud
) -> None:
    handles = await create_machines(driver, 4)
    asked = [*handles[:2], MachineHandle("gone", NOWHERE), *handles[2:]]
    cloud.calls.clear()
    outcomes = await driver.act(MachineAction.SUSPEND, asked)
    assert [one.key for one in outcomes] == [handle.key for handle in asked]
    assert [type(one) for one in outcomes] == [CallAccepted, CallAccepted, CallRefused, CallAccepted, CallAccepted]
    assert cloud.calls["StopInstances"] == 2


async def test_a_machine_in_the_wrong_state_is_refused_alone(driver: AwsDriver) -> None:
    handles = await create_machines(driver, 3)
    await driver.act(MachineAction.TERMINATE, handles[:1])
    await wait_for_state(driver, [handles[0].key], MachineState.TERMINATED)
    outcomes = await driver.act(MachineAction.SUSPEND, handles)
    assert isinstance(outcomes[0], CallRefused)
    assert outcomes[0].why is RefusalReason.CONFLICT
    assert all(isinstance(one, CallAccepted) for one in outcomes[1:])


async def test_where_ec2_does_not_say_which_it_is_the_portion_is_halved(driver: AwsDriver, cloud: MotoCloud) -> None:
    handles = await create_machines(driver, 4)
    cloud.inject_fault(Fault(FaultKind.ERROR, "StartInstances", "InsufficientInstanceCapacity", 500))
    await driver.act(MachineAction.SUSPEND, handles)
    await wait_for_state(driver, [handle.key for handle in handles], MachineState.SUSPENDED)
    assert all(isinstance(one, CallAccepted) for one in await driver.act(MachineAction.RESUME, handles))
    assert cloud.calls["StartInstances"] == 3


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "RequestLimitExceeded"])
async def test_what_holds_for_all_is_asked_only_once(driver: AwsDriver, cloud: MotoCloud, code: str) -> None:
    handles = await create_machines(driver, 5)
    cloud.inject_fault(Fault(FaultKind.ERROR, "StopInstances", code, 403, times=100))
    outcomes = await driver.act(MachineAction.SUSPEND, handles)
    assert all(isinstance(one, (CallRefused, CallThrottled)) for one in outcomes)
    assert cloud.calls["StopInstances"] == 1


async def test_a_machine_named_twice_gets_the_same_answer_twice(driver: AwsDriver) -> None:
    (handle,) = await create_machines(driver, 1)
    first, second = await driver.act(MachineAction.SUSPEND, [handle, MachineHandle(handle.key)])
    assert first == second == CallAccepted(handle.key, handle.native_id or "")


async def test_one_refused_want_among_many_is_refused_alone(driver: AwsDriver, cloud: MotoCloud, ec2: Any) -> None:
    cloud.inject_fault(Fault(FaultKind.ERROR, "RunInstances", "InsufficientInstanceCapacity", 500, skip=4))
    outcomes = await driver.create(new_machine_specs(9))
    assert [type(one) for one in outcomes].count(CallAccepted) == 8
    assert len(describe_machines(ec2)) == 8


async def test_what_is_there_already_costs_one_look_and_no_launch(driver: AwsDriver, cloud: MotoCloud) -> None:
    wanted = new_machine_specs(20)
    await driver.create(wanted)
    cloud.calls.clear()
    assert all(isinstance(one, AlreadyDone) for one in await driver.create(wanted))
    assert cloud.calls == {"DescribeInstances": 1}


def test_only_whole_ids_count_as_named() -> None:
    ids = ["i-0aa", "i-0aab", "i-0cc"]
    assert ids_in_text("The instance IDs 'i-0aab, i-0cc' do not exist", ids) == {"i-0aab", "i-0cc"}
