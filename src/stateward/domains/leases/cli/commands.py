"""`stateward lease ...`: leases and the hosts that they reserve."""

import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec
import typer

from stateward.client.arguments import parse_pairs
from stateward.client.confirmation import confirm_action, confirm_removal
from stateward.client.errors import ApiError
from stateward.client.http import NOTHING, Params
from stateward.client.session import Session, Yes, on_server
from stateward.client.url_paths import NamedPart, url_path
from stateward.domains.leases.cli import views
from stateward.errors import BadInput, StatewardError
from stateward.schemas.journal import LineView

app = typer.Typer(no_args_is_help=True, help="Reserve resources for a span of time.")
hosts = typer.Typer(no_args_is_help=True, help="The hosts that leases are made of.")
app.add_typer(hosts, name="host")

T = TypeVar("T")

LeaseName = Annotated[str, typer.Argument(metavar="LEASE", help="A lease: its name, or its id.")]
HostName = Annotated[str, typer.Argument(metavar="HOST", help="A host: its name.")]
TIME_EXAMPLE = "UTC, such as '2030-01-31 14:00'"
START_HELP = f"Start: {TIME_EXAMPLE}, now, or a span from now."
END_HELP = f"End: {TIME_EXAMPLE}, now, or a span (90m, 8h, 3d) from the start, or from now after the start."
BEFORE_END_HELP = f"Time of the event before_end_lease: {TIME_EXAMPLE}, or a span before the end."
Start = Annotated[str, typer.Option("--start", metavar="TIME", help=START_HELP)]
End = Annotated[str, typer.Option("--end", metavar="TIME", help=END_HELP)]
MaybeStart = Annotated[str | None, typer.Option("--start", metavar="TIME", help=START_HELP)]
MaybeEnd = Annotated[str | None, typer.Option("--end", metavar="TIME", help=END_HELP)]
BeforeEnd = Annotated[str | None, typer.Option("--before-end", metavar="TIME", help=BEFORE_END_HELP)]
Number = Annotated[str, typer.Option("--hosts", metavar="MIN[-MAX]", help="The number of whole hosts.")]
Where = Annotated[
    str, typer.Option("--where", metavar="EXPR", help='Hosts that will do, such as \'[">=", "$vcpus", "8"]\'.')
]
Reservations = Annotated[
    list[str] | None,
    typer.Option("--reservation", metavar="KEY=VALUE,...", help="A reservation with its resource_type. Repeatable."),
]
Rename = Annotated[str | None, typer.Option("--name", help="The new name.")]
Properties = Annotated[
    list[str] | None,
    typer.Option("--property", "-p", metavar="KEY=VALUE", help="A property; empty VALUE removes it."),
]
From = Annotated[str, typer.Option("--from", metavar="TIME", help="The beginning of the calendar.")]
Span = Annotated[str, typer.Option("--span", metavar="SPAN", help="The length of the calendar, such as 12h or 7d.")]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="Wait until it is gone.")]

UNITS = {"m": "minutes", "h": "hours", "d": "days"}
SPAN_PATTERN = re.compile(r"[1-9][0-9]{0,5}[mhd]")
LONGEST_CALENDAR = timedelta(days=366)
"""The longest time that a calendar shows: the days of more have no room in a row."""

SPAN_RULE = "a span: a whole number from 1 and m, h or d, such as 90m, 8h or 3d"
TIME_PATTERN = re.compile(r"[0-9]{4}-[0-9T:. -]+")
TIME_RULE = f"a time in UTC such as '2030-01-31 14:00', now, or {SPAN_RULE}"
TIME_FORMAT = "%Y-%m-%d %H:%M"
NOT_FOUND, POLL_INTERVAL_S = 404, 0.2
KIND = "leases.lease"


class NoSuchLease(StatewardError):
    """No lease goes by a name, or several do."""

    name: str
    ids: list[str]

    def __str__(self) -> str:
        many = f"{len(self.ids)} leases are called {self.name!r}: say which by its id, {', '.join(self.ids)}"
        return many if self.ids else f"there is no lease {self.name!r}"


# --- leases ----------------------------------------------------------------------------------------------------------


@app.command("list")
@on_server
def list_leases(session: Session) -> None:
    """List leases, in the order of their starts."""
    session.show(_leases(session), views.lease_table)


@app.command()
@on_server
def show(session: Session, lease: LeaseName) -> None:
    """Show a lease with its reservations and events."""
    session.show(_find(session, lease), views.lease_view)


@app.command()
@on_server
def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the lease.")],
    end: End,
    start: Start = "now",
    number: Number = "",
    where: Where = "",
    reservation: Reservations = None,
    before_end: BeforeEnd = None,
) -> None:
    """Reserve resources: whole hosts, or those of --reservation."""
    wanted = [_read_reservation(text) for text in reservation or []]
    if number or not wanted:
        least, _, most = (number or "1").partition("-")
        wanted.append(
            {"resource_type": "physical:host", "min": least, "max": most or least, "resource_properties": where}
        )
    body = {"name": name, "reservations": wanted, **_times(start, end, before_end)}
    session.show(_call_lease(session, "POST", body=body), views.lease_view)


@app.command()
@on_server
def update(
    session: Session,
    lease: LeaseName,
    name: Rename = None,
    start: MaybeStart = None,
    end: MaybeEnd = None,
    before_end: BeforeEnd = None,
    reservation: Annotated[
        list[str] | None,
        typer.Option("--reservation", metavar="id=ID,KEY=VALUE,...", help="Change a reservation. Repeatable."),
    ] = None,
) -> None:
    """Change the name, the times or the reservations of a lease."""
    view = _find(session, lease)
    body: dict[str, Any] = {**_times(start, end, before_end, view)}
    body |= {"name": name} if name is not None else {}
    body |= {"reservations": [_read_reservation(text) for text in reservation]} if reservation else {}
    session.show(_call_lease(session, "PUT", view.id, body=body), views.lease_view)


@app.command("end")
@on_server
def end_lease(session: Session, lease: LeaseName, yes: Yes = False) -> None:
    """End a lease now."""
    view = _find(session, lease)
    session.yes = yes
    confirm_removal(session, f"End the lease {view.name} ({view.id}) now?")
    session.show(_call_lease(session, "PUT", view.id, body={"end_date": "now"}), views.lease_view)


@app.command()
@on_server
def delete(session: Session, lease: LeaseName, wait: Wait = False, yes: Yes = False) -> None:
    """Delete a lease, in any status."""
    view = _find(session, lease)
    session.yes = yes
    confirm_action(session, "delete", [view.id], {})
    _call(session, NoneType, "DELETE", "leases", view.id)
    while (there := _if_found(lambda: _call_lease(session, "GET", view.id)) is not None) and wait:
        session.pause(POLL_INTERVAL_S)
    session.show(view, lambda shown: f"{shown.name} ({shown.id}): {'being deleted' if there else 'deleted'}")


@app.command()
@on_server
def recover(session: Session, lease: LeaseName) -> None:
    """Set a lease in ERROR back to the status that its reservations and events have."""
    view = _find(session, lease)
    session.show(_call_lease(session, "POST", view.id, "recover"), views.lease_view)


@app.command()
@on_server
def history(session: Session, lease: LeaseName) -> None:
    """Show the history of a lease, its reservations and its events; also of a deleted lease."""
    view = _find_deleted(session, lease)
    entries = [entry for part in view.parts for entry in _part_history(session, part)]
    session.show(sorted(entries, key=lambda entry: entry.seq), lambda those: views.history_table(view, those))


@app.command()
@on_server
def calendar(session: Session, begin: From = "now", span: Span = "7d") -> None:
    """Show the bookings of hosts over time: a row for each host, a letter for each lease."""
    start = _parse_time("--from", begin)
    end = _add_span("--span", start, span)
    if end - start > LONGEST_CALENDAR:
        raise BadInput("--span", span, f"at most {LONGEST_CALENDAR.days}d")
    hosts, leases = _hosts(session), _leases(session)
    longest = max((len(host.hypervisor_hostname) for host in hosts), default=4)
    window = views.CalendarWindow(start, end, max(20, shutil.get_terminal_size().columns - longest - 3))
    shown = [lease for lease in leases if lease.status not in ("TERMINATED", "DELETING")]
    session.show(shown, lambda those: views.draw_calendar(hosts, those, window, datetime.now(UTC)))


# --- hosts -----------------------------------------------------------------------------------------------------------


@hosts.command("list")
@on_server
def list_hosts(session: Session) -> None:
    """List hosts."""
    session.show(_hosts(session), views.host_table)


@hosts.command("add")
@on_server
def add_host(session: Session, host: HostName, property_: Properties = None) -> None:
    """Register a host; vcpus, memory_mb, local_gb and cleaning_time (in minutes) are properties that mean something."""
    _show_host(session, "POST", body={"name": host, **_read_values("--property", property_ or [])})


@hosts.command("set")
@on_server
def set_host(session: Session, host: HostName, property_: Properties = None) -> None:
    """Change properties of a host."""
    given = _read_values("--property", property_ or [])
    body = {name: None if value == "" else value for name, value in given.items()}
    _show_host(session, "PUT", ("HOST", host), body=body)


@hosts.command("fail")
@on_server
def fail_host(session: Session, host: HostName) -> None:
    """Report a host as failed: its leases get another host, if one is free."""
    _show_host(session, "POST", ("HOST", host), "fail")


@hosts.command("recover")
@on_server
def recover_host(session: Session, host: HostName) -> None:
    """Report a host as up again."""
    _show_host(session, "POST", ("HOST", host), "recover")


@hosts.command("remove")
@on_server
def remove_host(session: Session, host: HostName, yes: Yes = False) -> None:
    """Remove a host without bookings."""
    view = _call_host(session, "GET", ("HOST", host))
    session.yes = yes
    confirm_action(session, "remove", [f"host-{view.hypervisor_hostname}"], {})
    _call(session, NoneType, "DELETE", "os-hosts", ("HOST", host))
    session.show(view, lambda shown: f"{shown.hypervisor_hostname}: removed")


# --- requests --------------------------------------------------------------------------------------------------------


def _call(
    session: Session,
    answer: type[T],
    method: str,
    *parts: str | NamedPart,
    body: object = None,
    params: Params = NOTHING,
) -> T:
    base = url_path("ns", ("namespace", session.ns), "blazar", "v1")
    return session.client.http.call(answer, method, url_path(*parts), body=body, params=params, base=base)


def _call_lease(
    session: Session, method: str, *parts: str, body: object = None, params: Params = NOTHING
) -> views.LeaseView:
    return _call(session, dict[str, views.LeaseView], method, "leases", *parts, body=body, params=params)["lease"]


def _call_host(session: Session, method: str, *parts: str | NamedPart, body: object = None) -> views.LeaseHostView:
    return _call(session, dict[str, views.LeaseHostView], method, "os-hosts", *parts, body=body)["host"]


def _show_host(session: Session, method: str, *parts: str | NamedPart, body: object = None) -> None:
    session.show(_call_host(session, method, *parts, body=body), lambda view: views.host_table([view]))


def _leases(session: Session) -> list[views.LeaseView]:
    leases = _list(session, views.LeaseView, "leases", "leases")
    return sorted(_checked(session, leases), key=lambda lease: (lease.start_date, lease.name))


def _hosts(session: Session) -> list[views.LeaseHostView]:
    return _checked(session, _list(session, views.LeaseHostView, "hosts", "os-hosts"))


def _list(session: Session, entry: type[T], name: str, *parts: str) -> list[T]:
    """Return all entries of a list, page by page; servers of earlier versions answer with one page."""
    entries: list[T] = []
    params: Params = NOTHING
    while True:
        page = _call(session, dict[str, msgspec.Raw], "GET", *parts, params=params)
        entries += msgspec.json.decode(page[name], type=list[entry])  # type: ignore[valid-type]
        links = msgspec.json.decode(page.get(f"{name}_links", b"[]"), type=list[dict[str, str]])
        if not links:
            return entries
        params = {"marker": parse_qs(urlsplit(links[0]["href"]).query)["marker"][0]}


def _checked(session: Session, entries: list[T]) -> list[T]:
    """Return a list; raises if it is empty because there is no such namespace."""
    if not entries:
        session.require_namespace()
    return entries


def _find(session: Session, name: str) -> views.LeaseView:
    leases = _leases(session)
    matches = [lease for lease in leases if lease.id == name] or [lease for lease in leases if lease.name == name]
    if len(matches) != 1:
        raise NoSuchLease(name, [lease.id for lease in matches])
    return matches[0]


def _find_deleted(session: Session, name: str) -> views.LeaseView:
    """Return a lease, or one that was deleted: by its id, or by a name that the journal remembers."""
    try:
        return _find(session, name)
    except NoSuchLease as unknown:
        ids = [] if unknown.ids else _find_in_journal(session, name)
        if len(ids) != 1:
            raise NoSuchLease(name, unknown.ids or ids) from None
    return _call_lease(session, "GET", ids[0], params={"deleted": "true"})


def _find_in_journal(session: Session, name: str) -> list[str]:
    """Return the ids of leases that the journal knows by an id, or else by a name, in the order of their making."""
    if session.client.journal(0, 1, ns=session.ns, kind=KIND, object=name).lines:  # an index has ids, but no names
        return [name]
    ids: dict[str, None] = {}
    after, more = 0, True
    while more:
        page = session.client.journal(after, ns=session.ns, kind=KIND)
        named = (line for line in page.lines if (line.spec or {}).get("name") == name)
        ids |= dict.fromkeys(line.object for line in named)
        after, more = page.after, page.more
    return list(ids)


def _if_found(call: Callable[[], T]) -> T | None:
    """Return the answer to a call; None if the server does not know what the call is about."""
    try:
        return call()
    except ApiError as problem:
        if problem.status == NOT_FOUND:
            return None
        raise


def _part_history(session: Session, part: str) -> list[LineView]:
    """Return the journal entries of a part of a lease; an event that was not due yet has none."""
    return _if_found(lambda: list(session.client.object_history(session.ns, part))) or []


def _read_reservation(text: str) -> dict[str, Any]:
    return _read_values("--reservation", text.split(","))


def _read_values(option: str, pairs: list[str]) -> dict[str, Any]:
    return {name: views.parse_value(value) for name, value in parse_pairs(option, pairs).items()}


def _times(
    start: str | None, end: str | None, before_end: str | None, was: views.LeaseView | None = None
) -> dict[str, str]:
    """Return the times of a lease as the server reads them; a span counts from what its option says."""
    times: dict[str, str] = {}
    if start is not None:
        times["start_date"] = _time_text("--start", start, _now)
    if end is not None:
        times["end_date"] = _time_text("--end", end, lambda: max(_start_of(start, was), _now()))
    if before_end is not None:
        times["before_end_date"] = _time_text("--before-end", before_end, lambda: _end_of(start, end, was), sign=-1)
    return times


def _start_of(start: str | None, was: views.LeaseView | None) -> datetime:
    if start is None and was is not None:
        return views.server_time(was.start_date)
    return _parse_time("--start", start or "now")


def _end_of(start: str | None, end: str | None, was: views.LeaseView | None) -> datetime:
    if end is None and was is not None:
        return views.server_time(was.end_date)
    return _parse_time("--end", end or "now", lambda: max(_start_of(start, was), _now()))


def _time_text(field: str, text: str, origin: Callable[[], datetime], sign: int = 1) -> str:
    """Return a time as the server reads it; a span counts from its origin, or back from there."""
    if SPAN_PATTERN.fullmatch(text):
        return _add_span(field, origin(), text, sign).strftime(TIME_FORMAT)
    if text != "now" and not TIME_PATTERN.fullmatch(text):
        raise BadInput(field, text, TIME_RULE)
    return text


def _now() -> datetime:
    return datetime.now(UTC)


def _parse_time(field: str, text: str, origin: Callable[[], datetime] = _now) -> datetime:
    time = _time_text(field, text, origin)
    try:
        return _now() if time == "now" else datetime.fromisoformat(time).replace(tzinfo=UTC)
    except ValueError:
        raise BadInput(field, text, TIME_RULE) from None


def _add_span(field: str, origin: datetime, text: str, sign: int = 1) -> datetime:
    if not SPAN_PATTERN.fullmatch(text):
        raise BadInput(field, text, SPAN_RULE)
    try:
        return origin + sign * timedelta(**{UNITS[text[-1]]: int(text[:-1])})
    except OverflowError:
        raise BadInput(field, text, SPAN_RULE) from None
