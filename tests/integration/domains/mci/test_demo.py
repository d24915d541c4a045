"""The demo's MCIs: created once, kept in motion, repaired, and removed from this host when the demo stops."""

import asyncio
from random import Random

import pytest

from stateward.domains.mci.demo import FLEET, HERE, NS, SPARE, MciDemo
from stateward.domains.mci.lifecycle import MCI
from stateward.domains.mci.model import vm_of
from stateward.domains.mci.provider.catalogue import LOCAL
from stateward.drivers import MachineState, ProviderRegion
from stateward.lifecycle import TRANSITIONAL
from stateward.store.filters import JournalFilter
from stateward.store.records import Object
from tests.integration.domains.mci.conftest import PATIENT, MciHarness
from tests.stores import fresh_store
from tests.waiting import until

SHOP, LAB, BOX = FLEET


@pytest.fixture
def new_store(request: pytest.FixtureRequest) -> object:
    """Use one store only: what is shown here is the same on both."""
    return fresh_store("sqlite", request)


def show(harness: MciHarness, seed: int = 1) -> MciDemo:
    # real time: the pace of the demo, on which nothing depends
    return MciDemo(harness.service, Random(seed), pause=0.0, sleep=lambda _: asyncio.sleep(0.01))


async def at_rest(harness: MciHarness, name: str) -> Object:
    """Wait until nothing is done to an MCI."""
    return await until(
        lambda: harness.engine.record(NS, name),
        lambda obj: MCI.state(obj.state).state_class is not TRANSITIONAL and not obj.op,
    )


async def processes(harness: MciHarness) -> list[MachineState]:
    listing = await (await harness.plugin.clients.for_connection(LOCAL)).driver.observe()
    return [one.state for one in listing.machines if one.state is not MachineState.TERMINATED]


async def test_an_mci_is_made_once_and_found_again(harness: MciHarness) -> None:
    await harness.service.ensure_namespaces([NS])
    await show(harness).look_after(LAB)
    made = await at_rest(harness, "lab")
    assert made.state == "Running"
    await show(harness).look_after(LAB)
    assert (await harness.engine.record(NS, "lab")).created == made.created


async def test_what_is_well_is_kept_in_motion_within_bounds(harness: MciHarness) -> None:
    await harness.service.ensure_namespaces([NS])
    user, events = show(harness), set[str]()
    async with asyncio.timeout(PATIENT):
        while not {"suspend", "resume", "reboot", "scale out", "scale in"} <= events:
            await user.look_after(LAB)
            await at_rest(harness, "lab")
            assert len(await harness.service.vms(NS, "lab")) <= LAB.groups[0].size + SPARE + 1
            lines = await harness.engine.store.reader.journal(0, 10_000, JournalFilter(ns=NS))
            events = {line.event for line in lines}


async def test_vms_that_broke_down_are_replaced(harness: MciHarness) -> None:
    await harness.service.ensure_namespaces([NS])
    await show(harness).look_after(LAB)
    await at_rest(harness, "lab")
    first = vm_of((await harness.service.vms(NS, "lab"))[0])
    harness.cloud.fail(ProviderRegion(first.provider, first.region), first.uid)
    await harness.plugin.reconciler.reconcile_all()

    async def mended() -> bool:
        await show(harness).look_after(LAB)
        vms = await harness.service.vms(NS, "lab")
        return len(vms) >= 3 and all(vm_of(one).uid != first.uid and one.state == "Running" for one in vms)

    await until(mended)


async def test_the_processes_end_with_the_demo(harness: MciHarness) -> None:
    living = asyncio.create_task(show(harness).run())

    await until(lambda: processes(harness), lambda pids: len(pids) >= BOX.groups[0].size)
    living.cancel()
    with pytest.raises(asyncio.CancelledError):
        await living

    async def gone() -> bool:
        states = {one.state for one in await harness.service.vms(NS, HERE)}
        return not await processes(harness) and states <= {"Terminated"}

    await until(gone)
