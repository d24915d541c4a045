"""Many machines: one bad one spoils nothing, pages are all read, and a listing costs four calls for all of them."""

from msgspec.structs import replace

from stateward.drivers import AlreadyDone, CallAccepted, CallRefused, MachineAction, MachineHandle, RefusalReason
from stateward.drivers.azure import AzureDriver
from tests.integration.drivers.azure.arm_cloud import ArmCloud
from tests.integration.drivers.azure.azure_machines import (
    counts,
    create_machines,
    new_machine_specs,
    wait_for_state,
    wait_until_gone,
)
from tests.integration.drivers.cloud_faults import Fault, FaultKind

LISTINGS = {
    "LIST virtualMachines": 3,
    "LIST virtualMachines/statuses": 3,
    "LIST networkInterfaces": 3,
    "LIST publicIPAddresses": 1,
}


async def test_30_machines_are_made_listed_over_pages_and_terminated(driver: AzureDriver, cloud: ArmCloud) -> None:
    wanted = new_machine_specs(30)
    assert all(isinstance(one, CallAccepted) for one in await driver.create(wanted))
    keys = [want.key for want in wanted]
    await wait_for_state(driver, keys)
    cloud.behaviour.page = 12
    cloud.calls.clear()
    listing = await driver.observe()
    assert (listing.complete, {one.key for one in listing.machines}) == (True, set(keys))
    assert cloud.calls == LISTINGS
    assert len({one.private_ip for one in listing.machines}) == 30
    outcomes = await driver.act(MachineAction.TERMINATE, [MachineHandle(key) for key in keys])
    assert all(isinstance(one, CallAccepted) for one in outcomes)
    await wait_until_gone(driver, *keys)
    assert counts(cloud) == [0, 0, 0, 0]


async def test_a_listing_of_some_keys_costs_no_more_than_one_of_all(driver: AzureDriver, cloud: ArmCloud) -> None:
    handles = await create_machines(driver, 3)
    cloud.calls.clear()
    listing = await driver.observe([handle.key for handle in handles[:2]] + [f"none-{number}" for number in range(500)])
    assert {one.key for one in listing.machines} == {handle.key for handle in handles[:2]}
    assert cloud.calls.total() == 4


async def test_each_machine_gets_its_own_answer_in_order(driver: AzureDriver) -> None:
    handles = await create_machines(driver, 3)
    asked = [handles[0], MachineHandle("gone"), *handles[1:]]
    outcomes = await driver.act(MachineAction.SUSPEND, asked)
    assert [one.key for one in outcomes] == [handle.key for handle in asked]
    assert [type(one) for one in outcomes] == [CallAccepted, CallRefused, CallAccepted, CallAccepted]


async def test_a_machine_named_twice_is_acted_on_once(driver: AzureDriver, cloud: ArmCloud) -> None:
    (handle,) = await create_machines(driver, 1)
    first, second = await driver.act(MachineAction.SUSPEND, [handle, MachineHandle(handle.key)])
    assert first == second == CallAccepted(handle.key, handle.native_id or "")
    assert cloud.calls["POST virtualMachines/deallocate"] == 1


async def test_one_refused_want_among_many_is_refused_alone_and_leaves_nothing(
    driver: AzureDriver, cloud: ArmCloud
) -> None:
    cloud.inject_fault(Fault(FaultKind.ERROR, "PUT virtualMachines", "AllocationFailed", 409, skip=4))
    outcomes = await driver.create(new_machine_specs(9))
    assert [type(one) for one in outcomes].count(CallAccepted) == 8
    assert [one.why for one in outcomes if isinstance(one, CallRefused)] == [RefusalReason.CAPACITY]
    assert counts(cloud) == [8, 8, 8, 0]


async def test_what_is_there_already_costs_one_look_each(driver: AzureDriver, cloud: ArmCloud) -> None:
    wanted = new_machine_specs(5)
    await driver.create(wanted)
    cloud.calls.clear()
    assert all(isinstance(one, AlreadyDone) for one in await driver.create([*wanted, replace(wanted[0], name="x")]))
    assert cloud.calls == {"GET virtualMachines": 5}
