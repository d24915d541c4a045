"""Answers and requests that are lost: each machine is made once, whatever is repeated."""

from typing import Any

import pytest
from msgspec.structs import replace

from stateward.drivers import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CallUnanswered,
    MachineAction,
    MachineState,
    RefusalReason,
)
from stateward.drivers.aws import AwsDriver
from stateward.drivers.aws.states import client_token
from tests.integration.drivers.aws.conftest import MakeDriver
from tests.integration.drivers.aws.ec2_machines import (
    create_machines,
    describe_machines,
    new_machine_specs,
    wait_for_state,
)
from tests.integration.drivers.aws.moto_cloud import MotoCloud
from tests.integration.drivers.cloud_faults import Fault, FaultKind


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST])
async def test_a_create_without_an_answer_that_is_repeated_makes_one_machine(
    driver: AwsDriver, cloud: MotoCloud, ec2: Any, kind: FaultKind
) -> None:
    cloud.inject_fault(Fault(kind, "RunInstances"))
    (want,) = new_machine_specs(1)
    (lost,) = await driver.create([want])
    (again,) = await driver.create([want])
    assert isinstance(lost, CallUnanswered)
    assert isinstance(again, AlreadyDone if kind is FaultKind.LOST_ANSWER else CallAccepted)
    assert [one["InstanceId"] for one in describe_machines(ec2)] == [again.native_id]


async def test_the_token_holds_where_the_listing_does_not_show_the_machine_yet(
    driver: AwsDriver, cloud: MotoCloud, ec2: Any
) -> None:
    cloud.behaviour.hidden = 3600.0
    cloud.inject_fault(Fault(FaultKind.LOST_ANSWER, "RunInstances"))
    (want,) = new_machine_specs(1)
    outcomes = [(await driver.create([want]))[0] for _ in range(3)]
    assert (await driver.observe()).machines == []
    assert isinstance(outcomes[0], CallUnanswered)
    assert isinstance(outcomes[1], CallAccepted)
    assert outcomes[1] == outcomes[2]
    assert cloud.calls["RunInstances"] == 3


async def test_a_token_with_other_parameters_is_a_conflict(driver: AwsDriver, cloud: MotoCloud) -> None:
    cloud.behaviour.hidden = 3600.0
    (want,) = new_machine_specs(1)
    await driver.create([want])
    (outcome,) = await driver.create([replace(want, spec="t3.micro")])
    assert isinstance(outcome, CallRefused)
    assert outcome.why is RefusalReason.CONFLICT


async def test_a_machine_that_is_terminated_and_forgotten_is_not_made_again(
    driver: AwsDriver, cloud: MotoCloud
) -> None:
    cloud.behaviour.remembered = 0.0
    (want,) = new_machine_specs(1)
    (made_,) = await driver.create([want])
    await wait_for_state(driver, [want.key])
    cloud.instances.kill(want.key)
    assert (await driver.observe()).machines == []
    (outcome,) = await driver.create([want])
    assert isinstance(made_, CallAccepted)
    assert isinstance(outcome, CallRefused)
    assert outcome.why is RefusalReason.CONFLICT


async def test_lost_answers_among_many_hurt_only_their_own(driver: AwsDriver, cloud: MotoCloud, ec2: Any) -> None:
    cloud.inject_fault(Fault(FaultKind.LOST_ANSWER, "RunInstances", times=3, skip=2))
    wanted = new_machine_specs(10)
    first = await driver.create(wanted)
    again = await driver.create(wanted)
    assert [type(one) for one in first].count(CallUnanswered) == 3
    assert all(isinstance(one, AlreadyDone) for one in again)
    assert len(describe_machines(ec2)) == 10


async def test_a_deed_without_an_answer_is_unanswered_for_all_that_it_named(
    driver: AwsDriver, cloud: MotoCloud
) -> None:
    handles = await create_machines(driver, 3)
    cloud.inject_fault(Fault(FaultKind.LOST_ANSWER, "StopInstances"))
    assert all(isinstance(one, CallUnanswered) for one in await driver.act(MachineAction.SUSPEND, handles))
    await wait_for_state(driver, [handle.key for handle in handles], MachineState.SUSPENDED)
    assert all(isinstance(one, AlreadyDone) for one in await driver.act(MachineAction.SUSPEND, handles))


async def test_a_reboot_without_an_answer_is_asked_for_again(driver: AwsDriver, cloud: MotoCloud) -> None:
    (handle,) = await create_machines(driver, 1)
    cloud.inject_fault(Fault(FaultKind.LOST_REQUEST, "RebootInstances"))
    asked = [replace(handle, token="t")]
    outcomes = [(await driver.act(MachineAction.REBOOT, asked))[0] for _ in range(3)]
    assert [type(one) for one in outcomes] == [CallUnanswered, CallAccepted, AlreadyDone]
    assert cloud.instances.reboots.total() == 1


async def test_a_new_machine_that_is_not_shown_yet_is_shown_later(driver: AwsDriver, cloud: MotoCloud) -> None:
    cloud.behaviour.hidden = 3600.0
    (want,) = new_machine_specs(1)
    await driver.create([want])
    listing = await driver.observe([want.key])
    assert (listing.complete, list(listing.machines)) == (True, [])
    cloud.behaviour.hidden = 0.0
    await wait_for_state(driver, [want.key])


async def test_a_terminated_machine_is_shown_for_a_while_and_then_no_more(driver: AwsDriver, cloud: MotoCloud) -> None:
    (handle,) = await create_machines(driver, 1)
    await driver.act(MachineAction.TERMINATE, [handle])
    await wait_for_state(driver, [handle.key], MachineState.TERMINATED)
    cloud.behaviour.remembered = 0.0
    listing = await driver.observe([handle.key])
    assert (listing.complete, list(listing.machines)) == (True, [])


async def test_one_page_without_an_answer_makes_the_listing_incomplete(make: MakeDriver, cloud: MotoCloud) -> None:
    driver = make()
    await create_machines(driver, 12)
    cloud.behaviour.page = 5
    cloud.inject_fault(Fault(FaultKind.LOST_REQUEST, "DescribeInstances", skip=1))
    listing = await driver.observe()
    assert (listing.complete, len(listing.machines)) == (False, 5)
    assert "describe_instances" in listing.problem


def test_any_key_gives_a_token_that_ec2_takes() -> None:
    for key in ("", "k", "k" * 1000, "schlüssel/✓"):
        token = client_token(key)
        assert token.isascii()
        assert len(token) <= 64
