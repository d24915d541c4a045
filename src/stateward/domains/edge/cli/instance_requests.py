"""Requests and output of the edge commands: names, waiting with live progress, tables."""

from collections.abc import Mapping
from enum import StrEnum
from itertools import chain
from shlex import join
from typing import Annotated, Any

import msgspec
import typer
from rich.console import RenderableType
from rich.text import Text

from stateward.client.action_requests import RequestOutcome, print_outcomes, wait_for_outcomes, warn_of_waiting
from stateward.client.formatting import age_text, error_text, facts_table, filled_table, state_text
from stateward.client.http import idempotency_headers
from stateward.client.output import clean, err
from stateward.client.progress import follow_progress
from stateward.client.session import Session
from stateward.client.url_paths import NamedPart, UrlPath, url_path
from stateward.domains.edge.api.schemas import (
    CapacityView,
    Conditions,
    EdgeAcceptedView,
    HeldView,
    LoadView,
    NodeLoadView,
    PortView,
    View,
)
from stateward.domains.edge.errors import names_text
from stateward.errors import BadInput, count_text


class Override(StrEnum):
    """An override of an administrator: what the request ignores."""

    AGENT = "agent"
    AGENT_ERRORS = "agent-errors"
    TRANSIENT = "transient"


Ignore = Annotated[
    list[Override] | None,
    typer.Option("--ignore", help="For administrators: do without the agent, its errors, or the present state."),
]

CLOUDLET, CLUSTER, APPINST = "CLOUDLET", "CLOUDLET/CLUSTER", "CLOUDLET/CLUSTER/APP"
"""The forms of the names of cloudlets and instances."""

MAX_NAMED_ORPHANS = 10
"""How many orphans the conditions of a cloudlet name; `--json` has more."""

COLLECTIONS = ("cloudlets", "clusterinsts", "appinsts")
"""The API's collections of cloudlets and instances, from the outermost to the innermost."""


def path(session: Session, *parts: str | NamedPart) -> UrlPath:
    """Return the path of a collection or an object in the API."""
    return url_path("edge", "ns", ("namespace", session.ns), *parts)


def object_parts(form: str, name: str) -> list[str | NamedPart]:
    """Return the parts of the path of a cloudlet or an instance; raises `BadInput` if its name has not the form."""
    names = name.split("/") if "/" in form else [name]
    if len(names) != form.count("/") + 1 or not all(names):
        raise BadInput("name", name, f"of the form {form}")
    return list(chain(*zip(COLLECTIONS, zip(form.split("/"), names, strict=True), strict=False)))


# --- requests --------------------------------------------------------------------------------------------------------


def send(
    session: Session,
    method: str,
    where: UrlPath,
    body: Mapping[str, Any] | None = None,
    ignore: list[Override] | None = None,
    wait: bool = False,
    timeout: float | None = None,
) -> None:
    """Send a request, wait for the end of its operation if asked to, and print the outcome."""
    params = {"ignore": [override.value for override in ignore] if ignore else None}
    headers = idempotency_headers()
    answer = session.client.http.call(EdgeAcceptedView, method, where, params=params, body=body, headers=headers)
    conditions = answer.object.conditions
    if method == "DELETE" and (conditions.orphans or conditions.orphan_count):
        left = clean(_orphans_text(conditions, len(conditions.orphans)))
        err().print(Text(f"Left at the cloudlet, where nobody looks after them: {left}", style="yellow"))
    operation = None if answer.operation is None else session.client.operation(session.ns, answer.operation.id)
    outcome = RequestOutcome(answer.object.id, answer.object, operation)
    warn_of_waiting(session, [outcome])
    print_outcomes(session, [_follow(session, outcome, timeout) if wait else outcome])


def follow_operation(session: Session, operation: str, timeout: float | None) -> None:
    """Print the progress of an operation from its start until its end, and then its outcome."""
    record = session.client.operation(session.ns, operation)
    print_outcomes(session, [_follow(session, RequestOutcome(record.object, None, record), timeout)])


def _follow(session: Session, outcome: RequestOutcome, timeout: float | None) -> RequestOutcome:
    """Wait for the end of an operation, and print its lines of progress meanwhile."""
    if outcome.operation is not None and session.client.has_worker and not session.json:
        follow_progress(session.client, outcome.operation, _print_progress, timeout)
    return wait_for_outcomes(session, [outcome], timeout)[0]


def _print_progress(text: str, done: int | None, total: int | None) -> None:
    count = f" ({done} of {total})" if done is not None and total is not None else ""
    err().print(Text(f"  {clean(text)}{count}", style="dim"))


# --- output ----------------------------------------------------------------------------------------------------------


def show_all(session: Session, where: UrlPath, cloudlet: str | None = None) -> None:
    """Print all objects of a collection, or those on a cloudlet."""

    def table(views: list[View]) -> RenderableType:
        if not views:
            return f"None in namespace {session.ns}."
        rows = [{**_facts(session, view), **_measured(view)} for view in views]
        titles = [title for title in rows[0] if title not in OPTIONAL or any(row[title] for row in rows)]
        return filled_table(tuple(titles), ([row[title] for title in titles] for row in rows))

    shown = session.client.http.call_pages(list[View], where, lambda view: view.id, {"cloudlet": cloudlet or None})
    if cloudlet and not shown:
        session.client.http.call(
            View, "GET", path(session, *object_parts(CLOUDLET, cloudlet))
        )  # tells if it is unknown
    session.show(shown, table)


def show_one(session: Session, where: UrlPath) -> None:
    """Print an object with its operation and its spec."""

    def table(view: View) -> RenderableType:
        facts, spec = _facts(session, view), view.spec if isinstance(view.spec, dict) else {}
        error = facts.pop("error")
        details = spec_facts(spec)
        load = [] if view.load is None else [("load", load_text(view.load)), *map(_node_fact, view.load.nodes)]
        ports = [("published", port_text(port)) for port in view.ports]
        capacity = [] if view.capacity is None else [("capacity", capacity_text(view.capacity))]
        more = [("operation", view.op or ""), ("error", error), *ports, *load, *capacity]
        return facts_table([*facts.items(), *more, *details])

    session.show(session.client.http.call(View, "GET", where), table)


def _facts(session: Session, view: View) -> dict[str, str | Text]:
    return {
        "id": view.id,
        "state": state_text(session.state_class, view.kind, view.state),
        "since": age_text(view.since),
        "conditions": conditions_text(view.conditions),
        "error": error_text(view.error),
    }


SHORT_FORM = ("command", "setup", "count", "probe")
"""The fields of an app without parts."""


def spec_facts(spec: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the fields of a spec; each part of an app is a fact, with the copies, image and command first."""
    parts = spec.get("parts") or ()
    hidden = ("parts", *SHORT_FORM) if parts else ("parts",)
    return [
        *((str(name), str(value)) for name, value in spec.items() if name not in hidden),
        *((f"part {part.get('name', 'main')}", _part_text(part)) for part in parts),
    ]


def _part_text(part: dict[str, Any]) -> str:
    command = part.get("command", "")
    words = command if isinstance(command, str) else join(command)
    copies = count_text(part.get("count", 1), "copy", "copies")
    more = [
        f"{name} {msgspec.json.encode(value).decode()}"
        for name, value in part.items()
        if name not in ("name", "image", "command", "count")
    ]
    return ", ".join(filter(None, (copies, part.get("image", ""), words, *more)))


OPTIONAL = ("capacity", "load", "published")
"""Columns of a list that are left out where nothing is known."""


def _measured(view: View) -> dict[str, str]:
    """Return what an agent tells of an object beside its state."""
    return {
        "capacity": "" if view.capacity is None else capacity_text(view.capacity),
        "load": "" if view.load is None else load_text(view.load),
        "published": ", ".join(f"{port.port}/{port.protocol} at {_host_address(port)}" for port in view.ports),
    }


def conditions_text(conditions: Conditions) -> str:
    """Return the conditions of an object beside its state."""
    agent = "" if conditions.online is None else f"agent {conditions.version}" if conditions.online else "no agent"
    texts = [
        "missing" if conditions.missing else "",
        "being undone" if conditions.undoing else "",
        f"reserved by {conditions.reserved_by}" if conditions.reserved_by else "",
        agent,
        f"orphans: {_orphans_text(conditions, MAX_NAMED_ORPHANS)}"
        if conditions.orphans or conditions.orphan_count
        else "",
        *map(_held_text, conditions.held),
        *(f"{alert.name}: {alert.reason}" for alert in conditions.alerts),
        f"agent refused: {conditions.refused}" if conditions.refused else "",
    ]
    return ", ".join(filter(None, texts))


def _orphans_text(conditions: Conditions, most: int) -> str:
    return names_text(conditions.orphans, max(conditions.orphan_count, len(conditions.orphans)), most)


def port_text(port: PortView) -> str:
    """Return a published port of an app."""
    return f"{port.part}: {port.port}/{port.protocol} at {_host_address(port)}"


def _host_address(port: PortView) -> str:
    return f"[{port.address}]:{port.host_port}" if ":" in port.address else f"{port.address}:{port.host_port}"


def capacity_text(capacity: CapacityView) -> str:
    """Return what the clusters of a cloudlet take of what it has."""
    cores = f"{capacity.used_cores:g} of {'unknown' if capacity.cores is None else f'{capacity.cores:g}'} cores"
    memory = "unknown" if capacity.memory is None else f"{capacity.memory / 2**20:.0f}"
    return f"{cores}, {capacity.used_memory / 2**20:.0f} of {memory} MiB"


def load_text(load: LoadView) -> str:
    """Return the measured load of an instance."""
    health = {True: "healthy", False: "unhealthy", None: ""}[load.healthy]
    connections = "" if load.connections is None else count_text(int(load.connections), "connection")
    return ", ".join(filter(None, [_use_text(load.cpu, load.mem), connections, health]))


def _use_text(cpu: float | None, mem: float | None) -> str:
    cores = "" if cpu is None else f"{cpu:.2f} cores"
    return ", ".join(filter(None, [cores, "" if mem is None else f"{mem / 2**20:.0f} MiB"]))


def _node_fact(node: NodeLoadView) -> tuple[str, str]:
    return f"node {node.node}", _use_text(node.cpu, node.mem) if node.up else "down"


def _held_text(agent: HeldView) -> str:
    has = f", has {names_text(agent.things, max(agent.thing_count, len(agent.things)))}" if agent.things else ""
    return f"another agent is held: installation {agent.installation or 'without identity'}{has}"
