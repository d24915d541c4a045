"""The store of disks: clones of one source at the same time, and clones that failed before."""

import asyncio
import subprocess
from pathlib import Path
from shutil import which

import pytest

from stateward.domains.ovc.nodes import disk_store
from stateward.domains.ovc.nodes.disk_store import FileDiskStore
from stateward.drivers.qemu.errors import DiskBusy, DiskError
from stateward.engine import Permanent, Temporary

pytestmark = pytest.mark.skipif(
    which("qemu-img") is None or which("qemu-io") is None, reason="qemu-utils is not installed"
)


def run_io(file: str, command: str) -> str:
    """Run a command of qemu-io on a disk."""
    done = subprocess.run(["qemu-io", "-f", "qcow2", "-c", command, file], check=True, capture_output=True, text=True)
    return done.stdout


def write(file: str, byte: int) -> None:
    """Fill the beginning of a disk."""
    run_io(file, f"write -P {byte} 0 64k")


def has(file: str, byte: int) -> bool:
    """Tell whether the beginning of a disk is as it was filled."""
    return "Pattern verification failed" not in run_io(file, f"read -P {byte} 0 64k")


@pytest.fixture
async def store(tmp_path: Path) -> FileDiskStore:
    """A store with a disk."""
    made = FileDiskStore(tmp_path)
    await made.create("source", 1)
    write(made.path_of("source"), 0x11)
    return made


async def test_clones_of_one_disk_are_made_at_the_same_time_by_two_processes(
    store: FileDiskStore, tmp_path: Path
) -> None:
    stores = store, FileDiskStore(tmp_path)
    clones = [f"clone{number}" for number in range(4)]
    await asyncio.gather(*(stores[place % 2].clone(one, "source", 1) for place, one in enumerate(clones)))
    for place, one in enumerate(clones):
        assert has(store.path_of(one), 0x11)
        write(store.path_of(one), 0x20 + place)
    assert has(store.path_of("source"), 0x11)
    assert all(has(store.path_of(one), 0x20 + place) for place, one in enumerate(clones))
    assert not [one.name for one in tmp_path.iterdir() if one.suffix in (".new", ".lock", ".above")]


@pytest.mark.parametrize(("step", "disk"), [("layer_disk", "source"), ("make_disk", "clone")])
async def test_a_clone_that_failed_before_gets_the_present_contents_of_its_source(
    store: FileDiskStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, disk: str
) -> None:
    run = getattr(disk_store, step)

    async def fail(file: Path, *args: object) -> None:
        if file.stem == disk:
            raise DiskError(disk, "no space left on device")
        await run(file, *args)

    with monkeypatch.context() as patched:
        patched.setattr(disk_store, step, fail)
        with pytest.raises(Permanent):
            await store.clone("clone", "source", 1)
    assert has(store.path_of("source"), 0x11)
    write(store.path_of("source"), 0x22)
    await store.clone("clone", "source", 1)
    assert has(store.path_of("clone"), 0x22)
    write(store.path_of("source"), 0x33)
    assert has(store.path_of("clone"), 0x22)
    for one in ("clone", "source"):
        await store.remove(one)
    assert [left.name for left in tmp_path.iterdir()] == ["library"]


async def test_a_small_clone_leaves_its_source_as_large_as_it_is(store: FileDiskStore) -> None:
    await store.create("large", 2)
    await store.clone("small", "large", 1)
    assert "2 GiB" in run_io(store.path_of("large"), "length")


async def test_a_file_in_use_is_tried_again_later(store: FileDiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise DiskBusy("disk", 'Failed to get "write" lock')

    monkeypatch.setattr(disk_store, "make_disk", fail)
    with pytest.raises(Temporary):
        await store.create("disk", 1)


async def test_what_killed_attempts_have_left_is_removed_with_the_disk(store: FileDiskStore, tmp_path: Path) -> None:
    for name in ("source.0123.new", "source.new", "source.above", "source.base-clone.1", "source2.qcow2"):
        (tmp_path / name).touch()
    await store.remove("source")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["library", "source2.qcow2"]
