"""Capacity of cloudlets: concurrent requests end at exactly the limit, and an excess is an alert."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from stateward.agents.simulation import SimulatedSite
from stateward.agents.site import SiteCapacity
from stateward.domains.edge.errors import CapacityExceeded
from stateward.domains.edge.lifecycle import FLAVOR
from stateward.domains.edge.model import ClusterInst, FlavorSpec, cloudlet_status
from stateward.domains.edge.policy.capacity import ResourceAmounts
from stateward.domains.edge.service import Service
from stateward.errors import BadInput
from stateward.store.port import Store
from tests.integration.domains.edge.conftest import ADA, ANN, NS, AgentRunner, EdgeHarness, open_harness

C1 = "munich:c1"


async def limited(harness: EdgeHarness, cores: float = 0.0, memory: int = 0) -> AgentRunner:
    """Create a cloudlet whose agent has a capacity, and a flavor of one core and 1000 bytes."""
    await harness.service.put_record(NS, FLAVOR.kind, "m1", FlavorSpec("tiny", 1.0, 1000), ANN)
    runner = AgentRunner("munich", SimulatedSite(), capacity=SiteCapacity(cores, memory))
    return await harness.cloudlet(runner=runner)


async def create(service: Service, name: str, nodes: int = 1) -> bool:
    try:
        await service.create_cluster(NS, "munich", name, ClusterInst(flavor="m1", nodes=nodes), ANN)
    except CapacityExceeded:
        return False
    return True


async def test_concurrent_creates_of_two_controllers_end_at_exactly_the_limit(
    new_store: Callable[[], Store], tmp_path: Path
) -> None:
    async with open_harness(new_store(), tmp_path) as harness, open_harness(new_store(), tmp_path) as other:
        await limited(harness, cores=5)
        services = harness.service, other.service
        tries = [create(services[n % 2], f"c{n}") for n in range(12)]
        assert sum(await asyncio.gather(*tries)) == 5
        assert (await harness.service.used_capacities(NS, [await harness.get("munich")]))["munich"].cores == 5


async def test_growing_beyond_the_capacity_is_refused_and_shrinking_makes_room(harness: EdgeHarness) -> None:
    await limited(harness, cores=4, memory=3000)
    await harness.cluster(flavor="m1", nodes=2)
    with pytest.raises(CapacityExceeded, match="too few bytes of memory: 4,000 asked, 0 used, 3,000 free"):
        await harness.service.update(NS, C1, "edge.clusterinst", {"nodes": 4}, ANN)
    await harness.ended(await harness.service.update(NS, C1, "edge.clusterinst", {"nodes": 3}, ANN))
    assert not await create(harness.service, "c2")
    await harness.ended(await harness.service.update(NS, C1, "edge.clusterinst", {"nodes": 2}, ANN))
    assert await create(harness.service, "c2")


async def test_the_size_of_a_flavor_counts_and_a_malformed_one_is_refused_with_the_flavor(harness: EdgeHarness) -> None:
    await limited(harness, cores=5, memory=4 << 30)
    for name, flavor in {
        "m1": FlavorSpec("2c512m"),
        "half": FlavorSpec("2c512m", cores=0.5),
        "named": FlavorSpec("huge"),
    }.items():
        await harness.service.put_record(NS, FLAVOR.kind, name, flavor, ANN)
    assert await create(harness.service, "c1", nodes=2)
    assert not await create(harness.service, "c2")
    await harness.cluster("c3", flavor="half")
    await harness.cluster("c4", flavor="named")
    used = (await harness.service.used_capacities(NS, [await harness.get("munich")]))["munich"]
    assert used == ResourceAmounts(4.5, 1 << 30)
    for size in ("0.5c256m", "2c", "0c1g", "2c512"):
        with pytest.raises(BadInput, match="such as 2c512m"):
            await harness.service.put_record(NS, FLAVOR.kind, "m1", FlavorSpec(size), ANN)


async def test_an_agent_that_comes_back_with_less_leaves_what_runs_and_raises_an_alert(harness: EdgeHarness) -> None:
    runner = await limited(harness, cores=4)
    await harness.cluster(flavor="m1", nodes=3)
    await runner.kill()
    await harness.until("munich", "Offline")
    runner.capacity = SiteCapacity(2.0)
    runner.start(harness.hub)
    await harness.online()
    await harness.plugin.policy_controller._reconcile_all()
    alerts = cloudlet_status(await harness.get("munich")).alerts
    assert [(one.name, one.reason) for one in alerts] == [("over capacity", "clusters take 3 of 2 cores")]
    await harness.ended(await harness.service.update(NS, C1, "edge.clusterinst", {"nodes": 2}, ADA))
    await harness.plugin.policy_controller._reconcile_all()
    assert cloudlet_status(await harness.get("munich")).alerts == ()
    events = [one.event for one in await harness.history("munich") if "capacity" in one.event]
    assert events == ["over capacity", "over capacity ended"]
