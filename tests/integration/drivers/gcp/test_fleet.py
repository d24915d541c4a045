"""A fleet on Compute Engine through the whole of mci: its network, its VMs, and one for which there is no room."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stateward.domains.mci.lifecycle import MciState, VmState
from stateward.domains.mci.model import CloudConnection, ImageRecord, SpecRecord, SubGroup
from stateward.store.records import Status
from tests.integration.domains.mci.conftest import ANN, NS, MciHarness, mci, open_harness
from tests.integration.drivers.gcp.gce_cloud import GceCloud
from tests.integration.drivers.gcp.gce_world import IMAGE, PROJECT, REGION, SPEC, ZONE
from tests.stores import fresh_store


@pytest.fixture
async def harness(cloud: GceCloud, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[MciHarness]:
    """Give a test the domain with a connection to the test cloud."""
    options = {"endpoint_url": cloud.url, "anonymous": "true", "project": PROJECT}
    async with open_harness(fresh_store("sqlite", request)(), tmp_path) as opened:
        connection = CloudConnection("gce", "gcp", REGION, ZONE, driver="gcp", options=options)
        await opened.service.add_connection(connection, ANN)
        await opened.service.register(NS, SpecRecord("small", "gce", SPEC), ANN)
        await opened.service.register(NS, ImageRecord("hill", "gce", IMAGE), ANN)
        yield opened


async def test_a_fleet_is_made_with_its_network_suspended_and_terminated(harness: MciHarness, cloud: GceCloud) -> None:
    done = await harness.created(mci("m1", SubGroup("web", 3, "small", "hill")))
    assert (done.status, done.error) == (Status.SUCCEEDED, None)
    (group,) = {one.body["tags"]["items"][0] for one in cloud.world.living()}
    assert group in cloud.world.resources["firewalls"]
    for action, state in (("suspend", MciState.SUSPENDED), ("terminate", MciState.TERMINATED)):
        verdict = await harness.service.control(NS, "m1", action, ANN)
        assert (await harness.ended(verdict.whole)).status is Status.SUCCEEDED
        assert await harness.state() == state
    assert cloud.world.living() == []


async def test_a_vm_for_which_there_is_no_room_fails_and_says_why(harness: MciHarness, cloud: GceCloud) -> None:
    cloud.behaviour.insert_failures = ("ZONE_RESOURCE_POOL_EXHAUSTED",)
    await harness.created(mci("m1", SubGroup("web", 3, "small", "hill")))
    vms = await harness.service.vms(NS, "m1")
    assert sorted(one.state for one in vms) == [VmState.FAILED, VmState.RUNNING, VmState.RUNNING]
    (failed,) = [one for one in vms if one.state == VmState.FAILED]
    operations = await harness.engine.store.reader.operations_of(failed.key, 10)
    assert any("ZONE_RESOURCE_POOL_EXHAUSTED" in str(one.error) for one in operations)
    vm = failed.id.partition(".")[2]
    terminated = await harness.ended(await harness.service.control_vm(NS, "m1", vm, "terminate", ANN, force=True))
    assert (terminated.status, len(cloud.world.living())) == (Status.SUCCEEDED, 2)
