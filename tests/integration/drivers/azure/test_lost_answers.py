"""Answers and requests that are lost, and processes that die in between: one machine is made, and nothing is left."""

import asyncio
from typing import Any

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
    Outcome,
    RefusalReason,
    TransientFailure,
)
from stateward.drivers.azure import AzureDriver
from stateward.drivers.azure.client import ArmClient
from stateward.drivers.azure.machines import AzureMachines
from stateward.drivers.azure.names import arm_name
from stateward.engine.worker.lease import LEASE_S
from tests.integration.drivers.azure.arm_cloud import ArmCloud
from tests.integration.drivers.azure.azure_machines import (
    counts,
    create_machines,
    new_machine_specs,
    wait_for_state,
    wait_until_gone,
)
from tests.integration.drivers.azure.conftest import MakeDriver
from tests.integration.drivers.cloud_faults import Fault, FaultKind

STEPS = ("PUT publicIPAddresses", "PUT networkInterfaces", "PUT virtualMachines")
LOST = (FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST)


@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize("step", STEPS)
async def test_a_create_that_is_repeated_continues_where_it_stopped(
    make: MakeDriver, cloud: ArmCloud, step: str, kind: FaultKind
) -> None:
    cloud.inject_fault(Fault(kind, step))
    (want,) = new_machine_specs(1)
    (lost,) = await make(public_address="true").create([want])
    assert isinstance(lost, CallUnanswered)
    driver = make(public_address="true")
    (again,) = await driver.create([want])
    assert isinstance(again, AlreadyDone if (step, kind) == (STEPS[2], FaultKind.LOST_ANSWER) else CallAccepted)
    await wait_for_state(driver, [want.key])
    assert counts(cloud) == [1, 1, 1, 1]


@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize("step", STEPS)
async def test_a_create_that_nobody_continues_is_found_by_its_key_and_terminated_whole(
    make: MakeDriver, cloud: ArmCloud, step: str, kind: FaultKind
) -> None:
    cloud.inject_fault(Fault(kind, step))
    (want,) = new_machine_specs(1)
    await make(public_address="true").create([want])
    driver = make()  # also a driver that gives no public addresses
    keys = [one.key for one in (await driver.observe()).machines]
    assert keys == ([] if (step, kind) == (STEPS[0], FaultKind.LOST_REQUEST) else [want.key])
    (outcome,) = await driver.act(MachineAction.TERMINATE, [MachineHandle(want.key)])
    assert isinstance(outcome, CallAccepted if keys else CallRefused)
    await wait_until_gone(driver, want.key)
    assert counts(cloud) == [0, 0, 0, 0]


async def test_parts_without_a_machine_are_shown_as_not_finished(make: MakeDriver, cloud: ArmCloud) -> None:
    driver = make(public_address="true")
    cloud.inject_fault(Fault(FaultKind.LOST_REQUEST, STEPS[2]))
    (want,) = new_machine_specs(1)
    await driver.create([want])
    (seen,) = (await driver.observe()).machines
    assert (seen.state, seen.name) == (MachineState.PENDING, want.name)
    assert seen.native_state == "NetworkInterface/Succeeded, PublicIPAddress/Succeeded"
    cloud.records.of("networkInterfaces")[arm_name(want.key)].state = "Deleting"
    (seen,) = (await driver.observe()).machines
    assert seen.state is MachineState.TERMINATING


@pytest.mark.parametrize("calls", range(1, 8))
async def test_a_worker_that_is_killed_after_any_call_leaves_what_the_next_one_continues(
    make: MakeDriver, cloud: ArmCloud, calls: int
) -> None:
    (want,) = new_machine_specs(1)
    cloud.behaviour.latency = 0.01
    creating = asyncio.create_task(make(public_address="true").create([want]))
    while not creating.done() and cloud.calls.total() < calls:
        await asyncio.sleep(0)
    creating.cancel()
    await asyncio.gather(creating, return_exceptions=True)
    cloud.behaviour.latency = 0.0
    driver = make(public_address="true")
    (outcome,) = await driver.create([want])
    assert isinstance(outcome, CallAccepted | AlreadyDone), outcome
    await wait_for_state(driver, [want.key])
    assert counts(cloud) == [1, 1, 1, 1]
    await driver.act(MachineAction.TERMINATE, [MachineHandle(want.key)])
    await wait_until_gone(driver, want.key)
    assert counts(cloud) == [0, 0, 0, 0]


async def test_a_terminate_that_is_killed_between_parts_is_continued(make: MakeDriver, cloud: ArmCloud) -> None:
    driver = make(public_address="true")
    cloud.inject_fault(Fault(FaultKind.LOST_REQUEST, STEPS[2]))
    (want,) = new_machine_specs(1)
    await driver.create([want])
    cloud.inject_fault(Fault(FaultKind.LOST_ANSWER, "DELETE networkInterfaces"))
    (lost,) = await driver.act(MachineAction.TERMINATE, [MachineHandle(want.key)])
    (again,) = await driver.act(MachineAction.TERMINATE, [MachineHandle(want.key)])
    assert isinstance(lost, CallUnanswered)
    assert isinstance(again, CallAccepted)
    assert counts(cloud) == [0, 0, 0, 0]


@pytest.mark.parametrize("kind", ["virtualMachines", "networkInterfaces", "publicIPAddresses", "disks"])
async def test_not_found_in_answer_to_a_delete_means_that_it_is_gone(
    driver: AzureDriver, cloud: ArmCloud, kind: str
) -> None:
    cloud.inject_fault(Fault(FaultKind.LOST_REQUEST, STEPS[2]))
    (want,) = new_machine_specs(1)
    await driver.create([want])
    cloud.inject_fault(Fault(FaultKind.ERROR, f"DELETE {kind}", "ResourceNotFound", 404))
    (outcome,) = await driver.act(MachineAction.TERMINATE, [MachineHandle(want.key)])
    assert isinstance(outcome, CallRefused if kind == "networkInterfaces" else CallAccepted)


async def test_parts_that_azure_keeps_for_a_while_are_shown_until_they_are_removed(
    driver: AzureDriver, cloud: ArmCloud
) -> None:
    cloud.behaviour.reserved = 3600.0
    want = replace(new_machine_specs(1)[0], spec="no-such-size")
    (refused,) = await driver.create([want])
    assert isinstance(refused, CallRefused)
    assert refused.why is RefusalReason.INVALID
    assert [one.key for one in (await driver.observe()).machines] == [want.key]
    cloud.records.of("networkInterfaces")[arm_name(want.key)].reserved_until = 0.0
    (outcome,) = await driver.act(MachineAction.TERMINATE, [MachineHandle(want.key)])
    assert isinstance(outcome, CallAccepted)
    assert counts(cloud) == [0, 0, 0, 0]


async def test_a_repeated_create_never_changes_a_machine(driver: AzureDriver, cloud: ArmCloud) -> None:
    (handle,) = await create_machines(driver, 1)
    before = cloud.records.of("virtualMachines")[arm_name(handle.key)].body["etag"]
    cloud.inject_fault(Fault(FaultKind.ERROR, "GET virtualMachines", "ResourceNotFound", 404))
    (again,) = await driver.create([replace(new_machine_specs(1)[0], key=handle.key, name="other")])
    assert again == AlreadyDone(handle.key, handle.native_id or "")
    assert cloud.calls["PUT virtualMachines"] == 2
    assert cloud.records.of("virtualMachines")[arm_name(handle.key)].body["etag"] == before


async def test_a_name_that_somebody_else_uses_is_not_touched(driver: AzureDriver, cloud: ArmCloud) -> None:
    (handle,) = await create_machines(driver, 1)
    cloud.records.of("virtualMachines")[arm_name(handle.key)].body["tags"] = {"stateward:key": "other"}
    (outcome,) = await driver.create([replace(new_machine_specs(1)[0], key=handle.key)])
    assert isinstance(outcome, CallRefused)
    assert outcome.why is RefusalReason.CONFLICT


async def test_a_machine_that_is_being_removed_is_not_made_again(make: MakeDriver, cloud: ArmCloud) -> None:
    driver = make()
    (handle,) = await create_machines(driver, 1)
    cloud.behaviour.ending = 3600.0
    await driver.act(MachineAction.TERMINATE, [handle])
    want = replace(new_machine_specs(1)[0], key=handle.key)
    for one in (driver, make()):
        (outcome,) = await one.create([want])
        assert isinstance(outcome, CallRefused)
        assert outcome.why is RefusalReason.CONFLICT


async def test_a_deed_without_an_answer_is_harmless_when_repeated(driver: AzureDriver, cloud: ArmCloud) -> None:
    handles = await create_machines(driver, 3)
    cloud.inject_fault(Fault(FaultKind.LOST_ANSWER, "POST virtualMachines/deallocate", times=3))
    assert all(isinstance(one, CallUnanswered) for one in await driver.act(MachineAction.SUSPEND, handles))
    await wait_for_state(driver, [handle.key for handle in handles], MachineState.SUSPENDED)
    assert all(isinstance(one, CallAccepted) for one in await driver.act(MachineAction.SUSPEND, handles))
    await wait_for_state(driver, [handle.key for handle in handles], MachineState.SUSPENDED)


@pytest.mark.parametrize(("kind", "restarts"), [(FaultKind.LOST_REQUEST, 1), (FaultKind.LOST_ANSWER, 2)])
async def test_a_restart_without_an_answer_is_asked_for_again(
    driver: AzureDriver, cloud: ArmCloud, kind: FaultKind, restarts: int
) -> None:
    (handle,) = await create_machines(driver, 1)
    cloud.inject_fault(Fault(kind, "POST virtualMachines/restart"))
    asked = [replace(handle, token="t")]
    outcomes: list[Outcome] = []
    for _ in range(3):
        outcomes += await driver.act(MachineAction.REBOOT, asked)
        await wait_for_state(driver, [handle.key])
    assert [type(one) for one in outcomes] == [CallUnanswered, CallAccepted, AlreadyDone]
    assert cloud.machines.restarts.total() == restarts


async def test_a_new_machine_that_is_not_listed_yet_is_listed_later(driver: AzureDriver, cloud: ArmCloud) -> None:
    cloud.behaviour.hidden = 3600.0
    (want,) = new_machine_specs(1)
    await driver.create([want])
    listing = await driver.observe([want.key])
    assert (listing.complete, list(listing.machines)) == (True, [])
    assert isinstance((await driver.create([want]))[0], AlreadyDone)
    cloud.behaviour.hidden = 0.0
    await wait_for_state(driver, [want.key])


@pytest.mark.parametrize("skip", [0, 1])
async def test_one_page_without_an_answer_makes_the_listing_incomplete(
    driver: AzureDriver, cloud: ArmCloud, skip: int
) -> None:
    await create_machines(driver, 3)
    cloud.behaviour.page = 2
    cloud.inject_fault(Fault(FaultKind.LOST_REQUEST, "LIST virtualMachines", skip=skip))
    listing = await driver.observe()
    assert (listing.complete, "compute.virtual_machines.list" in listing.problem) == (False, True)


@pytest.mark.parametrize("step", ["VirtualMachine", "PublicIPAddress"])
async def test_a_create_that_stands_still_makes_no_machine_that_was_terminated_meanwhile(
    make: MakeDriver, cloud: ArmCloud, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The process stands still before the first part, or after it: another process terminates the machine then."""
    slow, other, now = make(public_address="true"), make(public_address="true"), [0.0]
    slow._machines._clock = lambda: now[0]
    reached, opened = asyncio.Event(), asyncio.Event()
    find, put = ArmClient.find, AzureMachines._put

    async def stand_still() -> None:
        if not reached.is_set():
            reached.set()
            await opened.wait()

    async def slow_find(*args: Any) -> Any:
        found = await find(*args)
        if step == "VirtualMachine":
            await stand_still()
        return found

    async def slow_put(machines: AzureMachines, *args: Any) -> None:
        await put(machines, *args)
        if step == "PublicIPAddress":
            await stand_still()

    monkeypatch.setattr(ArmClient, "find", slow_find)
    monkeypatch.setattr(AzureMachines, "_put", slow_put)
    (want,) = new_machine_specs(1)
    creating = asyncio.create_task(slow.create([want]))
    await reached.wait()
    await other.act(MachineAction.TERMINATE, [MachineHandle(want.key)])
    now[0] += 2 * LEASE_S
    opened.set()
    (outcome,) = await creating
    assert isinstance(outcome, TransientFailure if step == "VirtualMachine" else CallRefused)
    assert counts(cloud) == [0, 0, 0, 0]
