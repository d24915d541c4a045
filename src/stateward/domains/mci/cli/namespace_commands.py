"""`stateward mci namespace ...`: the namespaces in which MCIs and their resources can be created."""

from typing import Annotated

import typer
from rich.table import Table

from stateward.client.confirmation import confirm_removal
from stateward.client.formatting import filled_table
from stateward.client.output import clean, results
from stateward.client.session import Session, Yes, on_server
from stateward.client.url_paths import url_path
from stateward.domains.mci.cli.tumblebug_calls import WIRE, NamespaceEntry

app = typer.Typer(no_args_is_help=True, help="Create, list and delete namespaces.")

PATH = url_path("ns")

NamespaceName = Annotated[str, typer.Argument(metavar="NAME", help="The namespace's name.")]
Description = Annotated[str, typer.Option("--description", metavar="TEXT", help="What the namespace is for.")]


@app.command()
@on_server
def create(session: Session, name: NamespaceName, description: Description = "") -> None:
    """Create a namespace that the token covers."""
    wanted = NamespaceEntry(name, description)
    session.show(
        session.client.http.call(NamespaceEntry, "POST", PATH, body=wanted, base=WIRE),
        lambda namespace: _table([namespace]),
    )


@app.command("list")
@on_server
def list_(session: Session) -> None:
    """List the namespaces that the token covers."""
    session.show(session.client.http.call(dict[str, list[NamespaceEntry]], "GET", PATH, base=WIRE)["ns"], _table)


@app.command()
@on_server
def delete(session: Session, name: NamespaceName, yes: Yes = False) -> None:
    """Delete an empty namespace."""
    session.yes = yes
    confirm_removal(session, f"Delete the namespace {name}?")
    session.client.http.call(object, "DELETE", url_path("ns", ("NAME", name)), base=WIRE)
    if session.json:
        session.print_data({"deleted": name})
    else:
        results().print(f"Namespace {clean(name)} is deleted.", markup=False, highlight=False)


def _table(namespaces: list[NamespaceEntry]) -> Table:
    return filled_table(
        ("namespace", "description"), ((namespace.name, namespace.description) for namespace in namespaces)
    )
