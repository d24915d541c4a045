"""Folders that programs of others have filled are removed, however deep they are and whatever is in them."""

import logging
import subprocess
from pathlib import Path

import pytest

from stateward.drivers import MachineSpec
from stateward.drivers.process.machine_dir import MachineDir, new_record
from stateward.workloads.trees import remove_tree
from tests.integration.drivers.local.host_machines import records_in

DEPTH = 3_000


def nest(top: Path) -> None:
    """Make folders in folders: deeper than Python recurses, and longer than a path may be."""
    line = f"import os\nfor _ in range({DEPTH}): os.mkdir('deep'); os.chdir('deep')\nopen('file', 'w').close()"
    subprocess.run(["python3", "-c", line], cwd=top, check=True)


def test_three_thousand_nested_folders_are_removed(tmp_path: Path) -> None:
    top = tmp_path / "machine"
    (top / "beside" / "deep").mkdir(parents=True)
    nest(top)
    assert remove_tree(top)
    assert not top.exists()


def test_a_link_is_removed_and_not_followed_and_a_closed_folder_is_opened(tmp_path: Path) -> None:
    other, top = tmp_path / "other", tmp_path / "machine"
    other.mkdir()
    (other / "precious").touch()
    (top / "closed" / "inner").mkdir(parents=True)
    (top / "closed" / "link").symlink_to(other)
    (top / "link").symlink_to(other)
    (top / "closed" / "inner").chmod(0)
    (top / "closed").chmod(0)
    assert remove_tree(top)
    assert (other / "precious").exists()


def test_a_folder_that_is_not_there_is_removed(tmp_path: Path) -> None:
    assert remove_tree(tmp_path / "nothing")


def test_a_machine_whose_files_cannot_be_removed_is_logged_and_known_until_they_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = MachineDir(tmp_path)
    record = new_record(MachineSpec("m1", "m1", "tiny", "sh"), tmp_path)
    folder.path_of("m1").mkdir()
    folder.write(record)
    (folder.path_of("m1") / "data").mkdir()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as broken, caplog.at_level(logging.WARNING):
        broken.setattr("stateward.workloads.trees.os.rmdir", refuse)
        folder.remove("m1")
    assert "cannot be cleared and stays" in caplog.text
    assert folder.read("m1") == record
    folder.remove("m1")
    assert (folder.read("m1"), [*(tmp_path / "machines").iterdir()], records_in(tmp_path)) == (None, [], [])
