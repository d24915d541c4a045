"""`stateward lease` against a real server."""

from collections.abc import Iterator
from itertools import product

import pytest

from stateward.domains.leases import list_pages
from stateward.domains.leases.runtime import LeasesRuntime
from stateward.domains.leases.settings import Settings
from stateward.plugin.runtime import ProcessContext
from tests.integration.cli.cli_server import DomainCliServer
from tests.waiting import wait_until


class LeaseCliServer(DomainCliServer):
    """A server with leases."""

    command = "lease"

    def make_runtime(self) -> LeasesRuntime:
        return LeasesRuntime(ProcessContext(self.folder), Settings())

    def becomes(self, name: str, status: str) -> None:
        """Wait until a lease has a status."""
        wait_until(lambda: self.seen("show", name)["status"] == status)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeaseCliServer]:
    with LeaseCliServer(tmp_path_factory.mktemp("leases")).opened() as opened:
        assert isinstance(opened, LeaseCliServer)
        yield opened


@pytest.fixture
def cli(server: LeaseCliServer, request: pytest.FixtureRequest) -> LeaseCliServer:
    """Return the server, with a namespace and two hosts for each test."""
    server.ns = request.node.name.replace("_", "-")[:60]
    for name in ("node-1", "node-2"):
        server.done("host", "add", name, "-p", "vcpus=16", "-p", "memory_mb=65536")
    return server


def test_a_lease_is_made_listed_shown_moved_and_deleted(cli: LeaseCliServer) -> None:
    cli.done("create", "night", "--start", "2030-01-31 22:00", "--end", "8h", "--hosts", "1-2")
    (found,) = cli.seen("list")
    assert (found["name"], found["status"], found["end_date"][:16]) == ("night", "PENDING", "2030-02-01T06:00")
    assert "night" in cli.done("list")
    assert "before_end_lease" in cli.done("show", "night")
    cli.done("update", "night", "--name", "long night", "--end", "2030-02-01 09:00")
    assert cli.seen("show", "long night")["end_date"][:16] == "2030-02-01T09:00"
    assert f"long night ({found['id']}): deleted" in cli.done("delete", found["id"])
    assert cli.seen("list") == []


def test_a_span_counts_from_the_start_and_a_warning_back_from_the_end(cli: LeaseCliServer) -> None:
    cli.done("create", "far", "--start", "2030-03-01 12:00", "--end", "2h", "--before-end", "30m")
    for words, end, warned in (
        ((), "2030-03-01T14:00", "2030-03-01T13:30"),
        (("--end", "9h"), "2030-03-01T21:00", "2030-03-01T20:30"),
        (("--before-end", "1d"), "2030-03-01T21:00", None),
        (("--before-end", "2h"), "2030-03-01T21:00", "2030-03-01T19:00"),
        (("--start", "2030-03-02 00:00", "--end", "1d", "--before-end", "1h"), "2030-03-03T00:00", "2030-03-02T23:00"),
    ):
        if words:
            answer = cli.run("lease", "update", "far", *words)
            assert (answer.exit_code == 0) is (warned is not None), answer.output
        found = cli.seen("show", "far")
        told = {one["event_type"]: one["time"][:16] for one in found["events"]}
        assert found["end_date"][:16] == end
        assert warned is None or told["before_end_lease"] == warned
    cli.done("delete", "far")


def test_a_calendar_of_centuries_is_refused(cli: LeaseCliServer) -> None:
    done = cli.run("lease", "calendar", "--span", "99999d")
    assert (done.exit_code, "--span: '99999d' must be at most 366d" in done.stderr) == (2, True), done.output


def test_what_is_neither_a_time_nor_a_span_is_refused_with_the_option(cli: LeaseCliServer) -> None:
    odd_ones = ("0h", "1.5h", "9H", "-1h", "8", "1w", "90 m", "2030", "1h30m")
    for option, odd in product(("--end", "--start", "--before-end"), odd_ones):
        answer = cli.run("lease", "create", "x", *(("--end", "1h") if option != "--end" else ()), f"{option}={odd}")
        told = f"{answer.output} {answer.exception}"
        assert answer.exit_code != 0
        assert f"{option}: {odd!r} must be a time in UTC such as" in told
        assert "a whole number from 1 and m, h or d" in told
    assert cli.seen("list") == []


def test_the_history_of_a_lease_outlives_it(cli: LeaseCliServer) -> None:
    cli.done("create", "gone", "--start", "2030-01-31 22:00", "--end", "8h")
    id_ = cli.seen("show", "gone")["id"]
    cli.done("update", "gone", "--name", "renamed")
    cli.done("delete", "renamed", "--wait")
    for name in (id_, "gone", "renamed"):
        lines = cli.seen("history", name)
        assert {line["kind"] for line in lines} == {"leases.lease", "leases.reservation"}
        assert "from pending to deleted" in cli.done("history", name)
    cli.done("create", "gone", "--start", "2030-01-31 22:00", "--end", "8h")
    other = cli.seen("show", "gone")["id"]
    assert {line["object"] for line in cli.seen("history", "gone") if line["kind"] == "leases.lease"} == {other}
    cli.done("delete", "gone", "--wait")
    assert "2 leases are called 'gone'" in cli.run("lease", "history", "gone").output


def test_the_calendar_shows_who_has_which_host_when(cli: LeaseCliServer) -> None:
    cli.done("create", "night", "--start", "2030-01-31 22:00", "--end", "8h")
    shown = cli.done("calendar", "--from", "2030-01-31 00:00", "--span", "3d").splitlines()
    assert sum(line.startswith("node-") for line in shown) == 2
    assert sum("A" in line for line in shown if line.startswith("node-")) == 1
    assert any("night" in line and "PENDING" in line for line in shown)


def test_a_lease_is_ended_at_once_and_its_history_tells_of_all_its_parts(cli: LeaseCliServer) -> None:
    cli.done("create", "short", "--end", "2h", "--where", '[">=", "$vcpus", "8"]')
    cli.becomes("short", "ACTIVE")
    cli.done("end", "short")
    cli.becomes("short", "TERMINATED")
    lines = cli.seen("history", "short")
    assert [line["seq"] for line in lines] == sorted(line["seq"] for line in lines)
    assert {line["kind"] for line in lines} == {"leases.lease", "leases.reservation", "leases.event"}
    shown = cli.done("history", "short")
    for told in ("from pending to active", "from ACTIVE to TERMINATING", "start_lease", "end_lease", "on node-1"):
        assert told in shown


def test_a_lease_is_not_ended_before_its_start_and_its_deletion_frees_its_hosts(cli: LeaseCliServer) -> None:
    cli.done("create", "early", "--start", "2030-01-31 22:00", "--end", "8h")
    refused = cli.run("lease", "end", "early")
    assert (refused.exit_code, "the lease is PENDING, so delete it" in refused.output) == (2, True), refused.output
    cli.done("delete", "early", "--yes")


def test_a_host_that_fails_is_replaced_and_comes_back(cli: LeaseCliServer) -> None:
    cli.done("create", "robust", "--end", "2h")
    cli.becomes("robust", "ACTIVE")
    assert "failed" in cli.done("host", "fail", "node-1")
    wait_until(lambda: cli.seen("show", "robust")["degraded"])
    assert "resources_changed" in cli.done("show", "robust")
    cli.done("host", "recover", "node-1")
    wait_until(lambda: not cli.seen("show", "robust")["degraded"])
    assert cli.seen("show", "robust")["reservations"][0]["hosts"] == ["node-2"]


def test_hosts_are_changed_and_removed(cli: LeaseCliServer) -> None:
    cli.done("host", "set", "node-1", "-p", "vcpus=32")
    assert [one["vcpus"] for one in cli.seen("host", "list")] == [32, 16]
    assert "node-1: removed" in cli.done("host", "remove", "node-1")
    assert "node-1" not in cli.done("host", "list")


def test_other_things_than_hosts_are_reserved_by_their_type(cli: LeaseCliServer) -> None:
    wish = "resource_type=virtual:instance,vcpus=4,memory_mb=1024,disk_gb=0,amount=3"
    cli.done("create", "guests", "--end", "1h", "--start", "2031-01-01 00:00", "--reservation", wish)
    (reservation,) = cli.seen("show", "guests")["reservations"]
    assert reservation["resource_type"] == "virtual:instance"


def test_what_is_refused_is_told_with_its_reason(cli: LeaseCliServer) -> None:
    for words, told in (
        (("show", "nobody"), "no lease 'nobody'"),
        (("create", "x", "--end", "soon"), "--end"),
        (
            ("create", "x", "--start", "2h", "--end", "2030-01-31"),
            "a date with its time of day, such as '2030-01-31 14:00'",
        ),
        (
            ("create", "x", "--start", "2h", "--end", "1999-01-01"),
            "a date with its time of day, such as '1999-01-01 14:00'",
        ),
        (("create", "x", "--start", "2h", "--end", "1999-01-01 14:00"), "a time after the start, and not in the past"),
        (("create", "x", "--end", "2030-02-31 14:00"), "a time that the calendar has"),
        (("create", "x", "--end", "9999-12-31 14:00"), "before the year 9999"),
        (("create", "x", "--end", "1h", "--hosts", "9"), "not enough"),
        (("recover", "here"), "recover"),
        (("host", "remove", "nobody"), "nobody"),
    ):
        if words[0] == "recover":
            cli.done("create", "here", "--start", "2030-01-01 00:00", "--end", "1h")
        answer = cli.run("lease", *words)
        assert answer.exit_code != 0
        assert told in f"{answer.output} {answer.exception}", words


def test_lists_follow_the_pages_of_the_server(cli: LeaseCliServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_pages, "MAX_LISTED", 2)
    for number in range(3):
        cli.done("host", "add", f"paged-{number}")
    for number in range(5):
        cli.done("create", f"lease-{number}", "--start", f"{9 - number}d", "--end", "1h")
    hosts = [one["hypervisor_hostname"] for one in cli.seen("host", "list")]
    assert hosts == ["node-1", "node-2", "paged-0", "paged-1", "paged-2"]
    assert [one["name"] for one in cli.seen("list")] == [f"lease-{number}" for number in reversed(range(5))]
