"""`stateward mci connection ...`: connections to the regions of providers."""

from typing import Annotated

import typer

from stateward.client.arguments import parse_pairs
from stateward.client.confirmation import confirm_removal
from stateward.client.output import clean, results
from stateward.client.session import Session, Yes, on_server
from stateward.client.url_paths import NamedPart, UrlPath, url_path
from stateward.domains.mci.cli.tumblebug_calls import Connection
from stateward.domains.mci.cli.views import connection_table
from stateward.naming import check_credential_reference

app = typer.Typer(no_args_is_help=True, help="Add, list, grant and remove connections to providers.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The connection's name.")]
Provider = Annotated[str, typer.Option("--provider", help="The provider, such as aws.")]
Region = Annotated[str, typer.Option("--region", help="Its region.")]
Zone = Annotated[str, typer.Option("--zone", help="A zone of the region.")]
Driver = Annotated[
    str, typer.Option("--driver", help="simulated, process, qemu, container, aws, azure, gcp or openstack.")
]
Credential = Annotated[
    str,
    typer.Option(
        "--credential", metavar="REF", help="Where the credential is: env:PREFIX, file:PATH or file:PATH#PROFILE."
    ),
]
Options = Annotated[
    list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="A setting of the driver. Repeatable.")
]

Granted = Annotated[
    list[str] | None,
    typer.Option("--grant", metavar="NS", help="A namespace that may use it, or '*' for all. Repeatable."),
]
Namespaces = Annotated[list[str], typer.Argument(metavar="NS...", help="Namespaces; '*' for all.")]


@app.command()
@on_server
def add(
    session: Session,
    name: Name,
    provider: Provider,
    region: Region,
    driver: Driver,
    zone: Zone = "",
    credential: Credential = "",
    option: Options = None,
    grant_to: Granted = None,
) -> None:
    """Add a connection, or change one. A driver that acts on this host starts without namespaces that may use it."""
    check_credential_reference("credential", credential)
    options = parse_pairs("option", option or [])
    wanted = Connection(name, provider, region, zone, driver, credential, options, namespaces=grant_to)
    made = session.client.http.call(Connection, "POST", _path(), body=wanted)
    session.show(made, lambda made: connection_table([made]))


@app.command("list")
@on_server
def list_(session: Session) -> None:
    """List all connections: those that every server knows, and those that were added."""
    connections = session.client.http.call(list[Connection], "GET", _path())
    session.show(connections, connection_table)


@app.command()
@on_server
def grant(session: Session, name: Name, namespaces: Namespaces) -> None:
    """Let namespaces make VMs at a connection and run commands on them."""
    _change_grants(session, name, "grant", namespaces)


@app.command()
@on_server
def revoke(session: Session, name: Name, namespaces: Namespaces) -> None:
    """Let namespaces make nothing more at a connection; their VMs there can still be controlled and terminated."""
    _change_grants(session, name, "revoke", namespaces)


def _change_grants(session: Session, name: str, how: str, namespaces: list[str]) -> None:
    body = {"namespaces": namespaces}
    changed = session.client.http.call(Connection, "POST", _path(("NAME", name), how), body=body)
    session.show(changed, lambda changed: connection_table([changed]))


@app.command()
@on_server
def remove(session: Session, name: Name, yes: Yes = False) -> None:
    """Remove a connection at which nothing stands."""
    session.yes = yes
    confirm_removal(session, f"Remove the connection {name}?")
    session.client.http.call(object, "DELETE", _path(("NAME", name)))
    if session.json:
        session.print_data({"removed": name})
    else:
        results().print(f"Connection {clean(name)} is removed.", markup=False, highlight=False)


def _path(*parts: str | NamedPart) -> UrlPath:
    return url_path("mci", "connections", *parts)
