"""`stateward edge ...`: cloudlets with their agents, clusters and apps, and the records that they are made from.

Commands that send a request are rows of a table: their options are the fields of the request's body.
"""

import inspect
from inspect import Parameter
from typing import Annotated, Any

import typer

from stateward.client.confirmation import confirm_action
from stateward.client.formatting import filled_table
from stateward.client.output import results
from stateward.client.session import Session, Timeout, Wait, Yes, on_server
from stateward.domains.edge.api.schemas import OVERRIDES, AgentsView
from stateward.domains.edge.cli.instance_requests import (
    APPINST,
    CLOUDLET,
    CLUSTER,
    COLLECTIONS,
    Ignore,
    follow_operation,
    object_parts,
    path,
    send,
    show_all,
    show_one,
)
from stateward.domains.edge.cli.output_commands import register_output
from stateward.domains.edge.cli.record_commands import register
from stateward.errors import BadInput, count_text

app = typer.Typer(no_args_is_help=True, help="Cloudlets with agents, and clusters and apps on them.")
cloudlets = typer.Typer(no_args_is_help=True, help="Edge sites, each with its agent.")
clusters = typer.Typer(no_args_is_help=True, help="Clusters on cloudlets: CLOUDLET/CLUSTER.")
appinsts = typer.Typer(no_args_is_help=True, help="Apps in clusters: CLOUDLET/CLUSTER/APP.")
app.add_typer(cloudlets, name="cloudlet")
app.add_typer(clusters, name="clusterinst")
app.add_typer(appinsts, name="appinst")
register(app)
register_output(appinsts)

GROUPS = {CLOUDLET: cloudlets, CLUSTER: clusters, APPINST: appinsts}
NAME_HELPS = {CLOUDLET: "The cloudlet's name.", CLUSTER: "The cluster.", APPINST: "The app in its cluster."}
OnCloudlet = Annotated[str | None, typer.Option("--cloudlet", metavar="NAME", help="Only on this cloudlet.")]
Operation = Annotated[str, typer.Argument(metavar="OPERATION", help="An operation's id.")]


def _options(
    version: Annotated[str, typer.Argument(metavar="VERSION", help="The version to upgrade to.")],
    within: Annotated[
        float, typer.Option("--within", min=0.1, max=600, metavar="SECONDS", help="Time for the successor to connect.")
    ] = 60.0,
    missing: Annotated[str | None, typer.Option(help="Policy for missing instances: recreate, or leave.")] = None,
    orphans: Annotated[str | None, typer.Option(help="Policy for orphans: report, or remove.")] = None,
    backend: Annotated[str | None, typer.Option(help="How clusters and apps run: process, or container.")] = None,
    installation: Annotated[
        str | None, typer.Option(metavar="ID", help="The held installation, if more than one is held.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Number of nodes.")] = None,
    flavor: Annotated[str | None, typer.Option(help="The flavor of its nodes.")] = None,
    organization: Annotated[str | None, typer.Option(help="The organization that it belongs to.")] = None,
    setup: Annotated[str | None, typer.Option(metavar="COMMAND", help="Command that runs before it is ready.")] = None,
    autoscale: Annotated[str | None, typer.Option(metavar="POLICY", help="Its autoscale policy.")] = None,
    reservable: Annotated[bool, typer.Option("--reservable", help="Apps on an autocluster may reserve it.")] = False,
    command: Annotated[str | None, typer.Option(metavar="COMMAND", help="The command to run.")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Number of processes.")] = None,
    ignore: Ignore = None,
    wait: Wait = False,
    timeout: Timeout = None,
    yes: Yes = False,
) -> None:
    """Declare the options of all requests; only its signature is used."""


OPTIONS = inspect.signature(_options).parameters
WAIT = ("wait", "timeout")
OVERRIDE = ("ignore", *WAIT)
REMOVAL = (*OVERRIDE, "yes")
CLUSTER_FIELDS = ("nodes", "flavor", "organization", "setup", "autoscale", "reservable")

REQUESTS = (
    # of       command     fields of the body             other options
    (CLOUDLET, "create",   ("missing", "orphans", "backend"), WAIT,
     "Create a cloudlet; it is ready when its agent has connected."),
    (CLOUDLET, "update",   ("missing", "orphans", "backend"), (),
     "Change the policies for missing instances and orphans, or the back end of a cloudlet without instances."),
    (CLOUDLET, "delete",   (),                              REMOVAL,
     "Delete a cloudlet that has no instances, except auto-deleted ones."),
    (CLOUDLET, "upgrade",  ("version", "within"),           WAIT,
     "Upgrade the agent: it starts its successor, which takes over."),
    (CLOUDLET, "fix",      (),                              (),
     "Clear a failed upgrade. For administrators."),
    (CLOUDLET, "maintain", (),                              WAIT,
     "Begin the maintenance of a cloudlet: no new instances, and apps with a policy are moved away first."),
    (CLOUDLET, "resume",   (),                              (),
     "End the maintenance of a cloudlet."),
    (CLOUDLET, "handover", ("installation",),               (),
     "Hand a cloudlet over to an agent that is held. For administrators."),
    (CLUSTER,  "create",   CLUSTER_FIELDS,                  OVERRIDE,
     "Create a cluster of nodes on a cloudlet."),
    (CLUSTER,  "update",   ("nodes", "autoscale"),          OVERRIDE,
     "Change a cluster's number of nodes, or its autoscale policy."),
    (CLUSTER,  "delete",   (),                              REMOVAL,
     "Delete a cluster that has no apps, except auto-deleted ones."),
    (APPINST,  "create",   (),                              OVERRIDE,
     "Deploy an app in a cluster; for CLOUDLET/autocluster.../APP, a cluster is reserved or created."),
    (APPINST,  "update",   ("command", "setup", "count"),   OVERRIDE,
     "Change the command, set-up command or number of processes of an app instance."),
    (APPINST,  "refresh",  (),                              WAIT,
     "Update an app instance to the current record of its app."),
    (APPINST,  "delete",   (),                              REMOVAL,
     "Delete an app instance."),
)  # fmt: skip
METHODS = {"create": "POST", "update": "PATCH", "delete": "DELETE"}


def _add_request(form: str, command: str, fields: tuple[str, ...], others: tuple[str, ...], help_: str) -> None:
    """Add a command that sends a request about the object of its first argument."""

    def run(session: Session, name: str, **given: Any) -> None:  # noqa: ANN401 - whatever options it has
        parts = object_parts(form, name)
        path(session, *parts)  # also checks the name of an object to create, which is no part of the request's path
        body = {field: given[field] for field in fields if given[field] is not None}
        if command == "create":
            parts.pop()
            body["app" if form == APPINST else "name"] = name.rpartition("/")[2]
        elif command not in METHODS:
            parts.append(command)
        elif command == "update" and form != CLOUDLET and not body:
            raise BadInput("options", None, "given: at least one option with a new value")
        chosen = {option: given[option] for option in others}
        session.yes = chosen.pop("yes", False)
        if command == "delete":
            ignored = [OVERRIDES[override.value] for override in chosen["ignore"] or ()]
            confirm_action(session, command, [name.replace("/", ":")], {"facts": ignored} if ignored else {})
        send(session, METHODS.get(command, "POST"), path(session, *parts), body if body or fields else None, **chosen)

    shown = [_name_argument(form, NAME_HELPS[form]), *(OPTIONS[option] for option in (*fields, *others))]
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    GROUPS[form].command(command, help=help_)(on_server(run))


def _add_show(form: str, help_: str) -> None:
    """Add the command that shows an object, or all of its kind."""

    def run(session: Session, name: str | None, cloudlet: str | None = None) -> None:
        if name is None:
            show_all(session, path(session, COLLECTIONS[form.count("/")]), cloudlet)
        else:
            show_one(session, path(session, *object_parts(form, name)))

    by_cloudlet = [Parameter("cloudlet", Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=OnCloudlet)]
    shown = [_name_argument(f"[{form}]", "Only this one.", None), *(by_cloudlet if form != CLOUDLET else [])]
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    GROUPS[form].command("show", help=help_)(on_server(run))


def _name_argument(metavar: str, help_: str, default: object = Parameter.empty) -> Parameter:
    argument = typer.Argument(metavar=metavar, help=help_)
    kind = str if default is Parameter.empty else str | None
    return Parameter("name", Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=Annotated[kind, argument])


for row in REQUESTS:
    _add_request(*row)
_add_show(CLOUDLET, "Show a cloudlet, or all of them.")
_add_show(CLUSTER, "Show a cluster, or all of them.")
_add_show(APPINST, "Show an app instance, or all of them.")


@app.command("agents")
@on_server
def show_agents(session: Session) -> None:
    """Show the agents that are connected to the controller that answers, and the numbers of rejected reports."""
    answer = session.client.http.call(AgentsView, "GET", path(session, "agents"))
    if session.json:
        session.print_data(answer)
        return
    titles = ("cloudlet", "version", "notify", "settled", "orders")
    results().print(filled_table(titles, ([str(getattr(agent, title)) for title in titles] for agent in answer.agents)))
    for why, number in sorted(answer.rejected.items()):
        results().print(f"{count_text(number, 'report')} rejected: {why}", markup=False)


@app.command("progress")
@on_server
def show_progress(session: Session, operation: Operation, timeout: Timeout = None) -> None:
    """Show the progress of an operation from its start, and follow it until its end."""
    follow_operation(session, operation, timeout)
