"""Many machines: calls at once, pages, and many keys."""

from msgspec.structs import replace

from stateward.drivers import CallAccepted, CallRefused, CloudResource, MachineAction, MachineHandle, ResourceKind
from stateward.drivers.cloud.client import THREADS
from stateward.drivers.gcp import GcpDriver
from tests.integration.drivers.cloud_faults import Fault, FaultKind
from tests.integration.drivers.gcp.gce_cloud import GceCloud
from tests.integration.drivers.gcp.gce_test_machines import create_machines, new_machine_specs, wait_for_state
from tests.waiting import until


async def test_120_machines_are_made_listed_over_pages_and_terminated(driver: GcpDriver, cloud: GceCloud) -> None:
    wanted = new_machine_specs(120)
    outcomes = await driver.create(wanted)
    assert [one for one in outcomes if not isinstance(one, CallAccepted)] == []
    assert cloud.calls == {"images.get": 1, "instances.insert": 120}
    cloud.behaviour.page = 50
    cloud.calls.clear()
    listing = await driver.observe()
    assert (listing.complete, len(listing.machines), cloud.calls["instances.list"]) == (True, 120, 3)
    await wait_for_state(driver, [want.key for want in wanted])
    handles = [MachineHandle(want.key) for want in wanted]
    assert all(isinstance(one, CallAccepted) for one in await driver.act(MachineAction.TERMINATE, handles))
    assert cloud.calls["instances.delete"] == 120


async def test_creates_run_at_the_same_time_and_no_more_than_there_are_threads(
    driver: GcpDriver, cloud: GceCloud
) -> None:
    cloud.inject_fault(Fault(FaultKind.SILENCE, "instances.insert", times=10**6))
    import asyncio

    await driver.check("e2-micro", "hill-26")
    creating = asyncio.create_task(driver.create(new_machine_specs(2 * THREADS)))
    await until(lambda: cloud.calls["instances.insert"] >= THREADS)
    await asyncio.sleep(0.1)  # real time: more calls than threads would come within it, fewer never do
    assert cloud.calls["instances.insert"] == THREADS
    creating.cancel()
    await asyncio.gather(creating, return_exceptions=True)
    cloud.reset()


async def test_many_keys_are_looked_for_in_one_listing_of_everything(driver: GcpDriver, cloud: GceCloud) -> None:
    handles = await create_machines(driver, 3)
    cloud.calls.clear()
    listing = await driver.observe([handle.key for handle in handles[:2]] + [f"none-{one}" for one in range(500)])
    assert {one.key for one in listing.machines} == {handle.key for handle in handles[:2]}
    assert cloud.calls == {"instances.list": 1}


async def test_machines_with_an_ssh_key_read_it_once_for_all(driver: GcpDriver, cloud: GceCloud) -> None:
    key = await driver.ensure(CloudResource(ResourceKind.SSH_KEY, "ssh", "key"))
    assert isinstance(key, CallAccepted)
    cloud.calls.clear()
    wanted = [replace(one, resources={ResourceKind.SSH_KEY: key.native_id}) for one in new_machine_specs(10)]
    odd = replace(new_machine_specs(1)[0], resources={ResourceKind.SSH_KEY: "no-such-key"})
    outcomes = await driver.create([*wanted, odd])
    assert [type(one) for one in outcomes] == [CallAccepted] * 10 + [CallRefused]
    assert cloud.calls["projects.get"] == 1


async def test_one_refused_want_among_many_is_refused_alone(driver: GcpDriver, cloud: GceCloud) -> None:
    cloud.inject_fault(Fault(FaultKind.ERROR, "instances.insert", "quotaExceeded", 403, skip=4))
    kinds = [type(one) for one in await driver.create(new_machine_specs(9))]
    assert (kinds.count(CallAccepted), kinds.count(CallRefused)) == (8, 1)
    assert len(cloud.world.instances) == 8
