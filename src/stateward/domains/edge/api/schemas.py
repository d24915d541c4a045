"""Request bodies and responses of the edge API."""

from collections.abc import Iterable
from datetime import UTC, datetime
from time import time
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from stateward.agents.measure_messages import MAX_LOAD
from stateward.agents.message_types import ANY_TEXT
from stateward.agents.messages import SiteBackend
from stateward.domains.edge.lifecycle import CLOUDLET, IGNORE_AGENT, IGNORE_AGENT_ERRORS, IGNORE_TRANSIENT
from stateward.domains.edge.model import (
    INSTANCE_LIFECYCLES,
    VERSION,
    Count,
    HeldAgent,
    KeptLoad,
    MaybeName,
    Missing,
    Name,
    Orphans,
    Text,
    cloudlet_status,
    instance_status,
)
from stateward.domains.edge.policy.capacity import ResourceAmounts
from stateward.domains.edge.records.alert_names import AlertName
from stateward.domains.edge.sites.app_manifest import Parts
from stateward.engine import Accepted
from stateward.engine.alerts import Alert
from stateward.store.records import Object, Operation

Amount = Annotated[float, Meta(ge=0, le=MAX_LOAD)]
BACKEND_MEANS = "what its agent must offer: clusters and apps run as processes, or as containers"
Ignore = Literal["agent", "agent-errors", "transient"]
OVERRIDES: dict[Ignore, str] = {
    "agent": IGNORE_AGENT,
    "agent-errors": IGNORE_AGENT_ERRORS,
    "transient": IGNORE_TRANSIENT,
}

# --- request bodies --------------------------------------------------------------------------------------------------


class NewCloudlet(Struct, frozen=True, forbid_unknown_fields=True):
    """A new cloudlet."""

    name: Name
    missing: Missing = "recreate"
    orphans: Orphans = "report"
    backend: Annotated[SiteBackend, Meta(description=BACKEND_MEANS)] = SiteBackend.PROCESS


class CloudletChange(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Changes of a cloudlet."""

    missing: Missing | None = None
    orphans: Orphans | None = None
    backend: Annotated[SiteBackend | None, Meta(description=BACKEND_MEANS)] = None


class NewVersion(Struct, frozen=True, forbid_unknown_fields=True):
    """The version to upgrade an agent to."""

    version: Annotated[str, Meta(pattern=VERSION)]
    within: Annotated[float, Meta(gt=0, le=600, description="seconds that the successor has to come up")] = 60.0


class NewOwner(Struct, frozen=True, forbid_unknown_fields=True):
    """The installation of the agent that a cloudlet is handed over to."""

    installation: Annotated[str | None, Meta(description="one that is held; may be left out if only one is")] = None


class NewCluster(Struct, frozen=True, forbid_unknown_fields=True):
    """A new cluster."""

    name: Name
    flavor: MaybeName = ""
    nodes: Count = 1
    organization: Name = "default"
    setup: Text = ""
    autoscale: MaybeName = ""
    reservable: bool = False


class ClusterChange(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Changes of a cluster."""

    nodes: Count | None = None
    autoscale: MaybeName | None = None


class NewAppInst(Struct, frozen=True, forbid_unknown_fields=True):
    """The app to deploy."""

    app: Name


class AppInstChange(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Changes of an app instance."""

    command: Text | None = None
    setup: Text | None = None
    count: Count | None = None
    parts: Parts | None = None


class NewLoad(Struct, frozen=True, forbid_unknown_fields=True):
    """The load of all nodes of a cluster together."""

    cpu: Amount = 0.0
    mem: Amount = 0.0
    connections: Amount = 0.0


class NewDemand(Struct, frozen=True, forbid_unknown_fields=True):
    """The number of requests in an interval, by cloudlet."""

    requests: Annotated[dict[Name, Annotated[int, Meta(ge=0)]], Meta(max_length=10_000)]


class NewCommand(Struct, frozen=True, forbid_unknown_fields=True):
    """A command to run where an app runs, and the seconds after which it is ended."""

    argv: Annotated[
        tuple[Annotated[str, Meta(max_length=10_000, pattern=ANY_TEXT)], ...], Meta(min_length=1, max_length=1000)
    ]
    part: Annotated[str, Meta(max_length=250, description="a part of the app; empty: its first")] = ""
    within: Annotated[float, Meta(gt=0, le=600)] = 60.0


def changes(change: Struct) -> dict[str, Any]:
    """Return the fields that a change sets."""
    return {name: value for name, value in msgspec.to_builtins(change).items() if value is not None}


# --- responses -------------------------------------------------------------------------------------------------------


class HeldView(Struct, frozen=True):
    """An agent of another installation, which waits for a hand-over; `things` names the first things at its site."""

    installation: str
    version: str
    since: datetime
    dialled: datetime
    things: tuple[str, ...]
    thing_count: Annotated[int, Meta(description="the number of all things at its site")] = 0


class AlertView(Struct, frozen=True):
    """An alert: a condition that somebody should look at."""

    name: Annotated[str, Meta(description=f"one of: {', '.join(AlertName)}")]
    reason: str
    since: datetime


class NodeLoadView(Struct, frozen=True):
    """The measured load of a cluster's node."""

    node: str
    up: bool
    cpu: Annotated[float | None, Meta(description="cores used; null: unknown")]
    mem: Annotated[float | None, Meta(description="bytes of memory; null: unknown")]


class LoadView(Struct, frozen=True):
    """The load of an instance, as its agent measured it last; null is unknown."""

    at: datetime
    cpu: Annotated[float | None, Meta(description="cores used")]
    mem: Annotated[float | None, Meta(description="bytes of memory")]
    connections: Annotated[float | None, Meta(description="established connections to it")]
    requests: Annotated[int, Meta(description="new connections to it since its agent started")]
    healthy: Annotated[bool | None, Meta(description="the verdict of its probe")]
    nodes: tuple[NodeLoadView, ...]


class CapacityView(Struct, frozen=True):
    """The capacity of a cloudlet, and what the flavors of its clusters take of it; null is unknown, and no limit."""

    cores: float | None
    memory: Annotated[int | None, Meta(description="bytes")]
    used_cores: float
    used_memory: Annotated[int, Meta(description="bytes")]


class PortView(Struct, frozen=True):
    """A published port of an app: of which copy (PART/NUMBER), and where its host leads to it."""

    part: str
    port: int
    protocol: str
    address: str
    host_port: int


class Conditions(Struct, frozen=True):
    """Conditions of an instance or a cloudlet, beside its state."""

    generation: int = 0
    missing: bool = False
    undoing: bool = False
    reserved_by: str = ""
    online: bool | None = None
    version: str = ""
    orphans: Annotated[tuple[str, ...], Meta(description="the first ones by name")] = ()
    installation: str = ""
    held: tuple[HeldView, ...] = ()
    alerts: tuple[AlertView, ...] = ()
    refused: str = ""
    orphan_count: Annotated[int, Meta(description="the number of all orphans")] = 0


class View(Struct, frozen=True, kw_only=True):
    """A cloudlet, an instance, a flavor, an app or a policy; the load of an instance is null while it is unknown."""

    ns: str
    id: str
    kind: str
    state: str
    since: datetime
    version: int
    generation: int
    op: str | None
    parent: str | None
    spec: Any
    error: str | None
    conditions: Conditions
    load: LoadView | None = None
    capacity: Annotated[CapacityView | None, Meta(description="of a cloudlet")] = None
    ports: Annotated[
        tuple[PortView, ...], Meta(description="published ports of an app instance that is Ready, at most 200")
    ] = ()


class EdgeOperationView(Struct, frozen=True, kw_only=True):
    """An operation; its progress is at `/api/v1/ns/{ns}/operations/{id}/events`."""

    ns: str
    id: str
    object: str
    kind: str
    action: str
    status: str
    created: datetime


class EdgeAcceptedView(Struct, frozen=True):
    """An accepted request: the object, and the operation that was started, if any."""

    object: View
    operation: EdgeOperationView | None


class AgentView(Struct, frozen=True):
    """An agent that is connected to this controller."""

    cloudlet: str
    version: str
    notify: int
    settled: bool
    orders: int


class AgentsView(Struct, frozen=True):
    """The agents of a namespace that are connected to this controller, and counts of rejected messages by reason."""

    controller: str
    agents: list[AgentView]
    rejected: dict[str, int]


def view(record: Object, kept: KeptLoad | None = None) -> View:
    """Return the view of an object, with its load if that is known."""
    return View(
        ns=record.ns,
        id=record.id,
        kind=record.kind,
        state=record.state,
        since=datetime.fromtimestamp(record.since, UTC),
        version=record.version,
        generation=record.generation,
        op=record.op,
        parent=record.parent,
        spec=msgspec.json.decode(record.spec),
        error=record.error,
        conditions=_conditions(record),
        load=None if kept is None else _load_view(kept),
        ports=_port_views(record),
    )


def _port_views(record: Object) -> tuple[PortView, ...]:
    ports = instance_status(record).ports if record.kind in INSTANCE_LIFECYCLES else ()
    return tuple(PortView(port.part, port.port, port.protocol, port.address, port.host_port) for port in ports)


def capacity_view(cloudlet: Object, used: ResourceAmounts) -> CapacityView:
    """Return the view of a cloudlet's capacity."""
    status = cloudlet_status(cloudlet)
    return CapacityView(status.cores or None, status.memory or None, used.cores, used.memory)


def _load_view(kept: KeptLoad) -> LoadView:
    load = kept.load
    nodes = tuple(NodeLoadView(node.key, node.is_up, node.cpu, node.mem) for node in load.nodes)
    at = datetime.fromtimestamp(kept.at, UTC)
    return LoadView(at, load.cpu, load.mem, load.connections, load.requests, load.is_healthy, nodes)


def _alert_views(alerts: Iterable[Alert]) -> tuple[AlertView, ...]:
    return tuple(AlertView(alert.name, alert.reason, datetime.fromtimestamp(alert.since, UTC)) for alert in alerts)


def _conditions(record: Object) -> Conditions:
    if record.kind in INSTANCE_LIFECYCLES:
        status = instance_status(record)
        alerts = _alert_views(status.alerts)
        return Conditions(status.generation, status.missing, status.undoing, status.reserved_by, alerts=alerts)
    if record.kind == CLOUDLET.kind:
        agents = cloudlet_status(record)
        return Conditions(
            online=agents.serving > 0,
            version=agents.version,
            orphans=agents.orphans,
            installation=agents.installation or "",
            held=tuple(map(_held_view, agents.held_at(time()))),
            alerts=_alert_views(agents.alerts),
            refused=agents.refused,
            orphan_count=agents.orphan_count,
        )
    return Conditions()


def _held_view(agent: HeldAgent) -> HeldView:
    since, dialled = (datetime.fromtimestamp(at, UTC) for at in (agent.since, agent.dialled))
    return HeldView(agent.installation, agent.version, since, dialled, agent.things, agent.thing_count)


def operation_view(operation: Operation) -> EdgeOperationView:
    """Return the view of an operation."""
    return EdgeOperationView(
        ns=operation.ns,
        id=operation.id,
        object=operation.object,
        kind=operation.kind,
        action=operation.action,
        status=operation.status,
        created=datetime.fromtimestamp(operation.created, UTC),
    )


def accepted_view(accepted: Accepted) -> EdgeAcceptedView:
    """Return the view of an accepted request."""
    operation = accepted.operation
    return EdgeAcceptedView(view(accepted.object), None if operation is None else operation_view(operation))


class CommandView(Struct, frozen=True):
    """The end of a command: its exit status, the last of its output, and how many bytes of it came before."""

    status: int
    written: str
    omitted: int
