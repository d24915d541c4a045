"""Drift detection: a machine that changes by itself is noticed; a node that does not answer proves nothing."""

import asyncio
import os
import signal
from pathlib import Path
from random import Random
from shutil import which
from typing import Any

import pytest

from stateward.domains.ovc.drift_detector import DriftDetector
from stateward.domains.ovc.lifecycle import NODE, VM
from stateward.domains.ovc.model import node_seen, vm_seen
from stateward.domains.ovc.nodes.port import Hypervisor, Power
from stateward.domains.ovc.settings import Settings
from stateward.engine import Denied, Refused
from stateward.lifecycle import PROVIDER
from stateward.store import open_store
from stateward.store.filters import Page, Selector
from stateward.store.records import Object
from tests.integration.domains.ovc.machine_processes import vms_of
from tests.integration.domains.ovc.ovc_harness import ADA, FILES, Cloud, open_cloud
from tests.integration.drivers.local.host_machines import needs_qemu
from tests.stopped_processes import stop_process
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


def rounds(cloud: Cloud) -> DriftDetector:
    """Return rounds in which it is always this process's turn."""
    return DriftDetector(cloud.engine, cloud.plugin.nodes, Random(1), every=0.0, apart=0.0)


async def look(cloud: Cloud) -> None:
    """Go round once."""
    await rounds(cloud).check_namespace(cloud.ns)


async def behind(cloud: Cloud, vm: str) -> tuple[Hypervisor, str]:
    """Return a VM's node and machine, to do something to it behind the domain's back."""
    return await cloud.plugin.nodes.get(cloud.ns, await cloud.node_of(vm)), await cloud.machine(vm)


async def test_a_machine_that_lost_its_power_is_halted_and_the_report_says_so(cloud: Cloud) -> None:
    vm = await cloud.vm()
    node, machine = await behind(cloud, vm)
    await node.stop(machine)
    assert await cloud.state(vm) == "RUNNING"
    await look(cloud)
    assert await cloud.state(vm) == "HALTED"
    line = (await cloud.engine.history(cloud.ns, vm))[-1]
    assert (line.actor, line.who, line.event) == (PROVIDER, await cloud.node_of(vm), "shows off")
    healed = (await cloud.service.healing(cloud.ns, 0.0)).healed
    assert [(one.object, one.how, one.state) for one in healed] == [(vm, "shows off", "HALTED")]


async def test_an_error_with_one_machine_keeps_no_other_from_being_looked_at(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = sorted(await cloud.vms(2))
    for vm in (bad, good):
        node, machine = await behind(cloud, vm)
        await node.stop(machine)
    act = cloud.engine.act

    async def act_or_fail(ns: str, id_: str, *how: Any, **more: Any) -> Any:
        if id_ == bad:
            raise ValueError("broken")
        return await act(ns, id_, *how, **more)

    monkeypatch.setattr(cloud.engine, "act", act_or_fail)
    await look(cloud)
    assert await cloud.states(bad, good) == ["RUNNING", "HALTED"]
    monkeypatch.undo()
    await look(cloud)
    assert await cloud.state(bad) == "HALTED"


async def test_what_was_lost_is_swept_before_the_machine_gets_power_again(cloud: Cloud) -> None:
    vm = await cloud.vm()
    node, machine = await behind(cloud, vm)
    await node.stop(machine)
    await look(cloud)
    seen = vm_seen(await cloud.get(vm))
    assert (seen.machine, [one.machine for one in seen.stale_machines]) == ("", [machine])
    await cloud.did(vm, "start")
    seen = vm_seen(await cloud.get(vm))
    assert (seen.machine != machine, seen.stale_machines) == (True, ())


async def test_what_was_lost_is_swept_with_what_was_left_before(cloud: Cloud) -> None:
    vm = await cloud.vm()
    left = await cloud.cancel_migration(vm)
    node, machine = await behind(cloud, vm)
    await node.stop(machine)
    await look(cloud)
    await cloud.start_late(left)
    await cloud.did(vm, "start")
    assert await cloud.powers(left) == [Power.OFF]


async def test_a_machine_that_was_frozen_or_let_go_by_another_hand_shows_as_what_it_is(cloud: Cloud) -> None:
    vm = await cloud.vm()
    node, machine = await behind(cloud, vm)
    await node.pause(machine)
    await look(cloud)
    assert await cloud.state(vm) == "PAUSED"
    await node.resume(machine)
    await look(cloud)
    assert await cloud.state(vm) == "RUNNING"


async def test_what_is_as_it_should_be_is_left_alone(cloud: Cloud) -> None:
    vms = await cloud.vms(4)
    await cloud.did(vms[1], "pause")
    await cloud.did(vms[2], "stop")
    await cloud.did(vms[3], "delete")
    before = [await cloud.get(vm) for vm in vms]
    await look(cloud)
    assert [await cloud.get(vm) for vm in vms] == before


async def test_a_node_that_cannot_say_changes_nothing_and_says_so(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    vm = await cloud.vm()
    node, machine = await behind(cloud, vm)
    await node.stop(machine)

    async def silent(keys: list[str]) -> dict[str, Power]:
        return dict.fromkeys(keys, Power.UNKNOWN)

    with monkeypatch.context() as patched:
        patched.setattr(node, "get_powers", silent)
        await look(cloud)
        assert await cloud.state(vm) == "RUNNING"
        assert "cannot say" in node_seen(await cloud.get(await cloud.node_of(vm))).trouble
    await look(cloud)
    assert await cloud.state(vm) == "HALTED"
    assert node_seen(await cloud.get(await cloud.node_of(vm))).trouble == ""


async def test_what_one_look_shows_and_the_next_does_not_is_no_news(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    vm = await cloud.vm()
    node, _ = await behind(cloud, vm)
    surveyed, looks = node.get_powers, []

    async def once_wrong(keys: list[str]) -> dict[str, Power]:
        looks.append(keys)
        return dict.fromkeys(keys, Power.OFF) if len(looks) == 1 else await surveyed(keys)

    monkeypatch.setattr(node, "get_powers", once_wrong)
    await look(cloud)
    assert (await cloud.state(vm), len(looks)) == ("RUNNING", 2)


async def test_what_a_node_shows_while_something_is_done_does_not_count(cloud: Cloud) -> None:
    vm = await cloud.vm()
    cloud.gates.close("move")
    migrating = await cloud.ask(vm, "migrate", ADA)
    await cloud.gates.wait_for_arrival("move")
    with pytest.raises(Denied, match="is being worked on"):
        await cloud.engine.act(cloud.ns, vm, "shows off", actor=PROVIDER)
    cloud.gates.open("move")
    assert (await cloud.ended(migrating)).status == "succeeded"
    await look(cloud)
    assert await cloud.state(vm) == "RUNNING"


async def test_nobody_but_a_node_says_what_it_shows(cloud: Cloud) -> None:
    vm = await cloud.vm()
    for caller in ("user", "admin", "controller"):
        with pytest.raises(Refused):
            await cloud.engine.act(cloud.ns, vm, "shows off", actor=caller)


async def test_a_node_is_looked_at_by_one_process_at_a_time(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    vm = await cloud.vm()
    node, _ = await behind(cloud, vm)
    surveyed, looks = node.get_powers, []

    async def counted(keys: list[str]) -> dict[str, Power]:
        looks.append(keys)
        return await surveyed(keys)

    monkeypatch.setattr(node, "get_powers", counted)
    both = [DriftDetector(cloud.engine, cloud.plugin.nodes, Random(1), every=3600.0, apart=0.0) for _ in range(2)]
    await asyncio.gather(*(one.check_all() for one in both))
    assert len(looks) == 1
    assert node_seen(await cloud.get(await cloud.node_of(vm))).looked > 0.0


async def test_the_objects_of_a_namespace_are_read_only_by_who_has_claimed_a_node(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cloud.vm()
    reader, read = cloud.engine.store.reader, []
    list_objects = reader.list_objects

    async def counted(chosen: Selector, page: Page) -> list[Object]:
        read.append(chosen.kind)
        return await list_objects(chosen, page)

    monkeypatch.setattr(reader, "list_objects", counted)
    both = [DriftDetector(cloud.engine, cloud.plugin.nodes, Random(1), every=3600.0, apart=0.0) for _ in range(2)]
    for one in both:
        await one.check_namespace(cloud.ns)
    assert read.count(NODE.kind) == 2
    assert read.count(VM.kind) == 1


async def test_nodes_without_trouble_are_written_in_one_transaction(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    vm = await cloud.vm()
    await behind(cloud, vm)
    detector, store = rounds(cloud), cloud.engine.store
    await detector.check_namespace(cloud.ns)
    transactions, transact, ours = 0, store.transact, asyncio.all_tasks()

    async def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal transactions
        transactions += asyncio.current_task() not in ours or asyncio.current_task() is this
        return await transact(*args, **kwargs)

    this = asyncio.current_task()
    monkeypatch.setattr(store, "transact", counted)
    await detector.check_namespace(cloud.ns)
    assert transactions == 1


async def test_update_status_takes_no_node_for_a_person(cloud: Cloud) -> None:
    vm = await cloud.vm()
    with pytest.raises(Exception, match="transition that begins in RUNNING"):
        await cloud.service.update_status(cloud.ns, "vm", vm, "RUNNING", "HALTED", ADA)
    assert (await cloud.service.get(cloud.ns, VM.kind, vm)).state == "RUNNING"


# --- real machines ---------------------------------------------------------------------------------------------------


async def test_a_process_that_was_killed_is_noticed_by_itself(folder: Path) -> None:
    settings = Settings(storage="none", look_every=0.05)
    async with open_cloud(open_store(str(folder / "stateward.db")), folder, settings) as opened:
        cloud = await opened.create_base_objects(1, driver="process")
        vm = await cloud.vm()
        for pid in vms_of(folder / "ovc" / "nodes" / await cloud.file_name(cloud.nodes[0])):
            os.kill(pid, signal.SIGKILL)
        await cloud.until_state(vm, "HALTED")
        await cloud.did(vm, "start")
        assert await cloud.state(vm) == "RUNNING"


@needs_qemu
@pytest.mark.skipif(which("qemu-img") is None, reason="qemu-img is not installed: apt-get install qemu-utils")
async def test_a_hypervisor_that_was_killed_is_noticed_and_one_that_hangs_is_not_taken_for_dead(folder: Path) -> None:
    async with open_cloud(open_store(str(folder / "stateward.db")), folder, FILES) as opened:
        cloud = await opened.create_base_objects(1, driver="qemu")
        vm = await cloud.vm()
        host = await cloud.plugin.nodes.get(cloud.ns, cloud.nodes[0])
        machine = await cloud.machine(vm)
        (pid,) = [
            int(one.details["pid"])
            for one in (await host._driver.observe([machine])).machines  # type: ignore[attr-defined]
        ]
        stop_process(pid)
        await look(cloud)
        assert await cloud.state(vm) == "RUNNING"
        assert "cannot say" in node_seen(await cloud.get(cloud.nodes[0])).trouble
        assert machine in (await host.list_machines()).keys
        os.kill(pid, signal.SIGKILL)
        await until(lambda: _is_off(host, machine))
        await look(cloud)
        assert await cloud.state(vm) == "HALTED"
        await cloud.did(vm, "start")
        await cloud.did(vm, "pause")
        await cloud.did(vm, "destroy")


async def _is_off(host: Hypervisor, machine: str) -> bool:
    return await host.get_power(machine) is Power.OFF
