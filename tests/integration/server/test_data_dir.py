"""The data folder: what others on the host find in it."""

import os
import stat
import time
from pathlib import Path

import pytest

from stateward.config import Config
from stateward.errors import BadInput
from stateward.server.data_dir import DataDir
from tests.integration.server.server_processes import STATEWARD, served
from tests.waiting import pauses


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def create(folder: Path) -> None:
    DataDir(Config(data=str(folder))).create()


@pytest.mark.parametrize("file", [None, "stateward.db", "admin-token"])
def test_a_data_folder_that_others_can_enter_is_closed(tmp_path: Path, file: str | None) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o755)
    if file is not None:
        (folder / file).touch()
    create(folder)
    assert mode_of(folder) == 0o700


def test_an_open_folder_with_other_content_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "of-others").touch()
    for mode in (0o755, 0o1777):
        tmp_path.chmod(mode)
        with pytest.raises(BadInput, match=r"only you can enter.*chmod 700"):
            create(tmp_path)
        assert mode_of(tmp_path) == mode
        (tmp_path / "stateward.db").touch()  # /tmp is not closed for a database in it
    tmp_path.chmod(0o700)
    create(tmp_path)


def test_an_open_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(BadInput, match="only you can enter"):
        create(tmp_path)


def test_nothing_that_a_server_creates_is_open_to_others(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with served(tmp_path / "data", program=STATEWARD) as server, server.client() as client:
            made = client.post("/api/v1/ovc/default/nodes", json={"name": "n1"}).raise_for_status().json()
            op, pause_s = f"/api/v1/ns/default/operations/{made['operation']}", pauses()
            while (ended := client.get(op).raise_for_status().json())["status"] in ("waiting", "running"):
                time.sleep(next(pause_s))
            assert ended["status"] == "succeeded", ended
    finally:
        os.umask(before)
    below = [one for one in (tmp_path / "data").rglob("*") if not one.is_symlink() and not one.is_socket()]
    assert {str(one): oct(mode_of(one)) for one in below if mode_of(one) & 0o077} == {}
    assert len(below) > 3
