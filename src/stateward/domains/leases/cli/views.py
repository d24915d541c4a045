"""Leases and hosts as the API sends them, and their output: as a list, in full, as a calendar."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stateward.client.formatting import actor_text, utc_text
from stateward.client.output import clean, plain_table
from stateward.schemas.journal import LineView

STATUS_COLOURS = {
    "PENDING": "cyan",
    "ACTIVE": "green",
    "TERMINATED": "blue",
    "ERROR": "red",
    "pending": "cyan",
    "active": "green",
    "deleted": "blue",
    "error": "red",
    "UNDONE": "cyan",
    "IN_PROGRESS": "yellow",
    "DONE": "green",
    "up": "green",
    "failed": "red",
}
LEASE_COLOURS = ("green", "blue", "magenta", "cyan", "yellow")
"""The colours of the leases in a calendar, in turn."""

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
FREE, MIN_LABEL_WIDTH = "·", 10
WHOLE_NUMBER = re.compile(r"[0-9]{1,15}")
STEPS = (timedelta(hours=1), timedelta(hours=6), timedelta(days=1), timedelta(days=7), timedelta(days=30))


class ReservationView(Struct, frozen=True, kw_only=True):
    """A reservation of a lease."""

    id: str
    resource_type: str
    status: str
    missing_resources: bool = False
    resources_changed: bool = False
    hosts: list[str] = []
    error: str | None = None


class LeaseEventView(Struct, frozen=True, kw_only=True):
    """An event of a lease."""

    id: str
    event_type: str
    status: str
    time: str


class LeaseView(Struct, frozen=True, kw_only=True):
    """A lease."""

    id: str
    name: str
    status: str
    status_reason: str | None = None
    degraded: bool
    start_date: str
    end_date: str
    user_id: str
    project_id: str
    reservations: list[ReservationView]
    events: list[LeaseEventView]

    @property
    def hosts(self) -> list[str]:
        """The hosts of all reservations."""
        return sorted({name for one in self.reservations for name in one.hosts})

    @property
    def parts(self) -> dict[str, str]:
        """The names of its parts by their ids: the lease itself, its reservations and its events."""
        reservations = {one.id: f"reservation {one.id[:8]}" for one in self.reservations}
        return {self.id: "lease"} | reservations | {one.id: one.event_type for one in self.events}


class LeaseHostView(Struct, frozen=True, kw_only=True):
    """A host."""

    hypervisor_hostname: str
    status: str
    vcpus: int
    memory_mb: int
    local_gb: int
    reservable: bool


class CalendarWindow(Struct, frozen=True):
    """The time that a calendar shows, and in how many columns."""

    start: datetime
    end: datetime
    columns: int

    def column(self, at: datetime) -> int:
        """Return the column that a moment falls into."""
        share = (at - self.start) / (self.end - self.start)
        return max(0, min(self.columns, int(share * self.columns)))


def server_time(text: str) -> datetime:
    """Parse a time of the server's answers."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def minute_text(text: str) -> str:
    """Return a time of the server's answers, to the minute."""
    return text[:16].replace("T", " ")


def _window_texts(lease: LeaseView) -> tuple[str, str]:
    return minute_text(lease.start_date), minute_text(lease.end_date)


def status_text(word: str) -> Text:
    """Return a status in its colour."""
    return Text(clean(word), style=STATUS_COLOURS.get(word, "yellow"))


def lease_table(leases: Iterable[LeaseView]) -> Table:
    """Return leases as a list."""
    table = plain_table("ID", "NAME", "STATUS", "FROM", "TO", "WITH")
    for one in leases:
        status = status_text(one.status)
        if one.degraded:
            status.append(" degraded", style="yellow")
        what = ", ".join(one.hosts or [each.resource_type for each in one.reservations])
        table.add_row(one.id, clean(one.name), status, *_window_texts(one), clean(what))
    return table


def lease_view(lease: LeaseView) -> RenderableType:
    """Return a lease in full."""
    head = Text.assemble((clean(lease.name), "bold"), "  ", status_text(lease.status), f"  {lease.id}")
    if lease.status_reason:
        head.append(f"\n{clean(lease.status_reason)}", style="red")
    reservations = plain_table("RESERVATION", "TYPE", "STATUS", "HOSTS", "REMARKS")
    for one in lease.reservations:
        flags = [name for name in ("missing_resources", "resources_changed") if getattr(one, name)]
        remarks = clean(", ".join([*flags, *([one.error] if one.error else [])]))
        reservations.add_row(one.id, one.resource_type, status_text(one.status), clean(", ".join(one.hosts)), remarks)
    events = plain_table("EVENT", "TIME", "STATUS")
    for each in lease.events:
        events.add_row(each.event_type, minute_text(each.time), status_text(each.status))
    return Group(head, "", reservations, "", events)


def history_table(lease: LeaseView, lines: Iterable[LineView]) -> Table:
    """Return what has happened to a lease and all of its parts, in order."""
    table = plain_table("WHEN", "WHAT", "EVENT", "HOW", "BY")
    for one in lines:
        way = f"from {one.source} to {one.target}" if one.target is not None else ""
        how = ": ".join(word for word in (way, one.reason) if word)
        table.add_row(
            utc_text(one.at), lease.parts[one.object], clean(one.event), clean(how), actor_text(one.actor, one.who)
        )
    return table


def host_table(hosts: Iterable[LeaseHostView]) -> Table:
    """Return hosts as a list."""
    table = plain_table("HOST", "STATUS", "VCPUS", "MEMORY MB", "DISK GB")
    for one in hosts:
        status = status_text(one.status)
        if not one.reservable:
            status.append(" not reservable", style="yellow")
        size = (str(one.vcpus), str(one.memory_mb), str(one.local_gb))
        table.add_row(clean(one.hypervisor_hostname), status, *size)
    return table


def draw_calendar(
    hosts: Sequence[LeaseHostView], leases: Sequence[LeaseView], window: CalendarWindow, now: datetime
) -> RenderableType:
    """Return the bookings of hosts over time: a row per host, a letter per lease."""
    shown = [one for one in leases if one.hosts and _overlaps(one, window)]
    letters = {one.id: LETTERS[number % len(LETTERS)] for number, one in enumerate(shown)}
    table = Table(box=None, pad_edge=False, show_header=True, header_style="dim")
    table.add_column("HOST", no_wrap=True)
    table.add_column(_scale(window), no_wrap=True)
    for host in hosts:
        name = Text(clean(host.hypervisor_hostname), style="" if host.status == "up" else "red")
        table.add_row(name, _row(host.hypervisor_hostname, shown, letters, window, now))
    legend = plain_table("", "LEASE", "STATUS", "FROM", "TO")
    for number, one in enumerate(shown):
        letter = Text(letters[one.id], style=f"bold {LEASE_COLOURS[number % len(LEASE_COLOURS)]}")
        legend.add_row(letter, clean(one.name), status_text(one.status), *_window_texts(one))
    return Group(table, "", legend) if shown else table


def _overlaps(lease: LeaseView, window: CalendarWindow) -> bool:
    return server_time(lease.start_date) < window.end and server_time(lease.end_date) >= window.start


def _row(
    host: str, leases: Sequence[LeaseView], letters: dict[str, str], window: CalendarWindow, now: datetime
) -> Text:
    row: list[tuple[str, str]] = [(FREE, "dim")] * window.columns
    for number, one in enumerate(leases):
        if host not in one.hosts:
            continue
        first = min(window.column(server_time(one.start_date)), window.columns - 1)
        last = max(window.column(server_time(one.end_date)), first + 1)
        row[first:last] = [(letters[one.id], LEASE_COLOURS[number % len(LEASE_COLOURS)])] * (last - first)
    here = window.column(now)
    if window.start <= now < window.end:
        row[here] = (row[here][0], f"reverse {row[here][1]}")
    return Text.assemble(*row)


def _scale(window: CalendarWindow) -> str:
    """Return the times at the top of a calendar, as many as there is room for."""
    span = window.end - window.start
    step = next((one for one in STEPS if span / one * MIN_LABEL_WIDTH <= window.columns), STEPS[-1])
    form = "%d %b" if step >= timedelta(days=1) else "%d %H:%M"
    line = [" "] * window.columns
    at = datetime.fromtimestamp(window.start.timestamp() // step.total_seconds() * step.total_seconds(), UTC)
    while at < window.end:
        column, text = window.column(at), at.strftime(form)
        if at >= window.start and column + len(text) <= window.columns:
            line[column : column + len(text)] = text
        at += step
    return "".join(line)


def parse_value(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can say
    """Return a value read from the command line: a number where it is one."""
    return int(value) if isinstance(value, str) and WHOLE_NUMBER.fullmatch(value) else value
