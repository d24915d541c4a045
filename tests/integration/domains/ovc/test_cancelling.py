"""A cancelled action ends with the observed outcome: on process nodes, and for actions that include children."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import get_args

import pytest

from stateward.domains.ovc.model import cloudspace_seen
from stateward.domains.ovc.nodes.driver_node import DriverNode
from stateward.domains.ovc.nodes.port import Power
from stateward.store import open_store
from tests.held_calls import Moment, hold_calls
from tests.integration.domains.ovc.machine_processes import nodes_in
from tests.integration.domains.ovc.ovc_harness import ADA, RECORDS_ONLY, Cloud, open_cloud
from tests.integration.drivers.local.host_machines import kill_all_in

POWERS = {"RUNNING": Power.ON, "PAUSED": Power.FROZEN, "HALTED": Power.OFF, "DELETED": Power.OFF}
NODE_METHODS = {"pause": "pause", "stop": "stop", "delete": "stop"}


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[Cloud]:
    """A node whose machines are processes of this host."""
    async with open_cloud(open_store(str(tmp_path / "stateward.db")), tmp_path, RECORDS_ONLY) as cloud:
        yield await cloud.create_base_objects(1, driver="process")
    for node in nodes_in(tmp_path):
        kill_all_in(node)


@pytest.mark.parametrize("action", ["pause", "stop", "delete"])
async def test_an_action_that_is_cancelled_before_its_call_leaves_a_process_machine_as_it_was(
    local: Cloud, action: str
) -> None:
    vm = await local.vm()
    node, key = await local.plugin.nodes.get(local.ns, await local.node_of(vm)), await local.machine(vm)
    with hold_calls(node, NODE_METHODS[action], "before") as held:
        begun = await local.ask(vm, action)
        await held.wait_for_arrival()
        await local.engine.cancel(local.ns, begun.op.id)
        assert (await local.ended(begun)).status == "cancelled"
    assert (await local.state(vm), await node.get_power(key), held.made) == ("RUNNING", Power.ON, 0)


@pytest.mark.parametrize("moment", get_args(Moment))
@pytest.mark.parametrize("action", ["pause", "stop", "delete"])
async def test_an_action_that_is_cancelled_during_its_call_ends_as_what_the_process_machine_is(
    local: Cloud, action: str, moment: Moment
) -> None:
    vm = await local.vm()
    node, key = await local.plugin.nodes.get(local.ns, await local.node_of(vm)), await local.machine(vm)
    assert isinstance(node, DriverNode)
    with hold_calls(node._driver, "act", moment) as held:
        begun = await local.ask(vm, action)
        await held.wait_for_arrival()
        await local.engine.cancel(local.ns, begun.op.id)
        held.release()
        assert (await local.ended(begun)).status == "succeeded"
    state = await local.state(vm)
    assert (state != "RUNNING", await node.get_power(key)) == (True, POWERS[state])


# --- what takes others along -----------------------------------------------------------------------------------------


async def cancelled_at(cloud: Cloud, door: str, id_: str, action: str) -> str:
    """Ask for an action, cancel it when somebody waits at a door, open the door, and return how it has ended."""
    cloud.gates.close(door)
    begun = await cloud.ask(id_, action, ADA)
    await cloud.gates.wait_for_arrival(door)
    await cloud.engine.cancel(cloud.ns, begun.op.id)
    ended = await cloud.ended(begun)
    cloud.gates.open(door)
    return ended.status


async def power_of_wall(cloud: Cloud) -> Power:
    """Return what the node says of a cloudspace's firewall."""
    seen = cloudspace_seen(await cloud.get(cloud.box))
    return (
        await (await cloud.plugin.nodes.get(cloud.ns, seen.node)).get_power(seen.machine) if seen.machine else Power.OFF
    )


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("action", ["delete", "destroy"])
async def test_a_cloudspace_whose_end_is_cancelled_before_anything_was_done_is_as_it_was(
    cloud: Cloud, action: str
) -> None:
    vm = await cloud.vm()
    assert await cancelled_at(cloud, "stop", cloud.box, action) == "cancelled"
    assert (await cloud.states(cloud.box, vm), await power_of_wall(cloud)) == (["DEPLOYED", "RUNNING"], Power.ON)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_cloudspace_whose_end_is_cancelled_after_its_machines_have_gone_is_not_told_as_not_done(
    cloud: Cloud,
) -> None:
    vm = await cloud.vm()
    await cloud.did(vm, "stop")  # only the firewall is left to be stopped
    assert await cancelled_at(cloud, "stop", cloud.box, "delete") == "failed"
    assert (await cloud.states(cloud.box, vm), await power_of_wall(cloud)) == (["DEPLOYED", "DELETED"], Power.ON)
    await cloud.did(cloud.box, "delete")


@pytest.mark.asyncio(loop_scope="module")
async def test_maintenance_that_is_cancelled_after_a_machine_was_stopped_is_not_told_as_not_done(
    cloud: Cloud,
) -> None:
    vms = await cloud.vms(3)
    places = [await cloud.node_of(vm) for vm in vms]
    (node, _), *_ = Counter(places).most_common(1)
    first, second = [vm for vm, place in zip(vms, places, strict=True) if place == node][:2]
    cloud.gates.close(f"stop:{second}")
    begun = await cloud.ask(node, "maintenance", ADA, vmaction="stop")
    await cloud.until_state(first, "HALTED")
    await cloud.engine.cancel(cloud.ns, begun.op.id)
    ended = await cloud.ended(begun)
    assert (ended.status, ended.error) == ("failed", "cancelled, and part of it was done")
    assert await cloud.states(node, first, second) == ["ENABLED", "HALTED", "RUNNING"]
