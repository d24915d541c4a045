"""Jobs as real processes of this machine, with the server killed while a run is on."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.domains.systems.local_backend_harness import is_alive, kill_marked
from tests.integration.domains.systems.test_real_deploys import OPEN_TO_OWNER
from tests.integration.server.server_processes import served
from tests.waiting import wait_until

SHOP = "/api/v1/systems/default/shop"

# Each instance notes that it was started, and ends as soon as a file of its index is there, with the status in it.
PROGRAM = """
echo "$STATEWARD_INDEX $$" >> started
while [ ! -e "go-$STATEWARD_INDEX" ]; do sleep 0.02; done
read status < "go-$STATEWARD_INDEX"
echo "index $STATEWARD_INDEX ends with $status"
exit "$status"
"""
DEFINITION = """
services: {web: {command: sleep 600, drain: 0.05, grace: 0.05}}
jobs:
  report:
    command: [sh, work.sh]
    folder: .
    parallelism: 2
    completions: 2
    retries: 1
    backoff: 0.05
    history: 1
    grace: 0.1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "work.sh").write_text(PROGRAM)
    yield tmp_path
    assert kill_marked(tmp_path) == []


def test_a_run_goes_on_after_its_server_was_killed_and_no_instance_is_started_twice(folder: Path) -> None:
    data, environ = folder / "data", OPEN_TO_OWNER
    with served(data, environ=environ) as server, server.client() as client:
        done(client, "", {"name": "shop"})
        done(client, "/shop/deploys", {"definition": DEFINITION, "base": str(folder)})
        asked = client.post(f"{SHOP}/runs", json={"path": "/report"}).json()
        pids = wait_until(lambda: started(folder) if len(started(folder)) == 2 else None)
        server.stop(signal.SIGKILL)
    assert all(map(is_alive, pids.values()))
    let_end(folder, 0, status=3)  # it ends while nobody looks
    wait_until(lambda: not is_alive(pids["0"]))
    (folder / "go-0").unlink()
    with served(data, environ=environ) as server, server.client() as client:
        again = wait_until(lambda: started(folder)["0"] if started(folder)["0"] != pids["0"] else None)
        server.stop(signal.SIGKILL)
    assert is_alive(pids["1"])
    with served(data, environ=environ) as server, server.client() as client:
        let_end(folder, 0, status=0)
        let_end(folder, 1, status=0)
        (run,) = wait_until(lambda: ended_runs(client))
        assert (run["id"], run["state"], run["succeeded"], run["failed"]) == (asked["id"], "succeeded", 2, 1)
        assert sorted((folder / "started").read_text().split("\n")) == sorted(
            ["", f"0 {pids['0']}", f"1 {pids['1']}", f"0 {again}"]
        )
        written = {one["instance"]: one["text"] for one in client.get(f"{SHOP}/runs/{run['id']}/logs").json()}
        assert written == {
            "0-0": "index 0 ends with 3\n",
            "0-1": "index 0 ends with 0\n",
            "1-0": "index 1 ends with 0\n",
        }
        assert client.get(SHOP).json()["state"] == "stable"
        done(client, "/shop/runs", {"path": "/report"})  # its history is 1: the first run goes, with its logs
        wait_until(lambda: client.get(f"{SHOP}/runs/{run['id']}/logs").status_code == 404)
        assert len(list(data.glob("systems/default/shop/jobs/*"))) == 1
        for file in ("go-0", "go-1", "started"):
            (folder / file).unlink()
        assert client.post(f"{SHOP}/runs", json={"path": "/report"}).status_code == 202
        wait_until(lambda: len(started(folder)) == 2)
        assert client.delete(SHOP).status_code == 202  # a run that is on ends with its system
        wait_until(lambda: client.get(SHOP).status_code == 404)
        assert not any(map(is_alive, started(folder).values()))
        assert list(data.glob("systems/default/shop")) == []


def let_end(folder: Path, index: int, status: int) -> None:
    """Let an instance end with a status: the file is there with all that it has, or not at all."""
    new = folder / "new"
    new.write_text(f"{status}\n")
    new.rename(folder / f"go-{index}")


def started(folder: Path) -> dict[str, int]:
    """Return the process of each index that was started last."""
    file = folder / "started"
    return {line.split()[0]: int(line.split()[1]) for line in file.read_text().splitlines()} if file.exists() else {}


def ended_runs(client: httpx.Client) -> Any:
    """Return the runs, if all have ended."""
    found = client.get(f"{SHOP}/runs").json()
    return found if all(one["state"] not in ("pending", "running") for one in found) else None


def done(client: httpx.Client, path: str, body: Any) -> None:
    """Ask for something that is to succeed, and wait for it."""
    asked = client.post(f"/api/v1/systems/default{path}", json=body)
    assert asked.status_code == 202, asked.text
    operation = f"/api/v1/ns/default/operations/{asked.json()['operation']}"
    ended = wait_until(
        lambda: found if (found := client.get(operation).json())["status"] not in ("waiting", "running") else None
    )
    assert ended["status"] == "succeeded", ended
