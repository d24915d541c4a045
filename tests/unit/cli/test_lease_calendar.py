"""The calendar in the terminal."""

from datetime import UTC, datetime, timedelta
from io import StringIO

from rich.console import Console

from stateward.domains.leases.cli.views import (
    CalendarWindow,
    LeaseEventView,
    LeaseHostView,
    LeaseView,
    ReservationView,
    draw_calendar,
)

START = datetime(2030, 1, 1, tzinfo=UTC)


def lease(name: str, begin: float, end: float, *hosts: str) -> LeaseView:
    def told(hours: float) -> str:
        return (START + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%S.%f")

    reservation = ReservationView(id="r", resource_type="physical:host", status="pending", hosts=list(hosts))
    return LeaseView(
        id=name, name=name, status="PENDING", degraded=False, start_date=told(begin), end_date=told(end),
        user_id="", project_id="", reservations=[reservation], events=list[LeaseEventView](),
    )  # fmt: skip


def host(name: str) -> LeaseHostView:
    return LeaseHostView(hypervisor_hostname=name, status="up", vcpus=1, memory_mb=1, local_gb=1, reservable=True)


def drawn(*leases: LeaseView) -> list[str]:
    window = CalendarWindow(START, START + timedelta(hours=24), 24)
    text = StringIO()
    Console(file=text, width=80).print(draw_calendar([host("h1"), host("h2")], leases, window, START))
    return [line.rstrip() for line in text.getvalue().splitlines()]


def test_each_host_has_a_row_and_each_lease_a_letter_for_its_time() -> None:
    lines = drawn(lease("early", 2, 6, "h1"), lease("both", 10, 14, "h1", "h2"))
    assert lines[1].split()[-1] == "··AAAA····BBBB··········"
    assert lines[2].split()[-1] == "··········BBBB··········"
    assert [line.split()[1] for line in lines[5:]] == ["early", "both"]


def test_a_lease_that_is_shorter_than_a_column_is_seen_all_the_same() -> None:
    assert drawn(lease("blink", 5.2, 5.3, "h2"))[2].split()[-1] == "·····A··················"


def test_what_begins_before_or_ends_after_the_time_shown_is_cut_off_and_the_rest_is_not_shown() -> None:
    lines = drawn(lease("long", -10, 100, "h1"), lease("over", -9, -1, "h2"))
    assert lines[1].split()[-1] == "A" * 24
    assert lines[2].split()[-1] == "·" * 24


def test_no_lease_leaves_only_the_hosts() -> None:
    assert len(drawn()) == 3
