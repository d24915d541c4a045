"""The demo as `make run` starts it: all five domains live, what it says can be tried works, and it stops cleanly."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stateward.plugin.registry import installed
from tests.integration.server.server_processes import Process, Served, run, served

NS = "demo"
PATIENT = 120.0
ALIVE = {
    "mci.mci": "Running",
    "mci.vm": "Running",
    "ovc.vm": "RUNNING",
    "leases.lease": "ACTIVE",
    "edge.cloudlet": "Ready",
    "edge.clusterinst": "Ready",
    "systems.system": "stable",
}
"""What each domain shows within a minute or two of a fresh start."""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("demo") / "stateward-data", "--demo") as server:
        yield server


def objects(client: httpx.Client) -> list[dict[str, Any]]:
    answer = client.get(f"/api/v1/ns/{NS}/objects", params={"limit": 1000})
    items: list[dict[str, Any]] = answer.raise_for_status().json()["items"]
    return items


def test_all_five_domains_come_to_life(demo: Served) -> None:
    assert {kind.split(".")[0] for kind in ALIVE} == {one.kind.split(".")[0] for one in installed().lifecycles}
    wanted, end = set(ALIVE.items()), time.monotonic() + PATIENT
    with demo.client() as client:
        while wanted:
            wanted -= {(one["kind"], one["state"]) for one in objects(client)}
            assert time.monotonic() < end, (wanted, demo.output)
            time.sleep(0.2)


def test_nothing_is_stuck_and_things_move_on(demo: Served) -> None:
    with demo.client() as client:
        before, end = client.get("/api/v1/journal", params={"ns": NS, "limit": 1}).json(), time.monotonic() + PATIENT
        assert before["items"]
        seen = {one["id"]: one["version"] for one in objects(client)}
        while all(seen.get(one["id"], one["version"]) == one["version"] for one in objects(client)):
            assert time.monotonic() < end, demo.output
            time.sleep(0.2)
        assert client.get("/api/v1/stuck").json() == []


def test_its_api_is_described(demo: Served) -> None:
    with demo.client() as client:
        described = client.get("/docs/openapi.json").raise_for_status().json()
    for path in ("/tumblebug/ns/{ns}/mci", "/api/v1/ovc/{ns}/machines", "/blazar/v1/leases", "/api/v1/systems/{ns}"):
        assert path in described["paths"]


def test_it_says_where_it_is_and_three_commands_that_can_be_tried(demo: Served) -> None:
    assert demo.url in demo.output
    assert "admin-token" in demo.output
    assert demo.token not in demo.output
    commands = re.findall(r"^    stateward (.+)$", demo.output, re.MULTILINE)
    assert len(commands) == 3
    run("do", "suspend", "mci/shop", "-n", NS, "--wait", "--data", str(demo.folder))  # as the demo's user does it, too
    for command in commands:
        if not command.startswith("top"):
            words = [str(demo.folder) if word == demo.folder.name else word for word in command.split()]
            words += [] if "--data" in words else ["--data", str(demo.folder)]
            tried = run(*words)
            assert tried.returncode == 0, tried.stderr
            assert "Traceback" not in tried.stderr
    listed = run("list", "--data", str(demo.folder))
    assert "shop.web-1" in listed.stdout  # the demo's namespace is the one of commands that name none
    assert run("list", "-n", "default", "--data", str(demo.folder)).stdout == ""


def test_it_is_quiet(demo: Served) -> None:
    lines = demo.output.splitlines()
    assert len(lines) <= 10, demo.output
    assert "Ctrl-C ends it, and removes its data" in demo.output


def test_it_stops_cleanly_and_has_said_no_word_of_an_error(demo: Served) -> None:
    assert demo.stop() == 0
    assert not demo.folder.exists()
    assert "Traceback" not in demo.output
    assert not re.search(r"^\S+ (error|critical) ", demo.output, re.MULTILINE), demo.output


def test_a_worker_beside_nothing_stops_cleanly_too(tmp_path: Path) -> None:
    worker = Process(tmp_path / "data", "worker", "--data", "data")
    try:
        worker.until("is at work")
        assert worker.stop() == 0
        assert "Traceback" not in worker.output
    finally:
        worker.process.kill()
