"""`stateward dns ...`: zones and records by their domain names."""

from typing import Annotated

import typer

from stateward.client import (
    ObjectSelector,
    ObjectView,
    Session,
    accepted_outcome,
    filled_table,
    finish_requests,
    on_server,
    requests_action,
    url_path,
)
from stateward.plugin import BadInput
from stateward_dns.model import RecordType

app = typer.Typer(no_args_is_help=True, help="Zones and records on a DNS server.")

Zone = Annotated[str, typer.Argument(metavar="ZONE", help="The zone, such as example.org.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A domain name, such as www.example.org.")]
Type = Annotated[RecordType, typer.Argument(metavar="TYPE", help="Its type, such as A.")]
Data = Annotated[list[str], typer.Argument(metavar="VALUE...", help="Its values, as in a zone file.")]
Ttl = Annotated[int | None, typer.Option("--ttl", help="Seconds for which resolvers may keep the answer.")]


@app.command()
@on_server
def zones(session: Session) -> None:
    """List the zones."""
    found = list(session.client.objects(session.ns, ObjectSelector(kind="dns.zone")))
    session.show(found, lambda all_: filled_table(("zone", "state", "about"), map(_zone_row, all_)))


@app.command()
@requests_action
def add(session: Session, zone: Zone) -> None:
    """Add a zone."""
    made = session.client.create(session.ns, {"kind": "dns.zone", "id": zone, "spec": {}})
    finish_requests(session, [accepted_outcome(made)])


@app.command()
@on_server
def records(session: Session, zone: Zone) -> None:
    """List the records of a zone."""
    found = list(session.client.objects(session.ns, ObjectSelector(kind="dns.record", parent=zone)))
    titles = ("record", "name", "type", "values", "ttl", "state")
    session.show(found, lambda all_: filled_table(titles, map(_record_row, all_)))


@app.command(name="set")
@requests_action
def set_(session: Session, name: Name, type_: Type, values: Data, ttl: Ttl = None) -> None:
    """Create a record, or change its values."""
    zone, relative = _zone_of(session, name)
    wanted = {"values": values} | ({} if ttl is None else {"ttl": ttl})
    record = _find(session, zone, relative, type_)
    if record is not None:
        accepted = session.client.act(session.ns, record.id, "change", {"args": wanted})
    else:
        spec = {"zone": zone, "name": relative, "type": type_.value, **wanted}
        body = {"kind": "dns.record", "id": f"{name}-{type_.value}", "spec": spec}
        accepted = session.client.create(session.ns, body)
    finish_requests(session, [accepted_outcome(accepted)])


@app.command()
@requests_action
def remove(session: Session, name: Name, type_: Type) -> None:
    """Delete a record."""
    zone, relative = _zone_of(session, name)
    record = _find(session, zone, relative, type_)
    if record is None:
        raise BadInput(
            "NAME", f"{name} {type_.value}", f"a record of {zone}; `stateward dns records {zone}` lists them"
        )
    finish_requests(session, [accepted_outcome(session.client.act(session.ns, record.id, "delete", {}))])


@app.command()
@on_server
def export(session: Session, zone: Zone) -> None:
    """Print a zone as a zone file, as the DNS server serves it now."""
    typer.echo(session.client.http.text(url_path("dns", session.ns, "zones", ("ZONE", zone), "file")), nl=False)


def _zone_of(session: Session, name: str) -> tuple[str, str]:
    """Return the zone that a domain name is in, and the name in that zone."""
    known = {one.id for one in session.client.objects(session.ns, ObjectSelector(kind="dns.zone"))}
    labels = name.split(".")
    for first in range(len(labels)):
        zone = ".".join(labels[first:])
        if zone in known:
            return zone, ".".join(labels[:first]) or "@"
    raise BadInput("NAME", name, "a name in one of the zones; `stateward dns zones` lists them")


def _find(session: Session, zone: str, name: str, type_: RecordType) -> ObjectView | None:
    chosen = ObjectSelector(kind="dns.record", parent=zone, labels={"rrset": f"{name}/{type_.value}"})
    return next(session.client.objects(session.ns, chosen, 1), None)


def _zone_row(one: ObjectView) -> tuple[str, ...]:
    return one.id, one.state, str(one.spec.get("about", ""))


def _record_row(one: ObjectView) -> tuple[str, ...]:
    spec = one.spec
    values = ", ".join(spec.get("values", ()))
    return one.id, str(spec.get("name", "@")), str(spec.get("type", "A")), values, str(spec.get("ttl", 300)), one.state
