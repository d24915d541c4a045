"""The unmodified `blazar` command of OpenStack against a real server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.server.server_processes import Served, served
from tests.waiting import wait_until

BLAZAR = Path(sys.executable).parent / "blazar"


class Blazar:
    """The command, as its users call it."""

    def __init__(self, server: Served, process: "subprocess.Popen[str]") -> None:
        self._server, self._process = server, process

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        how = ["--os-auth-type", "admin_token", "--os-endpoint", f"{self._server.url}/blazar/v1"]
        command = [*how, "--os-token", self._server.token, *words]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(command)}\n")
        self._process.stdin.flush()
        return subprocess.CompletedProcess(command, *json.loads(self._process.stdout.readline()))

    def ask(self, *words: str) -> Any:
        """Run a command that answers with data."""
        done = self.run(*words, "-f", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout[min(found for found in map(done.stdout.find, "[{") if found >= 0) :])

    def do(self, *words: str) -> str:
        """Run a command that only says that it was done."""
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *words: str) -> str:
        """Run a command that is to be refused; returns what it says."""
        done = self.run(*words)
        assert done.returncode != 0, done.stdout
        return done.stderr


@pytest.fixture(scope="module")
def blazar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Blazar]:
    if not BLAZAR.exists():
        pytest.skip("python-blazarclient is not installed: `make setup` brings it")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
    with (
        served(tmp_path_factory.mktemp("leases") / "data", "--only", "leases") as server,
        subprocess.Popen(
            [sys.executable, "-m", "tests.acceptance.blazar_process"],
            cwd=Path(__file__).parents[2],
            env=clean,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        yield Blazar(server, process)


def test_hosts_are_registered_listed_changed_and_removed(blazar: Blazar) -> None:
    made = blazar.ask("host-create", "spare", "--extra", "vcpus=4", "--extra", "gpu=a100")
    assert (made["hypervisor_hostname"], made["vcpus"], made["gpu"]) == ("spare", 4, "a100")
    assert "spare" in [one["hypervisor_hostname"] for one in blazar.ask("host-list")]
    blazar.do("host-update", "spare", "--extra", "rack=7")
    assert blazar.ask("host-show", "spare")["rack"] in ("7", 7)
    assert [one["property"] for one in blazar.ask("host-property-list")] == [
        "gpu",
        "hypervisor_hostname",
        "rack",
        "vcpus",
    ]
    blazar.do("host-property-set", "gpu", "--private")
    assert "gpu" not in [one["property"] for one in blazar.ask("host-property-list")]
    assert "gpu" in [one["property"] for one in blazar.ask("host-property-list", "--all")]
    blazar.do("host-property-set", "gpu", "--public")
    assert blazar.ask("host-property-show", "gpu")["property_values"] in ("a100", ["a100"])
    blazar.do("host-delete", "spare")
    assert "spare" not in [one["hypervisor_hostname"] for one in blazar.ask("host-list")]


def test_a_lease_is_made_listed_shown_prolonged_renamed_and_deleted(blazar: Blazar) -> None:
    blazar.do("host-create", "node", "--extra", "vcpus=8")
    made = blazar.ask(
        "lease-create", "night",
        "--physical-reservation", 'min=1,max=1,hypervisor_properties=[">=", "$vcpus", "4"]',
        "--start-date", "2030-01-01 22:00", "--end-date", "2030-01-02 06:00",
    )  # fmt: skip
    assert (made["name"], made["status"], made["degraded"]) == ("night", "PENDING", False)
    assert [one["name"] for one in blazar.ask("lease-list")] == ["night"]
    shown = blazar.ask("lease-show", "night")
    assert shown["start_date"] == "2030-01-01T22:00:00.000000"
    assert shown["reservations"].count('"status": "pending"') == 1
    assert [shown["events"].count(f'"{event}"') for event in ("start_lease", "before_end_lease", "end_lease")] == [
        1
    ] * 3
    blazar.do("lease-update", "night", "--prolong-for", "2h")
    blazar.do("lease-update", "night", "--name", "long night")
    assert blazar.ask("lease-show", "long night")["end_date"] == "2030-01-02T08:00:00.000000"
    assert shown["id"] in str(blazar.ask("allocation-show", "host", "node")["reservations"])
    assert "not enough" in blazar.refused(
        "lease-create", "rival", "--physical-reservation", "min=1,max=1",
        "--start-date", "2030-01-02 07:00", "--end-date", "2030-01-02 09:00",
    )  # fmt: skip
    assert "promised" in blazar.refused("host-delete", "node")
    blazar.do("lease-delete", "long night")
    wait_until(lambda: blazar.ask("lease-list") == [])
    blazar.do("host-delete", "node")


def test_a_lease_that_begins_now_becomes_active(blazar: Blazar) -> None:
    blazar.do("host-create", "early")
    blazar.ask("lease-create", "today", "--physical-reservation", "min=1,max=1")
    wait_until(lambda: blazar.ask("lease-show", "today")["status"] == "ACTIVE")
    assert '"active"' in blazar.ask("lease-show", "today")["reservations"]
    blazar.do("lease-delete", "today")


def test_room_for_instances_is_reserved(blazar: Blazar) -> None:
    blazar.do("host-create", "big", "--extra", "vcpus=16", "--extra", "memory_mb=65536", "--extra", "local_gb=100")
    wish = "resource_type=virtual:instance,vcpus=4,memory_mb=1024,disk_gb=10,amount=3,affinity=None"
    when = ("--start-date", "2031-01-01 00:00", "--end-date", "2031-01-02 00:00")
    made = blazar.ask("lease-create", "guests", "--reservation", wish, *when)
    assert '"virtual:instance"' in made["reservations"]
    assert "not enough" in blazar.refused("lease-create", "more guests", "--reservation", wish, *when)
    blazar.do("lease-delete", "guests")
