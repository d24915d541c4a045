"""Nodes: placement of VMs, maintenance, enable and decommission."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from stateward.domains.ovc.errors import AlreadyOnNode, LastNode, NodeDriverNotGranted, NodeNotReady
from stateward.domains.ovc.lifecycle import VM
from stateward.domains.ovc.model import NodeReport, NodeSpec, node_seen
from stateward.domains.ovc.nodes import NodeMachine, NodeRegistry
from stateward.domains.ovc.nodes.driver_node import DriverNode
from stateward.domains.ovc.runtime import OvcRuntime
from stateward.domains.ovc.service import OvcCaller
from stateward.engine import Denied, Object, Permanent, Refused, Request, UnitOfWork
from stateward.engine.requests import Creation
from stateward.errors import BadInput
from stateward.plugin.runtime import ProcessContext
from stateward.store.changes import Changes
from stateward.store.port import Tx
from stateward.store.records import Key, to_json
from stateward.workloads.confinement import Confinement
from tests.integration.domains.ovc.ovc_harness import ADA, RECORDS_ONLY, Cloud

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def on(cloud: Cloud, node: str, number: int) -> list[str]:
    """Make VMs, and have them on a node."""
    vms = await cloud.vms(number)
    for vm in vms:
        if await cloud.node_of(vm) != node:
            await cloud.did(vm, "migrate", ADA, node=node)
    return vms


async def report(cloud: Cloud, node: str) -> NodeReport:
    """Return the latest report of a node."""
    found = node_seen(await cloud.get(node)).report
    assert found is not None
    return found


async def where(cloud: Cloud, vms: list[str]) -> set[str]:
    """Return the nodes that VMs are on."""
    return {await cloud.node_of(vm) for vm in vms}


async def test_machines_spread_over_the_nodes(cloud: Cloud) -> None:
    vms = await cloud.vms(24)
    assert await where(cloud, vms) == set(cloud.nodes)


async def test_maintenance_moves_machines_away_and_enabling_brings_them_back_and_no_state_tells(cloud: Cloud) -> None:
    node, other = cloud.nodes
    vms = await on(cloud, node, 4)
    await cloud.did(vms[1], "pause")
    await cloud.did(vms[2], "stop")
    before = await cloud.states(*vms)
    await cloud.did(node, "maintenance", ADA)
    assert await cloud.states(node, *vms) == ["MAINTENANCE", *before]
    assert [await cloud.node_of(vm) for vm in vms] == [other, other, node, other]
    assert set((await report(cloud, node)).done) == {vms[0], vms[1], vms[3]}
    await cloud.did(node, "enable", ADA)
    assert await cloud.states(node, *vms) == ["ENABLED", *before]
    assert await where(cloud, vms) == {node}
    history = [line.target for line in await cloud.engine.history(cloud.ns, vms[0]) if line.target]
    assert history == ["VIRTUAL", "DEPLOYING", "RUNNING"]


async def test_machines_that_all_refuse_to_move_are_asked_again_after_a_pause(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, other = cloud.nodes
    vms, refused = await on(cloud, node, 2), set[tuple[str, str]]()
    kind = cloud.engine.kinds[VM.kind]
    guard = kind.guard
    assert guard is not None

    async def refuse_first(uow: UnitOfWork, request: Request, vm: Object) -> Request | None:
        if request.object in vms and (request.op, request.object) not in refused and len(refused) < len(vms):
            refused.add((request.op, request.object))
            raise Denied("not now")
        return await guard(uow, request, vm)

    monkeypatch.setattr(kind, "guard", refuse_first)
    await cloud.did(node, "maintenance", ADA)
    assert len(refused) == len(vms)
    assert await where(cloud, vms) == {other}
    await cloud.did(node, "enable", ADA)


async def test_maintenance_stops_machines_and_enabling_gives_them_back_what_they_had(cloud: Cloud) -> None:
    node, other = cloud.nodes
    vms = await on(cloud, node, 4)
    await cloud.did(vms[1], "pause")
    await cloud.did(vms[2], "stop")
    await cloud.did(node, "maintenance", ADA, vmaction="stop")
    assert await cloud.states(*vms) == ["HALTED"] * 4
    await cloud.did(vms[3], "start")  # a user will not wait
    assert await cloud.node_of(vms[3]) == other
    await cloud.did(node, "enable", ADA)
    assert await cloud.states(*vms) == ["RUNNING", "PAUSED", "HALTED", "RUNNING"]
    assert [await cloud.node_of(vm) for vm in vms] == [node, node, node, other]


async def test_a_machine_that_cannot_move_keeps_its_node_in_service_and_the_report_says_which(cloud: Cloud) -> None:
    node = cloud.nodes[0]
    vms = await on(cloud, node, 5)
    cloud.gates.fail_at(f"move:{vms[2]}", "its memory changes too fast")
    emptying = await cloud.do(node, "maintenance", ADA)
    assert (emptying.status, await cloud.state(node)) == ("failed", "ENABLED")
    told = await report(cloud, node)
    assert told.failed == {vms[2]: "its memory changes too fast"}
    assert set(told.done) == set(vms) - {vms[2]}
    assert await cloud.states(*vms) == ["RUNNING"] * 5
    cloud.gates.stop_failing(f"move:{vms[2]}")
    await cloud.did(node, "maintenance", ADA)
    await cloud.did(node, "enable", ADA)
    assert await where(cloud, vms) == {node}  # those of the first try as well


async def test_a_node_waits_for_what_its_machines_are_doing(cloud: Cloud) -> None:
    node, other = cloud.nodes
    vms, third = await on(cloud, node, 2), (await on(cloud, other, 1))[0]
    cloud.gates.close("pause")
    pausing = await cloud.ask(vms[0], "pause")
    emptying = await cloud.ask(node, "maintenance", ADA)
    assert emptying.object.state == "PUTTING_IN_MAINTENANCE"
    with pytest.raises(NodeNotReady):
        await cloud.ask(third, "migrate", ADA, node=node)
    cloud.gates.open("pause")
    await cloud.ended(pausing)
    assert (await cloud.ended(emptying)).status == "succeeded"
    assert await cloud.states(*vms) == ["PAUSED", "RUNNING"]
    assert await where(cloud, vms) == {other}
    assert set((await report(cloud, node)).done) == set(vms)  # the busy one as well
    await cloud.did(node, "enable", ADA)
    assert await where(cloud, vms) == {node}


async def test_a_machine_on_its_way_to_a_node_is_moved_on_when_that_goes_into_maintenance(cloud: Cloud) -> None:
    node, other = cloud.nodes
    vm = (await on(cloud, other, 1))[0]
    cloud.gates.close("move")
    moving = await cloud.ask(vm, "migrate", ADA, node=node)
    emptying = await cloud.ask(node, "maintenance", ADA)
    cloud.gates.open("move")
    assert (await cloud.ended(moving)).status == "succeeded"
    assert (await cloud.ended(emptying)).status == "succeeded"
    assert await cloud.node_of(vm) == other


async def test_a_request_that_comes_while_its_machine_is_moved_away_is_done_afterwards(cloud: Cloud) -> None:
    node, other = cloud.nodes
    vm = (await on(cloud, node, 1))[0]
    cloud.gates.close("move")
    emptying = await cloud.ask(node, "maintenance", ADA)
    await cloud.gates.wait_for_arrival("move")
    pausing = await cloud.ask(vm, "pause")
    assert pausing.object.state == "PAUSING"
    cloud.gates.open("move")
    assert (await cloud.ended(pausing)).status == "succeeded"
    assert (await cloud.ended(emptying)).status == "succeeded"
    assert (await cloud.state(vm), await cloud.node_of(vm)) == ("PAUSED", other)


async def test_a_node_leaves_with_everything_moved_away_and_the_last_one_stays(cloud: Cloud) -> None:
    node, other = cloud.nodes
    vms = await on(cloud, node, 3)
    await cloud.did(vms[1], "stop")
    await cloud.did(node, "decommission", ADA)
    assert await cloud.states(node, *vms) == ["DECOMMISSIONED", "RUNNING", "HALTED", "RUNNING"]
    assert await where(cloud, vms) == {other}
    with pytest.raises(LastNode):
        await cloud.ask(other, "decommission", ADA)
    again = await cloud.ask(node, "decommission", ADA)
    assert (again.operation, again.again) == (None, True)


async def test_what_was_stopped_for_maintenance_runs_elsewhere_when_its_node_leaves(cloud: Cloud) -> None:
    node, other = cloud.nodes
    vms = await on(cloud, node, 2)
    await cloud.did(node, "maintenance", ADA, vmaction="stop")
    await cloud.did(node, "decommission", ADA)
    assert await cloud.states(*vms) == ["RUNNING", "RUNNING"]
    assert await where(cloud, vms) == {other}


async def test_nodes_are_for_administrators(cloud: Cloud) -> None:
    for action in ("maintenance", "enable", "decommission"):
        with pytest.raises(Refused):
            await cloud.ask(cloud.nodes[0], action)
    with pytest.raises(BadInput, match="move or stop"):
        await cloud.ask(cloud.nodes[0], "maintenance", ADA, vmaction="burn")


async def test_a_machine_is_not_moved_to_where_it_is(cloud: Cloud) -> None:
    vm = await cloud.vm()
    with pytest.raises(AlreadyOnNode):
        await cloud.ask(vm, "migrate", ADA, node=await cloud.node_of(vm))


@pytest.mark.parametrize("option", ["folder", "program"])
async def test_where_a_node_is_and_what_it_runs_is_not_for_whoever_registers_it(cloud: Cloud, option: str) -> None:
    for driver in ("process", "qemu", "simulated"):
        with pytest.raises(BadInput, match=f"options.{option}: '{option}' must be one of "):
            await cloud.node(driver=driver, **{option: "/bin/sh"})


async def test_a_stored_node_that_names_a_program_is_not_opened_and_says_why(cloud: Cloud, tmp_path: Path) -> None:
    key, program = Key(cloud.ns, await cloud.node()), tmp_path / "not-qemu"

    async def store_program(tx: Tx) -> None:  # as versions did that checked options in `register` only
        found = (await tx.objects([key]))[key]
        spec = to_json(NodeSpec("n", "qemu", {"program": str(program)}))
        await tx.apply(Changes(objects=[replace(found, spec=spec, version=found.version + 1)]))

    await cloud.engine.store.transact(store_program)
    nodes = NodeRegistry(tmp_path)
    nodes.reader = cloud.engine.store.reader
    with pytest.raises(Permanent, match=r"options.program: 'program' must be one of accel, arch"):
        await nodes.get(*key)


async def test_a_host_driver_needs_a_grant_whichever_way_the_node_is_registered(cloud: Cloud) -> None:
    with pytest.raises(NodeDriverNotGranted):
        await cloud.service.create(cloud.ns, NodeSpec("host", "process"), OvcCaller("admin", "liz"))
    engine, creates = cloud.engine, Creation("ovc.node", labels='{"name": "host"}')
    asked = engine.request(cloud.ns, "host", "register", actor="admin", spec=NodeSpec("host", "qemu"), creates=creates)
    with pytest.raises(NodeDriverNotGranted):
        await engine.submit(asked)


async def test_nodes_of_real_processes_carry_machines_too(cloud: Cloud) -> None:
    one, other = await cloud.node(driver="process"), await cloud.node(driver="process")
    for node in cloud.nodes:
        await cloud.did(node, "decommission", ADA)
    vms = await cloud.vms(2)
    assert await where(cloud, vms) <= {one, other}
    for action, state in (("pause", "PAUSED"), ("resume", "RUNNING"), ("reset", "RUNNING"), ("reboot", "RUNNING")):
        await cloud.did(vms[0], action)
        assert await cloud.state(vms[0]) == state
    await cloud.did(vms[0], "pause")
    node = await cloud.node_of(vms[0])
    await cloud.did(node, "maintenance", ADA)
    assert (await cloud.state(vms[0]), await where(cloud, vms)) == ("PAUSED", {other if node == one else one})
    await cloud.did(cloud.box, "destroy", ADA)  # with its firewall, which is a process as well


async def test_a_node_whose_driver_does_not_work_is_not_in_service(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")  # no QEMU is found
    operation = await cloud.ended(await cloud.service.create(cloud.ns, NodeSpec("broken", "qemu"), ADA))
    assert (operation.status, "qemu" in str(operation.error)) == ("failed", True)
    assert await cloud.state(operation.object) == "ERROR"


@pytest.mark.parametrize("required", [True, False])
async def test_the_machines_of_a_node_are_confined_as_those_of_the_whole_server(tmp_path: Path, required: bool) -> None:
    plugin = OvcRuntime(ProcessContext(tmp_path, confinement=Confinement([tmp_path], required=required)), RECORDS_ONLY)
    node = plugin.nodes.factories["process"]("n1", NodeSpec("n1", "process"))
    assert isinstance(node, DriverNode)
    await node.start(NodeMachine("k1", "m1", "tiny"))
    try:
        pid = (await node._driver.observe(["k1"])).machines[0].details["pid"]
        assert f"NoNewPrivs:\t{int(required)}\n" in Path(f"/proc/{pid}/status").read_text()
    finally:
        await node.stop("k1")
        await node.close()
