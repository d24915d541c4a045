"""The virtual firewall of a cloudspace: a machine that runs while the cloudspace is deployed, on any node."""

from random import Random

import pytest

from stateward.domains.ovc.drift_detector import DriftDetector
from stateward.domains.ovc.errors import NoNode, NotNow
from stateward.domains.ovc.model import CloudspaceSeen, CloudspaceSpec, cloudspace_seen, node_seen
from stateward.domains.ovc.nodes.port import Power
from tests.integration.domains.ovc.ovc_harness import ADA, ANN, Cloud
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def wall(cloud: Cloud, box: str = "") -> CloudspaceSeen:
    """Return where a cloudspace's firewall is."""
    return cloudspace_seen(await cloud.get(box or cloud.box))


async def power(cloud: Cloud, at: CloudspaceSeen) -> Power:
    """Return what a node says of a firewall."""
    return await (await cloud.plugin.nodes.get(cloud.ns, at.node)).get_power(at.machine)


async def look(cloud: Cloud) -> None:
    """Go round all nodes."""
    await DriftDetector(cloud.engine, cloud.plugin.nodes, Random(1), every=0.0, apart=0.0).check_namespace(cloud.ns)


async def test_it_has_power_while_its_cloudspace_is_deployed(cloud: Cloud) -> None:
    first = await wall(cloud)
    assert (first.node in cloud.nodes, await power(cloud, first)) == (True, Power.ON)
    await cloud.did(cloud.box, "disable")
    await cloud.did(cloud.box, "enable")
    assert await wall(cloud) == first


async def test_pausing_stops_it_and_resuming_and_resetting_start_it(cloud: Cloud) -> None:
    for action in ("resume", "reset"):
        before = await wall(cloud)
        await cloud.did(cloud.box, "pause", ADA)
        assert (await power(cloud, before), (await wall(cloud)).machine) == (Power.OFF, "")
        await cloud.did(cloud.box, action, ADA)
        after = await wall(cloud)
        assert (after.machine != before.machine, await power(cloud, after)) == (True, Power.ON)


async def test_resetting_one_that_runs_boots_it_anew_where_it_is(cloud: Cloud) -> None:
    before = await wall(cloud)
    await cloud.did(cloud.box, "reset", ADA)
    assert (await wall(cloud), await power(cloud, before)) == (before, Power.ON)


async def test_it_goes_down_with_its_cloudspace_and_comes_back_with_it(cloud: Cloud) -> None:
    first = await wall(cloud)
    await cloud.did(cloud.box, "delete")
    assert (await power(cloud, first), (await wall(cloud)).machine) == (Power.OFF, "")
    await cloud.did(cloud.box, "restore")
    second = await wall(cloud)
    assert await power(cloud, second) is Power.ON
    await cloud.did(cloud.box, "destroy")
    assert await power(cloud, second) is Power.OFF


async def test_a_cloudspace_whose_firewall_does_not_come_up_is_in_error_and_can_be_deployed_again(cloud: Cloud) -> None:
    cloud.gates.fail_at("start", "no memory")
    made = await cloud.service.create(cloud.ns, CloudspaceSpec("new", cloud.account), ANN)
    box = made.object.id
    assert (await cloud.ended(made)).status == "failed"
    assert (await cloud.state(box), len((await wall(cloud, box)).stale_machines)) == ("ERROR", 1)
    cloud.gates.stop_failing("start")
    await cloud.did(box, "deploy")
    assert (await power(cloud, await wall(cloud, box)), (await wall(cloud, box)).stale_machines) == (Power.ON, ())


async def test_all_that_several_failed_deploys_may_have_left_is_stopped_before_the_next(cloud: Cloud) -> None:
    cloud.gates.fail_at("start", "no memory")
    made = await cloud.service.create(cloud.ns, CloudspaceSpec("new", cloud.account), ANN)
    box = made.object.id
    assert (await cloud.ended(made)).status == "failed"
    (first,) = (await wall(cloud, box)).stale_machines
    assert (await cloud.do(box, "deploy")).status == "failed"
    second = (await wall(cloud, box)).stale_machines[-1]
    cloud.gates.stop_failing("start")
    await cloud.start_late(first, second)
    await cloud.did(box, "deploy")
    assert await cloud.powers(first, second) == [Power.OFF, Power.OFF]


async def test_all_that_several_failed_moves_may_have_left_is_stopped_before_the_next(cloud: Cloud) -> None:
    node, left = (await wall(cloud)).node, []
    cloud.gates.fail_at(f"start:{cloud.box}", "no memory")
    for _ in range(2):
        assert (await cloud.do(node, "maintenance", ADA)).status == "failed"
        left.append((await wall(cloud)).stale_machines[-1])
    cloud.gates.stop_failing(f"start:{cloud.box}")
    await cloud.start_late(*left)
    await cloud.did(node, "maintenance", ADA)
    assert await cloud.powers(*left) == [Power.OFF, Power.OFF]


async def test_without_a_node_there_is_no_cloudspace(cloud: Cloud) -> None:
    nowhere = cloud.in_new_namespace()
    nowhere.account = await nowhere.new_account()
    with pytest.raises(NoNode):
        await nowhere.new_box()


async def test_maintenance_brings_it_elsewhere_and_no_state_tells(cloud: Cloud) -> None:
    before = await wall(cloud)
    history = len([line for line in await cloud.engine.history(cloud.ns, cloud.box) if line.target])
    await cloud.did(before.node, "maintenance", ADA)
    after = await wall(cloud)
    assert (after.node not in ("", before.node), await power(cloud, after)) == (True, Power.ON)
    assert (await power(cloud, before), await cloud.state(cloud.box)) == (Power.OFF, "DEPLOYED")
    assert len([line for line in await cloud.engine.history(cloud.ns, cloud.box) if line.target]) == history


async def test_where_there_is_no_other_node_it_waits_for_one(cloud: Cloud) -> None:
    first = await wall(cloud)
    other = next(node for node in cloud.nodes if node != first.node)
    await cloud.did(other, "maintenance", ADA)
    await cloud.did(first.node, "maintenance", ADA, vmaction="stop")
    assert ((await wall(cloud)).machine, await power(cloud, first)) == ("", Power.OFF)
    await look(cloud)
    assert ((await wall(cloud)).machine, await cloud.state(cloud.box)) == ("", "DEPLOYED")
    await cloud.did(other, "enable", ADA)
    back = await wall(cloud)
    assert (back.node, await power(cloud, back)) == (other, Power.ON)


async def test_one_that_does_not_come_up_elsewhere_keeps_its_node_in_service(cloud: Cloud) -> None:
    before = await wall(cloud)
    cloud.gates.fail_at(f"start:{cloud.box}", "no memory")
    emptying = await cloud.do(before.node, "maintenance", ADA)
    assert (emptying.status, await cloud.state(before.node)) == ("failed", "ENABLED")
    report = node_seen(await cloud.get(before.node)).report
    assert report is not None
    assert report.failed == {cloud.box: "no memory"}
    assert (await power(cloud, before), (await wall(cloud)).machine) == (Power.ON, before.machine)
    cloud.gates.stop_failing(f"start:{cloud.box}")
    await cloud.did(before.node, "maintenance", ADA)
    assert ((await wall(cloud)).stale_machines, await power(cloud, await wall(cloud))) == ((), Power.ON)


async def test_one_request_waits_while_it_is_brought_elsewhere_and_a_second_is_refused(cloud: Cloud) -> None:
    cloud.gates.close(f"start:{cloud.box}")
    emptying = await cloud.ask((await wall(cloud)).node, "maintenance", ADA)
    await cloud.gates.wait_for_arrival(f"start:{cloud.box}")
    disabling = await cloud.ask(cloud.box, "disable")
    assert disabling.object.state == "DISABLING"
    with pytest.raises(NotNow, match=disabling.op.id):
        await cloud.ask(cloud.box, "delete", ADA)
    cloud.gates.open(f"start:{cloud.box}")
    assert (await cloud.ended(disabling)).status == "succeeded"
    assert (await cloud.ended(emptying)).status == "succeeded"
    assert (await cloud.state(cloud.box), await power(cloud, await wall(cloud))) == ("DISABLED", Power.ON)


async def test_it_leaves_with_a_node_that_leaves(cloud: Cloud) -> None:
    before = await wall(cloud)
    await cloud.did(before.node, "decommission", ADA)
    after = await wall(cloud)
    assert (after.node != before.node, await power(cloud, after)) == (True, Power.ON)


async def test_one_that_died_is_brought_up_again_and_no_state_tells(cloud: Cloud) -> None:
    before = await wall(cloud)
    await (await cloud.plugin.nodes.get(cloud.ns, before.node)).stop(before.machine)
    await look(cloud)

    await until(lambda: wall(cloud), lambda firewall: firewall.machine not in ("", before.machine))
    after = await wall(cloud)
    assert (after.node, await power(cloud, after), await cloud.state(cloud.box)) == (before.node, Power.ON, "DEPLOYED")


async def test_a_restore_that_cannot_be_done_leaves_no_firewall_running(cloud: Cloud) -> None:
    vm = await cloud.vm()
    await cloud.did(vm, "stop")
    await cloud.did(cloud.box, "delete")
    cloud.gates.fail_at(f"start:{cloud.box}", "no memory")
    restoring = await cloud.do(cloud.box, "restore")
    assert (restoring.status, "no memory" in str(restoring.error)) == ("failed", True)
    assert await cloud.states(cloud.box, vm) == ["DELETED", "DELETED"]
    cloud.gates.stop_failing(f"start:{cloud.box}")
    await cloud.did(cloud.box, "restore")
    assert (await power(cloud, await wall(cloud)), await cloud.state(vm)) == (Power.ON, "HALTED")
