"""Images from files: refused if the library does not have them or nothing can boot them; otherwise they are booted."""

from pathlib import Path
from shutil import which

import pytest
from msgspec.structs import replace

from stateward.domains.ovc.lifecycle import IMAGE, VM
from stateward.domains.ovc.model import ImageSpec
from stateward.domains.ovc.nodes.qemu_node import QemuNode
from stateward.drivers.qemu import guest_images
from stateward.errors import BadInput
from stateward.store import open_store
from stateward.store.filters import Page, Selector
from tests.integration.domains.ovc.ovc_harness import ANN, FILES, Cloud, open_cloud
from tests.integration.drivers.local.host_machines import ARCHITECTURES
from tests.waiting import until

needs_tools = pytest.mark.skipif(
    which("qemu-img") is None, reason="qemu-img is not installed: apt-get install qemu-utils"
)


FIRMWARE = b"".join(word.to_bytes(4, "little") for word in (0xD2A12000, 0x528008C1, 0xB9000001, 0x14000000))
"""Firmware for aarch64 that writes F on the console and waits: `movz x0, #0x900, lsl #16`, `movz w1, #'F'`,
`str w1, [x0]`, `b .`"""


async def _names(cloud: Cloud, kind: str = IMAGE.kind) -> list[str]:
    found = await cloud.engine.store.reader.list_objects(Selector(cloud.ns, kind), Page(None, 10))
    return [one.id for one in found]


@pytest.mark.parametrize("source", ["none.qcow2", "notes.txt"])
async def test_an_image_whose_file_is_not_in_the_library_is_refused_at_once(tmp_path: Path, source: str) -> None:
    async with open_cloud(open_store(str(tmp_path / "stateward.db")), tmp_path, FILES) as cloud:
        (tmp_path / "ovc" / "vault" / "library" / "notes.txt").write_text("no image")
        cloud.account = await cloud.new_account()
        with pytest.raises(BadInput, match="the library has no image") as refused:
            await cloud.service.create(cloud.ns, ImageSpec("lost", cloud.account, source), ANN)
        assert (refused.value.field, await _names(cloud)) == ("source", [])


def install_firmware(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """Let the firmware for aarch64 be this file."""
    board = replace(guest_images.GUEST_BOARDS["aarch64"], firmware=str(file))
    monkeypatch.setitem(guest_images.GUEST_BOARDS, "aarch64", board)


async def cloud_with_image(cloud: Cloud, folder: Path, arch: str) -> Cloud:
    """Give a cloud a QEMU node, and an image of the library."""
    await cloud.create_base_objects(1, driver="qemu", arch=arch)
    (folder / "ovc" / "vault" / "library" / "os.raw").write_bytes(bytes(1 << 20))
    cloud.image = await cloud.made(cloud.service.create(cloud.ns, ImageSpec("os", cloud.account, "os.raw"), ANN))
    return cloud


@needs_tools
@pytest.mark.parametrize("arch", [one for one in ARCHITECTURES if one.values == ("aarch64",)])
async def test_an_image_is_booted_by_the_firmware_and_refused_without(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arch: str
) -> None:
    firmware = folder / "QEMU_EFI.fd"
    install_firmware(monkeypatch, firmware)
    async with open_cloud(open_store(str(folder / "stateward.db")), folder, FILES) as cloud:
        await cloud_with_image(cloud, folder, arch)
        with pytest.raises(BadInput, match=r"disks do not boot without .*QEMU_EFI.fd .*qemu-efi-aarch64") as refused:
            await cloud.vm(size="1c256m")
        assert (refused.value.field, await _names(cloud, VM.kind)) == ("image", [])
        firmware.write_bytes(FIRMWARE)
        with pytest.raises(BadInput, match="at least 256 MiB") as small:
            await cloud.vm(size="tiny")
        assert small.value.field == "size"
        vm = await cloud.vm(size="1c256m")
        node = await cloud.plugin.nodes.get(cloud.ns, await cloud.node_of(vm))
        assert isinstance(node, QemuNode)
        console = node.host.folder_of(await cloud.machine(vm)) / "console"

        await until(lambda: console.read_bytes() == b"F")
