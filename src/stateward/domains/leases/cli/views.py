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
        return sorted({name for reservation in self.reservations for name in reservation.hosts})

    @property
    def parts(self) -> dict[str, str]:
        """The names of its parts by their ids: the lease itself, its reservations and its events."""
        reservations = {reservation.id: f"reservation {reservation.id[:8]}" for reservation in self.reservations}
        return {self.id: "lease"} | reservations | {event.id: event.event_type for event in self.events}


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
    for lease in leases:
        status = status_text(lease.status)
        if lease.degraded:
            status.append(" degraded", style="yellow")
        what = ", ".join(lease.hosts or [each.resource_type for each in lease.reservations])
        table.add_row(lease.id, clean(lease.name), status, *_window_texts(lease), clean(what))
    return table


def lease_view(lease: LeaseView) -> RenderableType:
    """Return a lease in full."""
    head = Text.assemble((clean(lease.name), "bold"), "  ", status_text(lease.status), f"  {lease.id}")
    if lease.status_reason:
        head.append(f"\n{clean(lease.status_reason)}", style="red")
    reservations = plain_table("RESERVATION", "TYPE", "STATUS", "HOSTS", "REMARKS")
    for reservation in lease.reservations:
        flags = [name for name in ("missing_resources", "resources_changed") if getattr(reservation, name)]
        remarks = clean(", ".join([*flags, *([reservation.error] if reservation.error else [])]))
        reservations.add_row(
            reservation.id,
            reservation.resource_type,
            status_text(reservation.status),
            clean(", ".join(reservation.hosts)),
            remarks,
        )
    events = plain_table("EVENT", "TIME", "STATUS")
    for each in lease.events:
        events.add_row(each.event_type, minute_text(each.time), status_text(each.status))
    return Group(head, "", reservations, "", events)


def history_table(lease: LeaseView, lines: Iterable[LineView]) -> Table:
    """Return what has happened to a lease and all of its parts, in order."""
    table = plain_table("WHEN", "WHAT", "EVENT", "HOW", "BY")
    for line in lines:
        way = f"from {line.source} to {line.target}" if line.target is not None else ""
        how = ": ".join(word for word in (way, line.reason) if word)
        table.add_row(
            utc_text(line.at), lease.parts[line.object], clean(line.event), clean(how), actor_text(line.actor, line.who)
        )
    return table


def host_table(hosts: Iterable[LeaseHostView]) -> Table:
    """Return hosts as a list."""
    table = plain_table("HOST", "STATUS", "VCPUS", "MEMORY MB", "DISK GB")
    for host in hosts:
        status = status_text(host.status)
        if not host.reservable:
            status.append(" not reservable", style="yellow")
        size = (str(host.vcpus), str(host.memory_mb), str(host.local_gb))
        table.add_row(clean(host.hypervisor_hostname), status, *size)
    return table


def draw_calendar(
    hosts: Sequence[LeaseHostView], leases: Sequence[LeaseView], window: CalendarWindow, now: datetime
) -> RenderableType:
    """Return the bookings of hosts over time: a row per host, a letter per lease."""
    shown = [
        lease
        for lease in leases
        if lease.hosts and server_time(lease.start_date) < window.end and server_time(lease.end_date) >= window.start
    ]
    letters = {lease.id: LETTERS[number % len(LETTERS)] for number, lease in enumerate(shown)}
    table = Table(box=None, pad_edge=False, show_header=True, header_style="dim")
    table.add_column("HOST", no_wrap=True)
    span = window.end - window.start
    step = next((candidate for candidate in STEPS if span / candidate * MIN_LABEL_WIDTH <= window.columns), STEPS[-1])
    form = "%d %b" if step >= timedelta(days=1) else "%d %H:%M"
    line = [" "] * window.columns
    at = datetime.fromtimestamp(window.start.timestamp() // step.total_seconds() * step.total_seconds(), UTC)
    while at < window.end:
        column, text = window.column(at), at.strftime(form)
        if at >= window.start and column + len(text) <= window.columns:
            line[column : column + len(text)] = text
        at += step
    table.add_column("".join(line), no_wrap=True)
    for host in hosts:
        name = Text(clean(host.hypervisor_hostname), style="" if host.status == "up" else "red")
        table.add_row(name, _row(host.hypervisor_hostname, shown, letters, window, now))
    legend = plain_table("", "LEASE", "STATUS", "FROM", "TO")
    for number, lease in enumerate(shown):
        letter = Text(letters[lease.id], style=f"bold {LEASE_COLOURS[number % len(LEASE_COLOURS)]}")
        legend.add_row(letter, clean(lease.name), status_text(lease.status), *_window_texts(lease))
    return Group(table, "", legend) if shown else table


def _row(
    host: str, leases: Sequence[LeaseView], letters: dict[str, str], window: CalendarWindow, now: datetime
) -> Text:
    row: list[tuple[str, str]] = [(FREE, "dim")] * window.columns
    for number, lease in enumerate(leases):
        if host not in lease.hosts:
            continue
        first = min(window.column(server_time(lease.start_date)), window.columns - 1)
        last = max(window.column(server_time(lease.end_date)), first + 1)
        row[first:last] = [(letters[lease.id], LEASE_COLOURS[number % len(LEASE_COLOURS)])] * (last - first)
    here = window.column(now)
    if window.start <= now < window.end:
        row[here] = (row[here][0], f"reverse {row[here][1]}")
    return Text.assemble(*row)


def parse_value(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can say
    """Return a value read from the command line: a number where it is one."""
    return int(value) if isinstance(value, str) and WHOLE_NUMBER.fullmatch(value) else value
