"""Answers and requests that are lost, and operations that fail: each machine is made once, whatever is repeated."""

import asyncio

import pytest
from msgspec.structs import replace

from stateward.drivers import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CallUnanswered,
    MachineAction,
    MachineHandle,
    MachineState,
    RefusalReason,
)
from stateward.drivers.gcp import GcpDriver
from stateward.drivers.gcp.machines import MAX_FOLLOWED
from stateward.drivers.gcp.names import name_of
from tests.integration.drivers.cloud_faults import Fault, FaultKind
from tests.integration.drivers.gcp.conftest import MakeGcpDriver
from tests.integration.drivers.gcp.gce_cloud import GceCloud
from tests.integration.drivers.gcp.gce_test_machines import (
    create_machines,
    new_machine_specs,
    wait_for_state,
    wait_until_gone,
)

LOST = [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST]


@pytest.mark.parametrize("kind", LOST)
async def test_a_create_without_an_answer_that_is_repeated_makes_one_machine(
    driver: GcpDriver, cloud: GceCloud, kind: FaultKind
) -> None:
    cloud.inject_fault(Fault(kind, "instances.insert"))
    (want,) = new_machine_specs(1)
    (lost,) = await driver.create([want])
    (again,) = await driver.create([want])
    assert isinstance(lost, CallUnanswered)
    assert isinstance(again, (CallAccepted, AlreadyDone))
    assert [one.body["name"] for one in cloud.world.instances] == [again.native_id]


async def test_the_request_id_holds_where_the_listing_does_not_show_the_machine_yet(
    driver: GcpDriver, cloud: GceCloud
) -> None:
    cloud.behaviour.lag = 3600.0
    cloud.inject_fault(Fault(FaultKind.LOST_ANSWER, "instances.insert"))
    (want,) = new_machine_specs(1)
    outcomes = [(await driver.create([want]))[0] for _ in range(3)]
    assert list((await driver.observe()).machines) == []
    assert [type(one) for one in outcomes[:1]] == [CallUnanswered]
    assert all(isinstance(one, (CallAccepted, AlreadyDone)) for one in outcomes[1:])
    assert len(cloud.world.instances) == 1
    cloud.behaviour.lag = 0.0
    await wait_for_state(driver, [want.key])


async def test_the_name_holds_where_google_has_forgotten_the_request_id(driver: GcpDriver, cloud: GceCloud) -> None:
    (handle,) = await create_machines(driver, 1)
    cloud.world.by_request.clear()
    (again,) = await driver.create([replace(new_machine_specs(1)[0], key=handle.key)])
    assert again == AlreadyDone(handle.key, name_of(handle.key))
    assert len(cloud.world.instances) == 1


async def test_a_machine_that_is_deleted_is_not_made_again(driver: GcpDriver, cloud: GceCloud) -> None:
    (want,) = new_machine_specs(1)
    await driver.create([want])
    await wait_for_state(driver, [want.key])
    cloud.world.kill(want.key)
    (outcome,) = await driver.create([want])
    assert isinstance(outcome, CallRefused)
    assert outcome.why is RefusalReason.CONFLICT


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("ZONE_RESOURCE_POOL_EXHAUSTED", RefusalReason.CAPACITY),
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", RefusalReason.CAPACITY),
        ("QUOTA_EXCEEDED", RefusalReason.QUOTA),
    ],
)
async def test_a_machine_whose_operation_failed_is_shown_as_failed_and_can_be_terminated(
    make: MakeGcpDriver, cloud: GceCloud, code: str, why: RefusalReason
) -> None:
    driver = make()
    cloud.behaviour.insert_failures = (code,)
    (want,) = new_machine_specs(1)
    (outcome,) = await driver.create([want])
    assert isinstance(outcome, CallAccepted)
    (seen,) = await wait_for_state(driver, [want.key], MachineState.FAILED)
    assert (seen.native_state, code in seen.details["reason"]) == (code, True)
    assert [one.key for one in (await driver.observe()).machines] == [want.key]
    (refused,) = await make().create([want])  # after a restart, the same request returns the same operation
    assert isinstance(refused, CallRefused)
    assert refused.why is why
    (gone,) = await driver.act(MachineAction.TERMINATE, [MachineHandle(want.key)])
    assert isinstance(gone, AlreadyDone)
    await wait_until_gone(driver, want.key)


async def test_a_new_machine_that_no_listing_shows_yet_has_not_failed(driver: GcpDriver, cloud: GceCloud) -> None:
    cloud.behaviour.lag = 3600.0
    (want,) = new_machine_specs(1)
    await driver.create([want])
    for _ in range(3):
        listing = await driver.observe([want.key])
        assert (listing.complete, list(listing.machines)) == (True, [])
        # real time: a longer pause proves the same
        await asyncio.sleep(0.02)


async def test_operations_of_many_unlisted_machines_are_looked_at_in_turn(driver: GcpDriver, cloud: GceCloud) -> None:
    cloud.behaviour.lag, cloud.behaviour.step = 3600.0, 3600.0
    wanted = new_machine_specs(MAX_FOLLOWED + 5)
    await driver.create(wanted)
    await driver.observe()
    assert cloud.calls["zone_operations.get"] == MAX_FOLLOWED
    for one in cloud.world.operations.values():
        one.due, one.code = 0.0, "QUOTA_EXCEEDED"
    first, second = await driver.observe(), await driver.observe()
    assert (len(first.machines), len(second.machines)) == (MAX_FOLLOWED, len(wanted))
    assert {one.state for one in second.machines} == {MachineState.FAILED}


@pytest.mark.parametrize("kind", LOST)
async def test_a_reboot_without_an_answer_that_is_repeated_is_one_reboot_also_of_another_driver(
    make: MakeGcpDriver, cloud: GceCloud, kind: FaultKind
) -> None:
    first, second = make(), make()
    (handle,) = await create_machines(first, 1)
    cloud.inject_fault(Fault(kind, "instances.reset"))
    asked = [replace(handle, token="t")]
    outcomes = [(await driver.act(MachineAction.REBOOT, asked))[0] for driver in (first, second, first)]
    assert [type(one) for one in outcomes] == [CallUnanswered, CallAccepted, CallAccepted]
    assert cloud.world.resets.total() == 1


async def test_a_deed_without_an_answer_hurts_only_its_own_machine(driver: GcpDriver, cloud: GceCloud) -> None:
    handles = await create_machines(driver, 3)
    cloud.inject_fault(Fault(FaultKind.LOST_ANSWER, "instances.suspend"))
    kinds = [type(one) for one in await driver.act(MachineAction.SUSPEND, handles)]
    assert (kinds.count(CallUnanswered), kinds.count(CallAccepted)) == (1, 2)
    await wait_for_state(driver, [handle.key for handle in handles], MachineState.SUSPENDED)
    assert all(isinstance(one, AlreadyDone) for one in await driver.act(MachineAction.SUSPEND, handles))


async def test_lost_answers_among_many_hurt_only_their_own(driver: GcpDriver, cloud: GceCloud) -> None:
    cloud.inject_fault(Fault(FaultKind.LOST_ANSWER, "instances.insert", times=3, skip=2))
    wanted = new_machine_specs(10)
    kinds = [type(one) for one in await driver.create(wanted)]
    assert (kinds.count(CallUnanswered), kinds.count(CallAccepted)) == (3, 7)
    assert all(isinstance(one, (CallAccepted, AlreadyDone)) for one in await driver.create(wanted))
    assert len(cloud.world.instances) == 10


async def test_one_page_without_an_answer_makes_the_listing_incomplete(driver: GcpDriver, cloud: GceCloud) -> None:
    await create_machines(driver, 12)
    cloud.behaviour.page = 5
    cloud.inject_fault(Fault(FaultKind.LOST_REQUEST, "instances.list", skip=1))
    listing = await driver.observe()
    assert (listing.complete, len(listing.machines)) == (False, 5)
    assert "instances.list" in listing.problem


async def test_a_listing_with_a_warning_is_not_complete(driver: GcpDriver, cloud: GceCloud) -> None:
    cloud.behaviour.warning = "UNREACHABLE"
    listing = await driver.observe()
    assert (listing.complete, listing.problem) == (False, "instances.list: UNREACHABLE: injected")
    cloud.behaviour.warning = "NO_RESULTS_ON_PAGE"
    assert (await driver.observe()).complete
