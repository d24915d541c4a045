"""`stateward edge flavor|app|autoscale|autoprov`: passive records, and reports of demand."""

from typing import Annotated, Any

import typer

from stateward.client.arguments import parse_pairs, parse_values
from stateward.client.confirmation import confirm_action
from stateward.client.session import Session, Yes, on_server
from stateward.client.url_paths import UrlPath
from stateward.domains.edge.api.schemas import View
from stateward.domains.edge.cli.instance_requests import path, show_all, show_one
from stateward.errors import BadInput

Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name.")]
MaybeName = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this one.")]
Fields = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FIELD=VALUE]...", help="Its fields; a value is JSON, or else text."),
]
Requests = Annotated[list[str], typer.Argument(metavar="CLOUDLET=REQUESTS...", help="Requests in an interval.")]

LONGEST_NUMBER = 18
RECORD_COMMANDS = {
    "flavor": ("flavors", "Sizes of nodes: size, cores, memory."),
    "app": ("apps", "Apps: command, count, setup, flavor, organization, auto_delete, autoprov, probe."),
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
    def create(session: Session, name: Name, fields: Fields = None) -> None:
        """Define it, or replace it if it exists: fields that are not given get their defaults."""
        _send(session, "PUT", path(session, where, ("NAME", name)), _values(fields, help_))

    @on_server
    def update(session: Session, name: Name, fields: Fields = None) -> None:
        """Change some of its fields."""
        values = _values(fields, help_)
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
    found = {cloudlet: _number(number) for cloudlet, number in parse_pairs("requests", requests).items()}
    _send(session, "POST", path(session, "apps", ("NAME", name), "demand"), {"requests": found})


def _values(fields: list[str] | None, help_: str) -> dict[str, Any]:
    """Return the given fields; none at all would replace a record by an empty one."""
    if not fields:
        raise BadInput("field", None, f"given, as FIELD=VALUE. {help_}")
    return parse_values("field", fields)


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > LONGEST_NUMBER:
        raise BadInput("requests", text, f"a number of at most {LONGEST_NUMBER} digits")
    return int(text)


def _send(session: Session, method: str, where: UrlPath, body: dict[str, Any] | None = None) -> None:
    session.show(session.client.http.call(View, method, where, body=body), lambda found: found.id)
