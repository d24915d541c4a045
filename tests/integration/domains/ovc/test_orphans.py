"""Orphans: machines and files that no object owns are reported to administrators, and left alone."""

from pathlib import Path
from random import Random
from shutil import which

import pytest

from stateward.domains.ovc.drift_detector import DriftDetector
from stateward.domains.ovc.model import NodeSpec, OrphanId, boot_disk_id, node_seen
from stateward.domains.ovc.nodes.port import Hypervisor, NodeInventory, NodeMachine
from stateward.domains.ovc.settings import Settings
from stateward.lifecycle import PROVIDER
from stateward.store import open_store
from tests.integration.domains.ovc.ovc_harness import ADA, FILES, Cloud, open_cloud
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

STRAY = "vm-of-nobody-12345678"


async def look(cloud: Cloud) -> list[str]:
    """Go round once; returns the orphans that are told of."""
    rounds = DriftDetector(
        cloud.engine, cloud.plugin.nodes, Random(1), every=0.0, apart=0.0, disk_store=cloud.plugin.disk_store
    )
    await rounds.check_namespace(cloud.ns)
    return await orphans(cloud)


async def orphans(cloud: Cloud) -> list[str]:
    return [one.id.name for _, one in (await cloud.service.healing(cloud.ns, 0.0)).orphans]


async def node(cloud: Cloud, nth: int = 0) -> Hypervisor:
    return await cloud.plugin.nodes.get(cloud.ns, cloud.nodes[nth])


async def test_a_machine_of_nobody_is_told_until_it_is_gone_and_journaled_once(cloud: Cloud) -> None:
    host = await node(cloud)
    await host.start(NodeMachine(STRAY, "stray", "tiny"))
    assert await look(cloud) == [STRAY]
    assert await look(cloud) == [STRAY]
    lines = [line for line in await cloud.engine.history(cloud.ns, cloud.nodes[0]) if line.event == "stranger"]
    assert [(line.actor, line.reason) for line in lines] == [(PROVIDER, f"machine {STRAY} belongs to nobody")]
    assert (await cloud.service.healing(cloud.ns, 0.0)).healed == []
    await host.stop(STRAY)
    assert await look(cloud) == []


async def test_a_second_machine_of_a_vm_is_an_orphan_and_its_own_is_not(cloud: Cloud) -> None:
    vm = await cloud.vm()
    host = await cloud.plugin.nodes.get(cloud.ns, await cloud.node_of(vm))
    await host.start(NodeMachine(f"{vm}-00000000", "twin", "tiny"))
    assert await look(cloud) == [f"{vm}-00000000"]
    await host.stop(f"{vm}-00000000")


async def test_nothing_of_ours_is_an_orphan_whatever_was_done_to_it(cloud: Cloud) -> None:
    vms = await cloud.vms(4)
    await cloud.did(vms[0], "pause")
    await cloud.did(vms[1], "migrate", ADA)
    await cloud.did(vms[2], "stop")
    await cloud.did(vms[3], "destroy")
    await cloud.did(cloud.nodes[0], "maintenance", ADA)
    assert await look(cloud) == []


async def test_what_is_moving_is_no_orphan_at_either_end(cloud: Cloud) -> None:
    vm = await cloud.vm()
    cloud.gates.close("stop")
    migrating = await cloud.ask(vm, "migrate", ADA)
    await cloud.gates.wait_for_arrival("stop")  # it is up at the other node, and not yet ended here
    assert await look(cloud) == []
    cloud.gates.open("stop")
    assert (await cloud.ended(migrating)).status == "succeeded"


async def test_what_only_one_look_shows_is_no_orphan(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([frozenset({STRAY}), frozenset[str]()])

    async def once() -> NodeInventory:
        return NodeInventory(next(looks), complete=True)

    monkeypatch.setattr(await node(cloud), "list_machines", once)
    assert await look(cloud) == []


async def test_a_node_that_does_not_show_all_lets_nobody_be_forgotten(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await node(cloud)
    await host.start(NodeMachine(STRAY, "stray", "tiny"))
    assert await look(cloud) == [STRAY]

    async def blind() -> NodeInventory:
        return NodeInventory(frozenset(), complete=False)

    with monkeypatch.context() as patched:
        patched.setattr(host, "list_machines", blind)
        assert await look(cloud) == [STRAY]
    await host.stop(STRAY)
    assert await look(cloud) == []


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(which("qemu-img") is None, reason="qemu-img is not installed: apt-get install qemu-utils")
async def test_a_file_that_no_disk_or_image_of_any_namespace_owns_is_told(tmp_path: Path) -> None:
    async with open_cloud(open_store(str(tmp_path / "stateward.db")), tmp_path, FILES) as opened:
        cloud, other = await opened.create_base_objects(2), await opened.in_new_namespace().create_base_objects(1)
        vm, gone = await cloud.vm(), await cloud.disk()
        await other.disk()
        await cloud.did(vm, "stop")
        clone = await cloud.made(cloud.service.create(cloud.ns, cloud.vm_spec(clone_of=vm), ADA))
        await cloud.did(clone, "destroy")
        await cloud.did(gone, "destroy")
        assert await look(cloud) == []
        disk_store = tmp_path / "ovc" / "vault"
        own, base = [await cloud.file_name(boot_disk_id(one)) for one in (vm, clone)]
        assert f"{own}.base-{base}" in {file.name for file in disk_store.iterdir()}
        for name in (f"{gone}.qcow2", "notes.txt"):
            (disk_store / name).touch()
        assert sorted(await look(cloud)) == sorted([f"{gone}.qcow2", "notes.txt"])
        (keeper,) = [one for one in cloud.nodes if node_seen(await cloud.get(one)).orphans]
        assert keeper == min(cloud.nodes)
        (disk_store / "notes.txt").unlink()
        assert await look(cloud) == [f"{gone}.qcow2"]


# --- real machines ---------------------------------------------------------------------------------------------------


async def test_a_real_process_of_nobody_is_noticed_by_itself(folder: Path) -> None:
    settings = Settings(storage="none", look_every=0.05)
    async with open_cloud(open_store(str(folder / "stateward.db")), folder, settings) as cloud:
        id_ = await cloud.made(cloud.service.create(cloud.ns, NodeSpec("bare", "process"), ADA))
        host = await cloud.plugin.nodes.get(cloud.ns, id_)
        await host.start(NodeMachine(STRAY, "stray", "tiny"))

        await until(
            lambda: cloud.get(id_),
            lambda obj: [one.id for one in node_seen(obj).orphans] == [OrphanId("machine", STRAY)],
        )
        await host.stop(STRAY)
        await until(lambda: cloud.get(id_), lambda obj: not node_seen(obj).orphans)
