"""`stateward edge flavor|app|autoscale|autoprov`: passive records, and reports of demand."""

from pathlib import Path
from typing import Annotated, Any

import typer
from yaml import YAMLError

from stateward.client.arguments import parse_pairs, parse_values, read_source
from stateward.client.confirmation import confirm_action
from stateward.client.session import Session, Yes, on_server
from stateward.client.url_paths import UrlPath
from stateward.documents import load_all
from stateward.domains.edge.api.schemas import View
from stateward.domains.edge.cli.instance_requests import path, show_all, show_one
from stateward.errors import BadInput

Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name.")]
MaybeName = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this one.")]
Fields = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FIELD=VALUE]...", help="Its fields; a value is JSON, or text; commas separate names."),
]
File = Annotated[
    Path | None,
    typer.Option(
        "--file", "-f", metavar="FILE", help="Its fields, in YAML or JSON (- is stdin); those given here go before."
    ),
]
Requests = Annotated[list[str], typer.Argument(metavar="CLOUDLET=REQUESTS...", help="Requests in an interval.")]

LONGEST_NUMBER = 18
LISTS_OF_NAMES = frozenset({"cloudlets"})
"""Fields whose names may be given with commas between them, as well as in JSON."""
RECORD_COMMANDS = {
    "flavor": ("flavors", "Sizes of nodes: size, cores, memory."),
    "app": ("apps", "Apps: parts, or command, count, setup, probe; flavor, organization, auto_delete, autoprov."),
    "autoscale": ("autoscale", "Policies of nodes: min, max, cpu, mem, connections."),
    "autoprov": (
        "autoprov",
        "Where apps run: cloudlets, min, max, requests, demand, deploy_after, undeploy_after.",
    ),
}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for noun, (where, help_) in RECORD_COMMANDS.items():
        app.add_typer(_commands(noun, where, help_), name=noun)


def _commands(noun: str, where: str, help_: str) -> typer.Typer:
    commands = typer.Typer(no_args_is_help=True, help=help_)

    @on_server
    def create(session: Session, name: Name, fields: Fields = None, file: File = None) -> None:
        """Define it, or replace it if it exists: fields that are not given get their defaults."""
        _send(session, "PUT", path(session, where, ("NAME", name)), _values(fields, file, help_))

    @on_server
    def update(session: Session, name: Name, fields: Fields = None, file: File = None) -> None:
        """Change some of its fields."""
        values = _values(fields, file, help_)
        before = session.client.http.call(View, "GET", path(session, where, ("NAME", name))).spec
        _send(session, "PUT", path(session, where, ("NAME", name)), {**before, **values})

    @on_server
    def delete(session: Session, name: Name, yes: Yes = False) -> None:
        """Delete it."""
        session.yes = yes
        confirm_action(session, "delete", [f"{noun}.{name}"], {})
        _send(session, "DELETE", path(session, where, ("NAME", name)))

    @on_server
    def show(session: Session, name: MaybeName = None) -> None:
        """Show it, or all of them."""
        if name is None:
            show_all(session, path(session, where))
        else:
            show_one(session, path(session, where, ("NAME", name)))

    for command in (create, update, delete, show):
        commands.command()(command)
    if noun == "app":
        commands.command("demand")(report_demand)
    return commands


@on_server
def report_demand(session: Session, name: Name, requests: Requests) -> None:
    """Report an interval of an app's demand; its policy deploys or removes instances."""
    counts = {cloudlet: _number(number) for cloudlet, number in parse_pairs("requests", requests).items()}
    _send(session, "POST", path(session, "apps", ("NAME", name), "demand"), {"requests": counts})


def _values(fields: list[str] | None, file: Path | None, help_: str) -> dict[str, Any]:
    """Return the given fields; none at all would replace a record by an empty one."""
    if not fields and file is None:
        raise BadInput("field", None, f"given, as FIELD=VALUE, or in a file (-f). {help_}")
    given = parse_values("field", fields or [])
    for name in LISTS_OF_NAMES & given.keys():
        if isinstance(text := given[name], str):
            given[name] = text.split(",") if text else []
    return {**({} if file is None else _read_fields(file)), **given}


def _read_fields(file: Path) -> dict[str, Any]:
    """Return the fields in a file: one object in YAML or JSON."""
    try:
        documents = load_all(read_source("--file", str(file)).decode())
    except UnicodeDecodeError as error:
        raise BadInput("--file", str(file), f"a file that can be read ({error})") from error
    except YAMLError as error:
        raise BadInput("--file", str(file), f"YAML or JSON ({error})") from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise BadInput("--file", str(file), "one object with the fields of the record")
    return documents[0]


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > LONGEST_NUMBER:
        raise BadInput("requests", text, f"a number of at most {LONGEST_NUMBER} digits")
    return int(text)


def _send(session: Session, method: str, where: UrlPath, body: dict[str, Any] | None = None) -> None:
    session.show(session.client.http.call(View, method, where, body=body), lambda view: view.id)
