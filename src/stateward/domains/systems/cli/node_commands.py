"""`stateward system node ...`: register, list, drain and delete the hosts of services, and run the agent of one."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from stateward import __version__
from stateward.client.action_requests import finish_requests, read_outcome
from stateward.client.confirmation import confirm_removal
from stateward.client.formatting import age_text, error_text, filled_table, state_text
from stateward.client.http import idempotency_headers
from stateward.client.output import out
from stateward.client.session import Session, on_server, requests_action
from stateward.client.target import read_token_file
from stateward.client.url_paths import NamedPart, UrlPath, url_path
from stateward.domains.systems.cli.views import alert_text
from stateward.domains.systems.views import AskedView, NodeView
from stateward.errors import BadInput

node_app = typer.Typer(no_args_is_help=True, help="Register, watch, drain and delete the hosts that services run on.")

KIND = "systems.node"

Node = Annotated[str, typer.Argument(metavar="NODE", help="The node's name.")]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="NAME=VALUE", help="A label, by which node pools choose nodes. Repeatable."),
]
Controllers = Annotated[
    list[str],
    typer.Option(
        "--controller", metavar="URL", help="wss://HOST:PORT of a controller. Repeatable: any of them will do."
    ),
]
TokenFile = Annotated[
    Path, typer.Option("--token-file", metavar="FILE", help="A file with a token of the role agent for this node.")
]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="The node's namespace.")]
Address = Annotated[
    str, typer.Option("--address", metavar="IP", help="The address at which other hosts reach instances of this host.")
]
Data = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="The folder in which the agent stores its state.")
]
Cpus = Annotated[
    float | None, typer.Option("--cpus", min=0.01, help="Cores for instances; without it, all of this host.")
]
Memory = Annotated[
    int | None, typer.Option("--memory", min=1, metavar="MIB", help="MiB for instances; without it, all of this host.")
]
Slots = Annotated[int, typer.Option("--slots", min=1, max=100_000, help="The most instances at once.")]

Engine = Annotated[
    str,
    typer.Option(
        "--container-engine",
        metavar="URL",
        help="unix:///PATH of this host's Docker or Podman, if services may run containers here.",
    ),
]


@node_app.command()
@on_server
def register(session: Session, node: Node, label: Labels = None) -> None:
    """Register a host as a node; then make a token for its agent, and start the agent there."""
    body = {"name": node, "labels": _labels(label or [])}
    session.client.http.call(AskedView, "POST", _at(session), body=body, headers=idempotency_headers())
    _show(session, node)


@node_app.command("list")
@on_server
def list_(session: Session) -> None:
    """List the nodes, with what they have and what is in use."""
    shown = session.client.http.call_pages(list[NodeView], _at(session), lambda node: node.name)
    session.show(shown, lambda views: node_table(session, views))


@node_app.command()
@on_server
def show(session: Session, node: Node) -> None:
    """Show a node and the instances that are placed on it."""
    _show(session, node)


@node_app.command()
@requests_action
def drain(session: Session, node: Node) -> None:
    """Move all instances of a node to others; it takes no new ones."""
    _act(session, "POST", node, "drain")


@node_app.command()
@requests_action
def uncordon(session: Session, node: Node) -> None:
    """Let a node take instances again; a drain that is under way is cancelled."""
    _act(session, "POST", node, "uncordon")


@node_app.command()
@requests_action
def delete(session: Session, node: Node) -> None:
    """Delete a node that is empty, or lost."""
    confirm_removal(session, f"Delete node {session.ns}/{node}?")
    _act(session, "DELETE", node)


@node_app.command()
def agent(
    node: Node,
    controller: Controllers,
    token_file: TokenFile,
    namespace: Namespace = "default",
    address: Address = "127.0.0.1",
    data: Data = None,
    cpus: Cpus = None,
    memory: Memory = None,
    slots: Slots = 100,
    container_engine: Engine = "",
) -> None:
    """Run the agent of a node on this host.

    It starts and stops instances here as a controller orders, and kills them when it reaches no controller for the time
    of its lease.
    """
    import asyncio
    import logging

    from stateward.domains.systems.nodes.node_agent import NodeAgentOptions, run_node_agent

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
    for chatty in ("websockets", "httpx"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    folder = (data or Path(f"stateward-node-{node}")).absolute()
    out().print(f"agent of node {namespace}/{node}, version {__version__}, starts in {folder}", markup=False)
    options = NodeAgentOptions(
        node,
        tuple(controller),
        namespace,
        address,
        folder,
        token_file.absolute(),
        cpus,
        memory,
        slots,
        container_engine,
    )
    asyncio.run(run_node_agent(options, read_token_file(token_file).text))


def node_table(session: Session, nodes: Sequence[NodeView]) -> Table:
    """Return nodes as a table."""
    rows = (
        (
            node.name,
            state_text(session.state_class, KIND, node.state),
            age_text(node.since),
            "yes" if node.connected else "no",
            node.address,
            f"{node.used_slots}/{node.slots}",
            f"{node.used_cpu:g}/{node.cpu:g}",
            f"{node.used_memory}/{node.memory}",
            "yes" if node.containers else "no",
            ",".join(f"{name}={value}" for name, value in sorted(node.labels.items())),
            error_text("; ".join(map(alert_text, node.alerts))),
        )
        for node in nodes
    )
    facts = ("slots", "cores", "MiB", "containers", "labels", "alerts")
    return filled_table(("node", "state", "since", "connected", "address", *facts), rows)


def _show(session: Session, node: str) -> None:
    shown = session.client.http.call(NodeView, "GET", _at(session, ("NODE", node)))
    session.show(shown, lambda view: node_table(session, [view]))
    if not session.json:
        for instance in shown.instances:
            out().print(f"  {instance}", markup=False, highlight=False)


def _act(session: Session, method: str, node: str, *action: str) -> None:
    where = _at(session, ("NODE", node), *action)
    asked = session.client.http.call(AskedView, method, where, headers=idempotency_headers())
    finish_requests(session, [read_outcome(session, asked.id, asked.operation)])


def _labels(given: Sequence[str]) -> dict[str, str]:
    for label in given:
        if "=" not in label:
            raise BadInput("--label", label, "NAME=VALUE")
    return {name: value for name, _, value in (label.partition("=") for label in given)}


def _at(session: Session, *parts: str | NamedPart) -> UrlPath:
    return url_path("systems", ("namespace", session.ns), "-", "nodes", *parts)
