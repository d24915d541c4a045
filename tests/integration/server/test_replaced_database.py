"""A server whose database file is removed: it accepts nothing more, says why, and does not disturb the next server."""

import shutil
import signal
import time
from pathlib import Path

import httpx
import pytest

from tests.integration.server.server_processes import PATIENT, Served, run, served
from tests.integration.server.test_serve import OBJECTS, created


def status_of(client: httpx.Client, name: str) -> int:
    return client.get(f"{OBJECTS}/m.{name}").status_code


def until_not_ready(client: httpx.Client) -> httpx.Response:
    """Return the first answer which says that the server is not ready; a server at rest looks by itself."""
    end = time.monotonic() + PATIENT
    while (answer := client.get("/readyz")).status_code == 200:
        assert time.monotonic() < end
        time.sleep(0.05)
    return answer


@pytest.mark.parametrize("way", ["removed", "restored from a copy", "folder replaced"])
def test_a_server_without_its_file_accepts_nothing_and_a_second_one_starts_on_the_folder(
    tmp_path: Path, way: str
) -> None:
    home = tmp_path / "home"
    with served(home) as first, first.client() as client:
        assert created(client, "before").status_code == 202
        copy = tmp_path / "copy.db"
        assert run("backup", str(copy), "--data", str(home)).returncode == 0
        match way:
            case "removed":
                for file in home.glob("*.*"):
                    file.unlink()
            case "restored from a copy":
                shutil.copy(copy, home / "new")
                (home / "new").rename(home / "stateward.db")
            case "folder replaced":
                home.rename(tmp_path / "moved")
                home.mkdir()
        refused = [created(client, f"lost-{number}") for number in range(5)]
        assert [one.status_code for one in refused] == [503] * 5
        assert refused[0].json()["detail"] == "the database file was removed or replaced while in use"
        answer = until_not_ready(client)
        assert answer.status_code == 503
        assert "removed or replaced" in answer.json()["detail"]
        assert status_of(client, "before") == 503
        assert client.get("/healthz").status_code == 200
        if way == "restored from a copy":
            assert first.stop() == 0
        check_second(home, first, restored=way == "restored from a copy")
    assert first.output.count("replaced while in use") == 1
    assert "Traceback" not in first.output


def check_second(home: Path, first: Served, *, restored: bool) -> None:
    """Start a server on what is in the folder now, and stop the first one beside it."""
    with served(home) as second, second.client() as client:
        assert status_of(client, "before") == (200 if restored else 404)
        assert created(client, "after").status_code == 202
        assert restored or first.stop() == 0
        assert created(client, "later").status_code == 202
        assert second.stop(signal.SIGKILL) != 0
    with served(home) as third, third.client() as client:
        assert {status_of(client, name) for name in ("after", "later")} == {200}
        assert status_of(client, "lost-0") == 404
        assert third.stop() == 0


def test_a_restore_beside_a_running_server_is_refused_also_when_the_lock_file_was_removed(tmp_path: Path) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy.db"
    with served(home) as server, server.client() as client:
        assert run("backup", str(copy), "--data", str(home)).returncode == 0
        assert run("restore", str(copy), "--data", str(home), "--replace").returncode != 0
        assert created(client, "after").status_code == 202
        (home / "stateward.db.lock").unlink()
        assert created(client, "lost").status_code == 503
        assert server.stop() == 0
    assert "stateward.db.lock is gone" in server.output
