"""Namespaces share one folder of disks, and one host: an object of one is never the file or the folder of another."""

from pathlib import Path
from shutil import which

import msgspec
import pytest
from msgspec.structs import replace

from stateward.domains.ovc.lifecycle import DISK, IMAGE, NODE
from stateward.domains.ovc.model import DiskSpec, FileBackedSeen, ImageSpec, NodeSpec, file_name
from stateward.domains.ovc.nodes.port import NodeMachine, Power
from stateward.store import open_store
from stateward.store.changes import Changes
from stateward.store.port import Tx
from stateward.store.records import Key, to_json
from tests.integration.domains.ovc.ovc_harness import ADA, FILES, Cloud, open_cloud

pytestmark = pytest.mark.asyncio(loop_scope="module")
needs_tool = pytest.mark.skipif(which("qemu-img") is None, reason="qemu-img is not installed")


def _files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (folder / "ovc" / "vault").iterdir() if file.is_file()}


async def _forge(cloud: Cloud, id_: str, kind: str, spec: DiskSpec | ImageSpec) -> None:
    """Make an object with an id that another namespace has, past the API that refuses it."""
    labels = {"name": spec.name, **({"account": spec.account} if kind == DISK.kind else {})}
    plain = msgspec.to_builtins(spec)
    await cloud.engine.create(cloud.ns, id_, kind, "define", parent=spec.account, spec=plain, labels=labels)
    await cloud.ended(await cloud.engine.act(cloud.ns, id_, "create"))


@needs_tool
async def test_an_object_with_the_id_of_another_namespace_has_a_file_of_its_own(tmp_path: Path) -> None:
    async with open_cloud(open_store(str(tmp_path / "stateward.db")), tmp_path, FILES) as opened:
        alpha, beta = (
            await opened.in_new_namespace().create_base_objects(),
            await opened.in_new_namespace().create_base_objects(),
        )
        vm, disk = await alpha.vm(), await alpha.disk()
        before = _files(tmp_path)
        forged = {one: DiskSpec(one, beta.account) for one in (disk, alpha.boot_disk(vm))}
        for id_, spec in forged.items():
            await _forge(beta, id_, DISK.kind, spec)
        await _forge(beta, alpha.image, IMAGE.kind, ImageSpec("theirs", beta.account))
        assert len(_files(tmp_path)) == len(before) + 3
        for id_ in (*forged, alpha.image):
            await beta.did(id_, "destroy", ADA)
        assert _files(tmp_path) == before


async def test_a_node_with_the_id_of_another_namespace_has_machines_of_its_own(cloud: Cloud) -> None:
    other, id_ = cloud.in_new_namespace(), cloud.nodes[0]
    spec = NodeSpec("theirs")
    accepted = await other.engine.create(
        other.ns, id_, NODE.kind, "register", actor="admin", spec=msgspec.to_builtins(spec), labels={"name": spec.name}
    )
    assert (await other.ended(accepted)).status == "succeeded"
    ours, theirs = await cloud.plugin.nodes.get(cloud.ns, id_), await other.plugin.nodes.get(other.ns, id_)
    await ours.start(NodeMachine("vm-1-12345678", "one", "tiny"))
    assert (await ours.get_power("vm-1-12345678"), await theirs.get_power("vm-1-12345678")) == (Power.ON, Power.OFF)
    await ours.stop("vm-1-12345678")


@needs_tool
async def test_a_disk_that_was_made_before_keeps_its_file(tmp_path: Path) -> None:
    async with open_cloud(open_store(str(tmp_path / "stateward.db")), tmp_path, FILES) as opened:
        cloud = await opened.create_base_objects()
        disk = await cloud.disk()
        disk_store, found = tmp_path / "ovc" / "vault", await cloud.get(disk)
        (disk_store / f"{file_name(found)}.qcow2").rename(disk_store / f"{disk}.qcow2")

        async def as_before(tx: Tx) -> None:
            await tx.objects([Key(cloud.ns, disk)])
            await tx.apply(Changes(objects=[replace(found, seen=to_json(FileBackedSeen()), version=found.version + 1)]))

        await cloud.engine.store.transact(as_before)
        vm = await cloud.vm()
        await cloud.did(vm, "attach disk", disk=disk)
        assert (disk_store / f"{disk}.qcow2").exists()
        await cloud.did(vm, "detach disk", disk=disk)
        await cloud.did(disk, "destroy", ADA)
        assert not (disk_store / f"{disk}.qcow2").exists()


@needs_tool
async def test_an_error_of_a_disk_names_its_file_and_no_folder_of_the_server(tmp_path: Path) -> None:
    async with open_cloud(open_store(str(tmp_path / "stateward.db")), tmp_path, FILES) as opened:
        cloud = await opened.create_base_objects()
        (tmp_path / "ovc" / "vault" / f"{await cloud.file_name(cloud.image)}.qcow2").write_bytes(b"no image")
        operation = await cloud.ended(await cloud.service.create(cloud.ns, cloud.vm_spec(), ADA))
        assert operation.status == "failed"
        assert operation.error is not None
        assert "Image is not in qcow2 format" in operation.error
        assert "/" not in operation.error
