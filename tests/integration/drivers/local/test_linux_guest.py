"""The Linux guest of the tests is built once, by one of the processes that need it."""

import fcntl
import sys
from pathlib import Path

import pytest

from tests.integration.drivers.local import linux_guest


def test_a_process_that_needs_the_guest_waits_while_another_builds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []

    def build(_folder: Path, image: Path) -> None:
        with (image.parent / linux_guest.LOCK).open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        image.mkdir()
        (image / "vmlinuz").touch()
        built.append(image)

    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(linux_guest, "build_guest", build)
    found = [linux_guest.built_guest(tmp_path / "build") for _ in range(2)]
    assert (len(built), [(one / "vmlinuz").exists() for one in found]) == (1, [True, True])
