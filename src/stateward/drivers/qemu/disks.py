"""The disks of QEMU machines: qcow2 files, attached at start or while the machine runs.

Each disk has a slot of a SCSI bus. There a disk is detached at once, without the guest's consent, and after a migration
every disk is in the same slot.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from shutil import which
from uuid import uuid4

import msgspec
from msgspec import Struct, field

from stateward.drivers.qemu.errors import CommandRejected, DiskBusy, DiskError
from stateward.drivers.qemu.monitor import Monitor
from stateward.workloads.lock_files import try_lock_file

TOOL = "qemu-img"
PACKAGE = "qemu-utils"
NEW_FILE = "{new}"
"""Stands for the temporary file in the words of a command."""
LOCK_FAILURE = re.compile(r"Failed to (get .*lock|lock byte)")
CONTROLLER = ("-device", "virtio-scsi-pci,id=scsi")
DETACH_TIMEOUT_S = 5.0
"""How long a machine may take to close the file of a disk that is detached."""
POLL_INTERVAL_S = 0.01


class QemuDisk(Struct, frozen=True):
    """A disk of a machine: its file, its slot, and whether the machine boots from it."""

    file: str
    slot: int
    boot: bool = False


class BlockDevice(Struct, frozen=True):
    """An entry of the answer to `query-block`."""

    qdev: str = ""


# --- files -----------------------------------------------------------------------------------------------------------


async def make_disk(file: Path, gib: int, base: Path | None = None) -> None:
    """Create a disk, empty or on top of a base disk; an existing one is left unchanged."""
    backing = () if base is None else ("-b", str(base), "-F", "qcow2")
    await _make_once(file, "create", "-f", "qcow2", *backing, NEW_FILE, f"{gib}G")


async def copy_disk(file: Path, source: Path, form: str) -> None:
    """Create a disk with the contents of an image file in any format; an existing one is left unchanged."""
    await _make_once(file, "convert", "-f", form, "-O", "qcow2", str(source), NEW_FILE)


async def layer_disk(file: Path, base: Path) -> None:
    """Replace a disk with one of the same size on top of a base; the caller holds the disk's lock."""
    await _make_atomically(file, "create", "-f", "qcow2", "-b", str(base), "-F", "qcow2", NEW_FILE)


@asynccontextmanager
async def locked_disk(file: Path) -> AsyncIterator[None]:
    """Hold the lock of a disk's file, against all tasks and processes that share the folder."""
    lock = file.with_suffix(".lock")
    while (handle := try_lock_file(lock)) is None:
        await asyncio.sleep(POLL_INTERVAL_S)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)


async def _make_once(file: Path, *words: str) -> None:
    """Let the tool create a file unless it exists, and remove what a killed attempt has left."""
    if await asyncio.to_thread(file.exists):
        return
    async with locked_disk(file):
        if not file.exists():
            for left in file.parent.glob(f"{file.stem}.*.new"):
                left.unlink(missing_ok=True)
            await _make_atomically(file, *words)


async def _make_atomically(file: Path, *words: str) -> None:
    """Let the tool create a file, which appears only when it is complete.

    Each attempt has its own temporary name: the tool of a server that was killed may still write to an earlier one.
    """
    new = file.with_suffix(f".{uuid4().hex[:12]}.new")
    try:
        await _run_tool(file, *(str(new) if word == NEW_FILE else word for word in words))
        new.replace(file)  # in this thread: a cancelled caller knows whether it was done
    finally:
        new.unlink(missing_ok=True)


async def _run_tool(file: Path, *words: str) -> None:
    program = which(TOOL)
    if program is None:
        raise DiskError(str(file), f"{TOOL} is not installed (Debian has it in {PACKAGE})")
    process = await asyncio.create_subprocess_exec(
        program, *words, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        _, output = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        reason = output.decode(errors="replace").strip()
        raise (DiskBusy if LOCK_FAILURE.search(reason) else DiskError)(str(file), reason)


# --- devices ---------------------------------------------------------------------------------------------------------


def arguments(disks: Sequence[QemuDisk]) -> list[str]:
    """Return the arguments that attach these disks at the start."""
    words = list(CONTROLLER)
    for disk in disks:
        words += ["-blockdev", _json(_node(disk)), "-device", _json(_device(disk))]
    return words


async def slots(monitor: Monitor) -> set[int]:
    """Return the slots of a running machine that have a disk."""
    devices = msgspec.convert(await monitor.execute("query-block"), list[BlockDevice])
    names = (device.qdev.rpartition("/")[2] for device in devices)
    return {int(name.removeprefix("slot")) for name in names if name.startswith("slot")}


async def attach(monitor: Monitor, disk: QemuDisk) -> None:
    """Attach a disk to a running machine."""
    if disk.slot in await slots(monitor):
        return
    await _close_node(monitor, disk)  # a controller may have died between the two commands below
    await monitor.execute("blockdev-add", _node(disk))
    await monitor.execute("device_add", _device(disk))


async def detach(monitor: Monitor, disk: QemuDisk) -> None:
    """Detach a disk from a running machine; returns when the machine has closed its file."""
    if disk.slot in await slots(monitor):
        await monitor.execute("device_del", {"id": _device(disk)["id"]})
    deadline = asyncio.get_running_loop().time() + DETACH_TIMEOUT_S
    while not await _close_node(monitor, disk):
        if asyncio.get_running_loop().time() > deadline:
            raise DiskError(disk.file, f"the machine has not let go of it in {DETACH_TIMEOUT_S:g} s")
        await asyncio.sleep(POLL_INTERVAL_S)


class BlockNode(Struct, frozen=True):
    """An entry of the answer to `query-named-block-nodes`."""

    name: str = field(name="node-name", default="")


async def _close_node(monitor: Monitor, disk: QemuDisk) -> bool:
    """Close a disk's file; returns whether it is closed."""
    name = _node(disk)["node-name"]
    nodes = msgspec.convert(await monitor.execute("query-named-block-nodes"), list[BlockNode])
    if all(node.name != name for node in nodes):
        return True
    try:
        await monitor.execute("blockdev-del", {"node-name": name})
    except CommandRejected:
        return False  # it is still in use
    return True


def _node(disk: QemuDisk) -> Mapping[str, object]:
    return {"driver": "qcow2", "node-name": f"disk{disk.slot}", "file": {"driver": "file", "filename": disk.file}}


def _device(disk: QemuDisk) -> Mapping[str, object]:
    where = {"driver": "scsi-hd", "bus": "scsi.0", "scsi-id": disk.slot, "lun": 0}
    boots = {"bootindex": 1} if disk.boot else {}
    return {**where, "drive": f"disk{disk.slot}", "id": f"slot{disk.slot}", **boots}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
