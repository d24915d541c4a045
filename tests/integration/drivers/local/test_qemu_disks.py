"""Files of disks: attempts that are cancelled or killed, and attempts at the same time."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

from stateward.drivers.qemu import disks
from stateward.drivers.qemu.disks import copy_disk, locked_disk, make_disk
from stateward.drivers.qemu.errors import DiskBusy
from stateward.workloads.lock_files import try_lock_file
from tests.waiting import pauses

pytestmark = pytest.mark.skipif(
    which("qemu-img") is None, reason="qemu-img is not installed: apt-get install qemu-utils"
)
HOLD_LOCK = """
import sys, time
from pathlib import Path
from stateward.workloads.lock_files import try_lock_file
assert try_lock_file(Path(sys.argv[1])) is not None
print("held", flush=True)
time.sleep(1000)
"""


def use_tool(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Put another qemu-img first in the path."""
    tool = folder / "bin" / "qemu-img"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=os.pathsep)


async def wait_for(file: Path) -> str:
    """Wait until a file has contents."""
    for pause_s in pauses():
        if file.exists() and (text := file.read_text().strip()):
            return text
        await asyncio.sleep(pause_s)
    raise AssertionError


async def test_a_cancelled_copy_ends_its_process_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, source = tmp_path / "disks", tmp_path / "guest.raw"
    folder.mkdir()
    source.write_bytes(b"\1" * 65536)
    with monkeypatch.context() as patched:
        use_tool(
            patched, tmp_path, f'for last; do :; done; echo half > "$last"; echo $$ > {tmp_path}/pid; exec sleep 1000'
        )
        copying = asyncio.create_task(copy_disk(folder / "image.qcow2", source, "raw"))
        pid = int(await wait_for(tmp_path / "pid"))
        copying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await copying
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert list(folder.iterdir()) == []
    await copy_disk(folder / "image.qcow2", source, "raw")
    assert [one.name for one in folder.iterdir()] == ["image.qcow2"]


async def test_a_killed_attempt_whose_tool_still_writes_does_not_disturb_the_next_one(tmp_path: Path) -> None:
    file, left = tmp_path / "disk.qcow2", tmp_path / "disk.0123.new"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", left, "1G"], check=True)
    writer = subprocess.Popen(["qemu-io", "-f", "qcow2", left], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        await make_disk(file, 1)
        assert [one.name for one in tmp_path.iterdir()] == ["disk.qcow2"]
    finally:
        writer.kill()
        writer.communicate()


async def test_a_file_in_use_is_an_error_to_be_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_tool(monkeypatch, tmp_path, "echo 'qemu-img: disk.qcow2: Failed to get \"write\" lock' >&2; exit 1")
    with pytest.raises(DiskBusy) as busy:
        await make_disk(tmp_path / "disk.qcow2", 1)
    assert busy.value.retry


async def test_a_disk_that_another_process_makes_is_waited_for_until_that_process_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, tries = tmp_path / "disk.qcow2", asyncio.Semaphore(0)

    def try_lock(lock: Path) -> int | None:
        tries.release()
        return try_lock_file(lock)

    monkeypatch.setattr(disks, "try_lock_file", try_lock)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, file.with_suffix(".lock")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        making = asyncio.create_task(make_disk(file, 1))
        for _ in range(3):
            await tries.acquire()
        assert not file.exists()
    finally:
        holder.kill()
        holder.communicate()
    await making
    assert [one.name for one in tmp_path.iterdir()] == ["disk.qcow2"]


async def test_the_lock_of_a_disk_is_held_by_one_task_at_a_time(tmp_path: Path) -> None:
    inside = most = 0

    async def hold() -> None:
        nonlocal inside, most
        async with locked_disk(tmp_path / "disk.qcow2"):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(hold() for _ in range(8)))
    assert (most, list(tmp_path.iterdir())) == (1, [])
