"""Real VMs under QEMU: two nodes on this machine, real disks, real live migration."""

import asyncio
import os
import platform
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from shutil import which

import pytest
from msgspec.structs import replace

from stateward.domains.ovc.errors import NotNow
from stateward.domains.ovc.model import node_seen, vm_seen
from stateward.domains.ovc.nodes import AttachedDisk, NodeMachine, Power
from stateward.domains.ovc.nodes.qemu_node import QemuNode
from stateward.drivers.qemu.host import POWER_BUTTON, QemuHost
from stateward.drivers.qemu.migration import LiveMigration
from stateward.engine import Accepted
from stateward.store import open_store
from tests.held_calls import hold_calls
from tests.integration.domains.ovc.machine_processes import nodes_in, vms_in, vms_of
from tests.integration.domains.ovc.ovc_harness import ADA, FILES, Cloud, open_cloud
from tests.integration.drivers.local.host_machines import ARCHITECTURES, kill_all_in
from tests.long_forms import in_long_form
from tests.waiting import until

pytestmark = pytest.mark.skipif(
    which("qemu-img") is None, reason="qemu-img is not installed: apt-get install qemu-utils"
)
SLOWLY = "60000"
"""How many bytes a second a migration may use that is to be found under way."""
OFF = {
    "stop": ("succeeded", "HALTED", 0),
    "delete": ("succeeded", "DELETED", 0),
    "destroy": ("failed", "ERROR", 0),  # its disks are still there
}
"""How an action ends that is cancelled after it has switched the machine off: its status, the state, the processes."""


class Real:
    """A cloud whose nodes are QEMU's."""

    def __init__(self, cloud: Cloud, folder: Path) -> None:
        self.cloud, self.folder = cloud, folder

    async def host(self, vm: str) -> QemuNode:
        """Return the node that a VM is on."""
        node = await self.cloud.plugin.nodes.get(self.cloud.ns, await self.cloud.node_of(vm))
        assert isinstance(node, QemuNode)
        return node

    async def ask(self, vm: str, command: str, **arguments: object) -> object:
        """Ask a VM's monitor, behind the domain's back."""
        host, key = await self.host(vm), await self.cloud.machine(vm)
        return await host.host.use_monitor(key, lambda monitor: monitor.execute(command, arguments))

    async def status(self, vm: str) -> str:
        """Return QEMU's word for a VM."""
        answer = await self.ask(vm, "query-status")
        assert isinstance(answer, dict)
        return str(answer["status"])

    async def console(self, vm: str) -> list[str]:
        """Return what a VM's guest has written on the node that it is on."""
        host, key = await self.host(vm), await self.cloud.machine(vm)
        return (host.host.folder_of(key) / "console").read_text(errors="replace").split("\n")

    async def until_up(self, vm: str) -> None:
        """Wait until a VM's guest has booted; firmware takes a second on one board and none on the other."""
        await until(lambda: self.console(vm), lambda shown: "up" in shown)

    async def slots(self, vm: str) -> set[int]:
        """Return the slots of a VM that have a disk."""
        return await (await self.host(vm)).host.slots(await self.cloud.machine(vm))

    async def hurry(self, vm: str) -> None:
        """Let a slow migration go on as fast as it can."""
        await self.ask(vm, "migrate-set-parameters", **{"max-bandwidth": 1 << 30})

    async def until_moving(self, vm: str) -> None:
        """Wait until a VM's memory is on its way."""

        async def moving() -> bool:
            answer = await self.ask(vm, "query-migrate")
            assert isinstance(answer, dict)
            return answer.get("status") == "active"

        await until(moving)

    async def forbid_migration(self, vm: str) -> None:
        """Open a file of a format that QEMU cannot migrate; unlike a device, it needs no hot-plug bus of the board."""
        file = str(self.folder / "unmovable.vdi")
        subprocess.run(["qemu-img", "create", "-q", "-f", "vdi", file, "1M"], check=True)
        named = {"node-name": "unmovable"}
        await self.ask(vm, "blockdev-add", driver="vdi", file={"driver": "file", "filename": file}, **named)

    def processes(self) -> list[int]:
        """Return the QEMU processes of all VMs."""
        return vms_in(self.folder)

    def files(self) -> set[str]:
        """Return the disks and images that there are."""
        return {file.name for file in (self.folder / "ovc" / "vault").glob("*") if file.is_file()}


LONG_FORM = [
    one if one.values == (platform.machine(),) else pytest.param(*one.values, marks=(*one.marks, pytest.mark.long))
    for one in ARCHITECTURES
]


@pytest.fixture(params=LONG_FORM)
async def real(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Real]:
    """Two QEMU nodes, on which migrations take some seconds."""
    async with open_cloud(open_store(str(tmp_path / "stateward.db")), tmp_path, FILES) as cloud:
        yield Real(await cloud.create_base_objects(2, driver="qemu", bandwidth=SLOWLY, arch=request.param), tmp_path)
    for node in nodes_in(tmp_path):
        kill_all_in(node)


async def test_a_machine_boots_from_its_own_disk_and_does_what_is_asked(real: Real) -> None:
    cloud = real.cloud
    vm = await cloud.vm()

    await real.until_up(vm)
    assert (await real.status(vm), await real.slots(vm)) == ("running", {0})
    await cloud.did(vm, "pause")
    assert await real.status(vm) == "paused"
    await cloud.did(vm, "resume")
    await cloud.did(vm, "reset")
    assert await real.status(vm) == "running"
    await cloud.did(vm, "stop")
    assert real.processes() == []
    await cloud.did(vm, "start")
    assert len(real.processes()) == 1
    await cloud.did(vm, "destroy")
    assert (real.processes(), real.files()) == ([], {f"{await cloud.file_name(cloud.image)}.qcow2"})


async def test_disks_come_and_go_while_a_machine_runs_and_stay_with_it_over_a_stop(real: Real) -> None:
    cloud = real.cloud
    vm = await cloud.vm()
    first, second = await cloud.attached(vm), await cloud.attached(vm)
    await cloud.did(vm, "add disk", name="third", gib=1)
    assert await real.slots(vm) == {0, 1, 2, 3}
    await cloud.did(vm, "detach disk", disk=first)
    assert await real.slots(vm) == {0, 2, 3}
    await cloud.did(second, "delete")
    assert (await real.slots(vm), await cloud.state(second)) == ({0, 3}, "TOBEDELETED")
    await cloud.did(vm, "stop")
    await cloud.did(vm, "start")
    assert await real.slots(vm) == {0, 3}
    await cloud.did(second, "restore")
    assert await real.slots(vm) == {0, 2, 3}


async def test_of_two_machines_that_want_one_disk_one_has_it_and_the_other_does_not(real: Real) -> None:
    cloud = real.cloud
    vms, disk = await cloud.vms(2), await cloud.disk()
    asked = await asyncio.gather(*(cloud.ask(vm, "attach disk", disk=disk) for vm in vms), return_exceptions=True)
    (won,) = [one for one in asked if isinstance(one, Accepted)]
    assert (await cloud.ended(won)).status == "succeeded"
    (loser,) = set(vms) - {won.object.id}
    assert (await real.slots(won.object.id), await real.slots(loser)) == ({0, 1}, {0})
    detaching = await cloud.ask(won.object.id, "detach disk", disk=disk)
    await cloud.ended(detaching)
    await cloud.did(loser, "attach disk", disk=disk)
    assert (await real.slots(won.object.id), await real.slots(loser)) == ({0}, {0, 1})


async def test_a_migration_is_hidden_and_the_guest_goes_on_with_what_it_had(real: Real) -> None:
    cloud = real.cloud
    vm = await cloud.vm()
    await real.until_up(vm)
    disk = await cloud.attached(vm)
    before = await cloud.node_of(vm)
    accepted = await cloud.ask(vm, "migrate", ADA)
    await real.until_moving(vm)
    assert (accepted.object.state, await cloud.state(vm)) == ("RUNNING", "RUNNING")
    await real.hurry(vm)
    assert (await cloud.ended(accepted)).status == "succeeded"
    assert await cloud.node_of(vm) != before
    assert (await real.status(vm), await real.slots(vm), len(real.processes())) == ("running", {0, 1}, 1)

    await until(lambda: real.console(vm), lambda lines: any(line.startswith("tick") for line in lines))
    assert "up" not in await real.console(vm)  # it was not booted anew
    await cloud.did(vm, "detach disk", disk=disk)
    assert await real.slots(vm) == {0}


async def test_destroy_during_a_migration_waits_for_it_and_a_second_request_is_refused(real: Real) -> None:
    """The design's first scenario."""
    cloud = real.cloud
    vm = await cloud.vm()
    migrating = await cloud.ask(vm, "migrate", ADA)
    await real.until_moving(vm)
    destroying = await cloud.ask(vm, "destroy")
    assert destroying.object.state == "DESTROYING"
    queue = await cloud.service.queuer.queue(cloud.ns, vm)
    assert [one.action for one in queue.operations] == ["migrate", "destroy"]
    assert (await cloud.operation(destroying.op.id)).status == "waiting"
    with pytest.raises(NotNow, match=f"Cannot execute action at this time.*{destroying.op.id}"):
        await cloud.ask(vm, "stop")
    await real.hurry(vm)
    assert (await cloud.ended(migrating)).status == "succeeded"
    assert (await cloud.ended(destroying)).status == "succeeded"
    told = [one.text for one in await cloud.engine.store.reader.progress_of(destroying.op.key, 0)]
    assert told == ["stop", "delete", "destroy"]
    assert await cloud.state(vm) == "DESTROYED"
    assert not (await cloud.service.queuer.queue(cloud.ns, vm)).exists
    assert (real.processes(), real.files()) == ([], {f"{await cloud.file_name(cloud.image)}.qcow2"})


async def test_a_cancelled_migration_leaves_the_machine_running_and_the_request_behind_it_runs(real: Real) -> None:
    cloud = real.cloud
    vm = await cloud.vm()
    before, migrating = await cloud.node_of(vm), await cloud.ask(vm, "migrate", ADA)
    await real.until_moving(vm)
    pausing = await cloud.ask(vm, "pause")
    await cloud.engine.cancel(cloud.ns, migrating.op.id)
    assert (await cloud.ended(migrating)).status == "cancelled"
    assert (await cloud.ended(pausing)).status == "succeeded"
    assert (await cloud.node_of(vm), await real.status(vm), len(real.processes())) == (before, "paused", 1)


@pytest.mark.parametrize("action", in_long_form(("stop", "delete", "destroy"), short=("stop",)))
async def test_a_machine_whose_power_off_is_cancelled_ends_as_what_it_is_afterwards(real: Real, action: str) -> None:
    cloud, vm = real.cloud, await real.cloud.vm()
    await real.until_up(vm)
    with hold_calls(QemuNode, "stop", "before") as held:
        begun = await cloud.ask(vm, action)
        await held.wait_for_arrival()
        await cloud.engine.cancel(cloud.ns, begun.op.id)
        assert (await cloud.ended(begun)).status == "cancelled"
    assert (await cloud.state(vm), len(real.processes()), held.made) == ("RUNNING", 1, 0)
    with hold_calls(QemuHost, "press_power_button", "after") as held:
        begun = await cloud.ask(vm, action)
        await held.wait_for_arrival()
        await cloud.engine.cancel(cloud.ns, begun.op.id)
        held.release()
        status = (await cloud.ended(begun)).status
    assert (str(status), await cloud.state(vm), len(real.processes())) == OFF[action]


@pytest.mark.parametrize("obeys", in_long_form((True, False), short=(False,)))
async def test_a_stop_that_another_worker_has_begun_and_is_cancelled_is_not_told_as_not_done(
    real: Real, obeys: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = real.cloud
    vm = await cloud.vm()
    await real.until_up(vm)
    host, key, never = await real.host(vm), await cloud.machine(vm), asyncio.Event()
    pressed, press = asyncio.Event(), QemuHost.press_power_button

    async def vanish(self: QemuHost, key: str) -> None:
        """Press the button, or only note it as a guest would that does not listen; and stay away."""
        if obeys:
            await press(self, key)
        else:
            record = self._supervisor.machine_dir.read(key)
            assert record is not None
            self._supervisor.machine_dir.write(replace(record, more={POWER_BUTTON: str(time.time())}))
        pressed.set()
        await never.wait()

    monkeypatch.setattr(QemuHost, "press_power_button", vanish)
    monkeypatch.setattr("stateward.domains.ovc.nodes.qemu_node.POWER_BUTTON_TIMEOUT_S", 60.0)
    monkeypatch.setattr("stateward.aio.coalescer.CALL_END_TIMEOUT_S", 0.0)
    monkeypatch.setattr("stateward.domains.ovc.proof.SETTLE_TIMEOUT_S", 5.0)
    stopping = await cloud.ask(vm, "stop")
    await pressed.wait()
    await cloud.engine.cancel(cloud.ns, stopping.op.id)
    ended = await cloud.ended(stopping)
    told = (ended.status, await cloud.state(vm), await host.get_power(key))
    assert told == (("succeeded", "HALTED", Power.OFF) if obeys else ("failed", "RUNNING", Power.ON))


async def test_a_failed_migration_leaves_the_machine_running_and_the_request_behind_it_runs(real: Real) -> None:
    cloud = real.cloud
    vm = await cloud.vm()
    before, migrating = await cloud.node_of(vm), await cloud.ask(vm, "migrate", ADA)
    await real.until_moving(vm)
    pausing = await cloud.ask(vm, "pause")
    target = vm_seen(await cloud.get(vm)).to
    for pid in vms_of(real.folder / "ovc" / "nodes" / await cloud.file_name(target)):
        os.kill(pid, signal.SIGKILL)
    assert (await cloud.ended(migrating)).status == "failed"
    assert (await cloud.ended(pausing)).status == "succeeded"
    assert (await cloud.node_of(vm), await real.status(vm), len(real.processes())) == (before, "paused", 1)


async def test_a_move_that_is_over_between_two_looks_of_whoever_takes_it_up_is_not_begun_anew(
    real: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = real.cloud
    vm = await cloud.vm()
    source, key = await real.host(vm), await cloud.machine(vm)
    (other,) = set(cloud.nodes) - {await cloud.node_of(vm)}
    target = await cloud.plugin.nodes.get(cloud.ns, other)
    boot = AttachedDisk(
        cloud.boot_disk(vm), cloud.plugin.disk_store.path_of(await cloud.file_name(cloud.boot_disk(vm))), 0, boot=True
    )
    machine = NodeMachine(f"{vm}-moved", "vm", "tiny", (boot,))
    killed = asyncio.create_task(source.move(key, target, machine, unheard))
    await real.until_moving(vm)
    killed.cancel()
    await asyncio.wait([killed])

    async def over(self: LiveMigration) -> bool:
        """Look whether it is sending, too late to see it."""
        await real.hurry(vm)
        await until(self._sending, lambda sending: sending.status == "completed")
        return False

    monkeypatch.setattr(LiveMigration, "_is_sending", over)
    await source.move(key, target, machine, unheard)
    assert (await source.get_power(key), await target.get_power(machine.key)) == (Power.OFF, Power.ON)
    await target.stop(machine.key)


async def unheard(_done: int, _total: int) -> None:
    """Hear how far a move is."""


async def test_a_paused_machine_is_paused_at_its_new_place(real: Real) -> None:
    cloud = real.cloud
    vm = await cloud.vm()
    await cloud.did(vm, "pause")
    migrating = await cloud.ask(vm, "migrate", ADA)
    await real.until_moving(vm)
    await real.hurry(vm)
    assert (await cloud.ended(migrating)).status == "succeeded"
    assert (await cloud.state(vm), await real.status(vm)) == ("PAUSED", "paused")
    await cloud.did(vm, "resume")
    assert await real.status(vm) == "running"


async def test_a_clone_and_its_source_share_a_base_and_go_their_own_ways(real: Real) -> None:
    cloud = real.cloud
    vm = await cloud.vm()
    await cloud.did(vm, "stop")
    clone = await cloud.vm(clone_of=vm)
    await cloud.did(vm, "start")
    assert [await real.status(one) for one in (vm, clone)] == ["running", "running"]
    own, base = [await cloud.file_name(cloud.boot_disk(one)) for one in (vm, clone)]
    assert f"{own}.base-{base}" in real.files()
    await cloud.did(clone, "destroy")
    await cloud.did(vm, "destroy")
    assert real.files() == {f"{await cloud.file_name(cloud.image)}.qcow2"}


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("number", in_long_form((6, 20), short=(6,)))
async def test_maintenance_of_many_machines_loses_none_and_tells_which_could_not_move(
    tmp_path: Path, arch: str, number: int
) -> None:
    async with open_cloud(open_store(str(tmp_path / "stateward.db")), tmp_path, FILES) as cloud:
        real = Real(await cloud.create_base_objects(1, driver="qemu", arch=arch), tmp_path)
        try:
            vms = await cloud.vms(number)
            await cloud.node(driver="qemu", arch=arch)
            stubborn = vms[3]
            await real.forbid_migration(stubborn)
            operation = await cloud.do(cloud.nodes[0], "maintenance", ADA)
            assert operation.status == "failed"
            assert stubborn in str(operation.error)
            assert await cloud.state(cloud.nodes[0]) == "ENABLED"
            report = node_seen(await cloud.get(cloud.nodes[0])).report
            assert report is not None
            assert (set(report.done), set(report.failed)) == (set(vms) - {stubborn}, {stubborn})
            assert {await cloud.state(vm) for vm in vms} == {"RUNNING"}
            assert {await real.status(vm) for vm in vms} == {"running"}
            assert [vm for vm in vms if await cloud.node_of(vm) == cloud.nodes[0]] == [stubborn]
            assert len(real.processes()) == number
        finally:
            for node in nodes_in(tmp_path):
                kill_all_in(node)
