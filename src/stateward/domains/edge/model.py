"""Records of the edge domain: specs (desired state), statuses (stored in an object's `seen`), and ids."""

import re
from collections.abc import Collection
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import force_setattr, replace

from stateward.agents.measure_messages import Load
from stateward.agents.messages import SiteBackend
from stateward.agents.published_ports import PublishedAddress
from stateward.domains.edge.lifecycle import APPINST, CLUSTERINST, CloudletState
from stateward.domains.edge.records.agent_upgrade import IN_UPGRADE, AgentSlots
from stateward.domains.edge.records.instance_record import ERROR_STATES, InstanceRecord
from stateward.domains.edge.sites.app_manifest import AppProgram, Parts
from stateward.domains.edge.sites.probe_specs import Probe
from stateward.engine import Request
from stateward.engine.alerts import Alert
from stateward.engine.kind_types import require_known_fields
from stateward.errors import BadInput
from stateward.lifecycle import Lifecycle
from stateward.naming import check_script, check_text
from stateward.store.records import Key, Object, Operation
from stateward.validation_texts import bad_input, describe_pattern

T = TypeVar("T", bound=Struct)

CONTROLLER_NS = "(edge)"
"""The namespace of the controllers' own objects."""

NAME_MEANS = "small letters, digits and dashes, at most 63 of them"
NAME = describe_pattern(r"^[a-z0-9][a-z0-9-]{0,62}$(?!\n)", f"a name of {NAME_MEANS}")
MAYBE_NAME = describe_pattern(rf"{NAME}|^$", f"empty, or a name of {NAME_MEANS}")
Name = Annotated[str, Meta(pattern=NAME, description=NAME_MEANS)]
MaybeName = Annotated[str, Meta(pattern=MAYBE_NAME, description="a name, or nothing")]
Count = Annotated[int, Meta(ge=1, le=1000)]
Text = Annotated[str, Meta(max_length=4000)]

MAX_SIZE_CHARS = 100
SCRIPT_FIELDS = ("command", "setup")

MIN_TARGET, MAX_TARGET = 0.001, 1e12
"""The range of a target load per node; 0 means that the load is ignored."""

VERSION = describe_pattern(
    r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}$(?!\n)", "a version of letters, digits and . _ + -, at most 100 of them"
)
"""Pattern of an agent version, which is also a folder name at the agent."""

AUTOCLUSTER_PREFIX = "autocluster"
"""Prefix of a cluster name that asks for a reserved or new cluster instead of a given one."""

RESERVABLE_PREFIX = "reservable"
MAX_RESERVABLE_CLUSTERS = 64
INSTANCE_LIFECYCLES: dict[str, Lifecycle] = {lifecycle.kind: lifecycle for lifecycle in (CLUSTERINST, APPINST)}

Missing = Literal["recreate", "leave"]
Orphans = Literal["report", "remove"]
Demand = Literal["reported", "measured"]
MAX_CLOUDLETS = 1000
"""The number of cloudlets that a policy can name."""


# --- specs -----------------------------------------------------------------------------------------------------------


class CloudletSpec(Struct, frozen=True):
    """A cloudlet: its policies for missing instances and for orphans, and the back end that its agent must offer."""

    missing: Missing = "recreate"
    orphans: Orphans = "report"
    backend: SiteBackend = SiteBackend.PROCESS


class FlavorSpec(Struct, frozen=True):
    """A node size, by the name that the agents' driver has for it, with the cores and bytes that a node takes.

    They count against the capacity of a cloudlet. If both are 0, a size such as 2c512m counts; a name takes nothing.
    """

    size: Annotated[str, Meta(min_length=1, max_length=MAX_SIZE_CHARS)]
    cores: Annotated[float, Meta(ge=0, le=10_000)] = 0.0
    memory: Annotated[int, Meta(ge=0, le=2**50)] = 0


class AppSpec(Struct, frozen=True):
    """An app: its parts, or the short form of one part (command, number of processes, set-up script); and its policy.

    `auto_delete`: its instances are deleted with their cluster. `autoprov`: the auto-provisioning policy of the app.
    `probe`: how the agent checks the health of its instances.
    """

    command: Text = ""
    organization: Name = "default"
    count: Count = 1
    setup: Text = ""
    flavor: MaybeName = ""
    auto_delete: bool = False
    autoprov: MaybeName = ""
    probe: Probe | None = None
    parts: Parts = ()


class AutoscaleSpec(Struct, frozen=True):
    """Limits on a cluster's nodes, and the target load per node: cores, bytes, connections; 0 is ignored."""

    min: Count = 1
    max: Count = 10
    cpu: Annotated[float, Meta(ge=0)] = 0.0
    mem: Annotated[float, Meta(ge=0)] = 0.0
    connections: Annotated[float, Meta(ge=0)] = 0.0


class AutoprovSpec(Struct, frozen=True):
    """Cloudlets on which an app may be deployed, limits on its instances, and the demand that deploys it.

    The app is deployed after `deploy_after` consecutive intervals with at least `requests` requests each, and removed
    after `undeploy_after` intervals with fewer. `demand` says where the requests come from: they are reported to the
    API, or they are the new connections that the agents measure. Then the app is also deployed on one more cloudlet, in
    the order of the list, when all its instances have had enough of them.
    """

    cloudlets: Annotated[tuple[Name, ...], Meta(max_length=MAX_CLOUDLETS)]
    min: Annotated[int, Meta(ge=0, le=1000)] = 0
    max: Count = 10
    requests: Count = 10
    deploy_after: Count = 1
    undeploy_after: Count = 3
    demand: Demand = "reported"


class ControllerSpec(Struct, frozen=True):
    """A controller: the URL at which other controllers reach it, if it has one, and whether it has a worker."""

    url: str = ""
    works: bool = False


class ClusterInst(Struct, frozen=True):
    """A cluster on a cloudlet: nodes of one flavor. Size, cores and memory are the flavor's at creation, and stay."""

    organization: str = "default"
    flavor: str = ""
    size: str = "tiny"
    nodes: int = 1
    setup: str = ""
    autoscale: str = ""
    reservable: bool = False
    revision: int = 0  # the generation of this spec
    cores: float = 0.0  # of each node
    memory: int = 0


class AppInst(Struct, frozen=True):
    """An app in a cluster: a copy of the app's record from the last create, update or refresh."""

    app: str = ""
    organization: str = "default"
    cluster: str = ""  # the real cluster, also of an app on an autocluster
    command: str = ""
    setup: str = ""
    count: int = 1
    auto_delete: bool = False
    revision: int = 0
    probe: Probe | None = None
    parts: Parts = ()


# --- statuses --------------------------------------------------------------------------------------------------------


class InstanceStatus(Struct, frozen=True, omit_defaults=True):
    """An instance's status: its fencing numbers, its last confirmed spec, its reservation, and its published ports."""

    issued: int = 0
    operation: int = 0
    generation: int = 0
    confirmed: int = 0
    tries: int = 0
    missing: bool = False
    undoing: bool = False
    undo_of: str = ""  # the operation that failed
    spec: str = ""  # the last one that was Ready
    cluster: str = ""  # the cluster of an AppInst
    reserved_by: str = ""
    alerts: tuple[Alert, ...] = ()
    restarts: int = 0  # re-creations in a row
    restarted: float = 0.0  # the last of them
    ports: tuple[PublishedAddress, ...] = ()  # while it is Ready


class HeldAgent(Struct, frozen=True, omit_defaults=True):
    """An agent of another installation; it may not connect until an administrator hands the cloudlet over.

    `things` are the first of those at its site, and `thing_count` counts all of them.
    """

    installation: str
    version: str
    since: float
    dialled: float
    things: tuple[str, ...] = ()
    thing_count: int = 0

    def __post_init__(self) -> None:
        if self.thing_count < len(self.things):  # older records name all things, and have no count
            force_setattr(self, "thing_count", len(self.things))


HELD_UPDATE_INTERVAL_S, HELD_GONE_AFTER_S = 60.0, 120.0
"""Seconds between two updates of a held agent's record, and seconds without one after which the agent is gone.

A held agent dials again at least every ten seconds.
"""

MAX_LISTED_THINGS = 10
"""How many of its things the record of a held agent names."""

MAX_LISTED_ORPHANS = 100
"""How many orphans the record of a cloudlet names: a site may have any number of them."""


class CloudletStatus(Struct, frozen=True, omit_defaults=True):
    """A cloudlet's status: the versions and connections of its agents.

    `controller` is the process that the serving agent is connected to. `heir` is the connection of the successor in an
    upgrade. `installation` is the agent installation that owns the cloudlet (None: none with an identity has served).
    `refused` is the reason why the last agent that dialled cannot serve it. `orphans` are the first ones by name, and
    `orphan_count` counts all of them.
    """

    version: str = ""
    target: str = ""
    within: float = 60.0  # seconds that the successor has to connect
    operation: int = 0
    issued: int = 0
    serving: int = 0
    heir: int = 0
    controller: str = ""
    heir_controller: str = ""
    orphans: tuple[str, ...] = ()
    installation: str | None = None
    held: tuple[HeldAgent, ...] = ()
    alerts: tuple[Alert, ...] = ()
    cores: float = 0.0  # the capacity that its agent has reported; 0: unknown
    memory: int = 0
    refused: str = ""
    maintained: bool = False  # the current or last upgrade began in maintenance
    orphan_count: int = 0

    def __post_init__(self) -> None:
        if self.orphan_count < len(self.orphans):  # records of 0.1.0 name all orphans, and have no count
            force_setattr(self, "orphan_count", len(self.orphans))

    def held_at(self, now: float) -> tuple[HeldAgent, ...]:
        """Return the held agents that still dial; the record also has those that are gone."""
        return tuple(agent for agent in self.held if now - agent.dialled < HELD_GONE_AFTER_S)

    def with_orphans(self, names: Collection[str], count: int) -> "CloudletStatus":
        """Return the status with some orphans of so many."""
        return replace(self, orphans=tuple(sorted(names)[:MAX_LISTED_ORPHANS]), orphan_count=count)


class CountedRequests(Struct, frozen=True):
    """The requests of an app on a cloudlet that are counted already: all that an agent has told over a connection."""

    notify: int
    total: int


class AppStatus(Struct, frozen=True, omit_defaults=True):
    """An app's status: its instances, those being deleted, and the demand so far by cloudlet."""

    members: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    high: dict[str, int] = {}  # intervals in a row with enough requests
    low: dict[str, int] = {}
    avoided: tuple[str, ...] = ()  # a create failed there in this interval
    counted: dict[str, CountedRequests] = {}  # by cloudlet, as of the last measured interval
    interval_end: float = 0.0  # of the last measured interval


class KeptLoad(Struct, frozen=True):
    """The last load that an agent has reported for an instance, when, and over which connection."""

    at: float
    notify: int
    load: Load


class ReportedLoad(Struct, frozen=True):
    """A cluster's load as a program has reported it; it counts instead of the measured one until then."""

    until: float
    cpu: float | None
    mem: float | None
    connections: float | None


class CloudletMeasures(Struct, frozen=True):
    """The loads on a cloudlet, by local name; measured ones are known only while the connection `notify` serves it."""

    notify: int = 0
    loads: dict[str, KeptLoad] = {}
    reported: dict[str, ReportedLoad] = {}


def measures_key(ns: str, cloudlet: str) -> Key:
    """Return the key of a cloudlet's measures, which are no object of its namespace."""
    return Key(CONTROLLER_NS, f"measures of {ns}:{cloudlet}")


def read_spec(record: Object, form: type[T]) -> T:
    """Read an object's spec."""
    return msgspec.json.decode(record.spec, type=form)


def app_program(app: AppSpec | AppInst) -> AppProgram:
    """Return what an app runs."""
    return AppProgram(app.command, app.setup, app.count, app.probe, app.parts)


def instance_status(instance: Object) -> InstanceStatus:
    """Read an instance's status."""
    return msgspec.json.decode(instance.seen, type=InstanceStatus)


def merge_spec(request: Request, record: Object, form: type[T]) -> T:
    """Return the requested spec: the whole one given, or the current one with the changes given."""
    change = msgspec.json.decode(request.args).get("change")
    try:
        if request.spec is not None:
            wanted, given = msgspec.json.decode(request.spec, type=form), msgspec.json.decode(request.spec)
        else:
            before: dict[str, Any] = msgspec.json.decode(record.spec)
            wanted, given = msgspec.convert({**before, **(change or {})}, type=form), change or {}
    except msgspec.ValidationError as error:
        raise bad_input(error, form, "spec") from error
    require_known_fields(given, wanted, request, record.state)
    _check_texts(wanted, given)
    return wanted


def _check_texts(wanted: Struct, given: Collection[str]) -> None:
    """Refuse scripts and sizes that no process can take; only the given fields are checked, not stored ones."""
    for name in SCRIPT_FIELDS:
        if name in given and hasattr(wanted, name):
            check_script(name, getattr(wanted, name))
    if "size" in given and hasattr(wanted, "size"):
        check_text("size", wanted.size, 1, MAX_SIZE_CHARS)


# --- names -----------------------------------------------------------------------------------------------------------


def cluster_id(cloudlet: str, cluster: str) -> str:
    """Return the id of a ClusterInst."""
    return f"{cloudlet}:{cluster}"


def app_id(cloudlet: str, cluster: str, app: str) -> str:
    """Return the id of an AppInst."""
    return f"{cloudlet}:{cluster}:{app}"


def record_id(kind: str, name: str) -> str:
    """Return the id of a flavor, an app or a policy."""
    return f"{kind.partition('.')[2]}.{name}"


def local_name(object_id: str) -> str:
    """Return what an agent calls an instance: its name within the cloudlet."""
    return object_id.partition(":")[2]


def cloudlet_of(object_id: str) -> str:
    """Return the cloudlet that an instance is on."""
    return object_id.partition(":")[0]


def parse_instance_id(kind: str, object_id: str) -> list[str]:
    """Return the parts of an instance's id; raises `BadInput` if it is malformed."""
    parts = object_id.split(":")
    wanted = 2 if kind == CLUSTERINST.kind else 3
    if len(parts) != wanted or not all(re.match(NAME, part) for part in parts):
        form = "CLOUDLET:CLUSTER" if wanted == 2 else "CLOUDLET:CLUSTER:APP"
        raise BadInput("id", object_id, f"of the form {form}, of small letters, digits and dashes")
    return parts


# --- records of the pure functions -----------------------------------------------------------------------------------


def instance_record(instance: Object, operation: Operation | None, notify: int = 0) -> InstanceRecord:
    """Return an instance's record for report fencing and reconciliation."""
    status = instance_status(instance)
    under_way = operation is not None or (instance.state in ERROR_STATES and status.undoing)
    return InstanceRecord(
        state=INSTANCE_LIFECYCLES[instance.kind].state(instance.state),
        operation=status.operation if under_way else 0,
        generation=status.generation,
        confirmed=status.confirmed,
        origin=None if operation is None else INSTANCE_LIFECYCLES[instance.kind].state(operation.origin),
        facts=operation_facts(operation),
        tries=status.tries,
        missing=status.missing,
        issued=status.issued,
        notify=notify,
    )


def updated_status(status: InstanceStatus, record: InstanceRecord) -> InstanceStatus:
    """Return an instance's status after its record has changed."""
    return replace(
        status,
        issued=record.issued,
        operation=record.operation,
        generation=record.generation,
        confirmed=record.confirmed,
        tries=record.tries,
        missing=record.missing,
        undoing=record.state in ERROR_STATES and record.operation != 0,
    )


def operation_facts(operation: Operation | None) -> frozenset[str]:
    """Return the facts of an operation."""
    return frozenset() if operation is None else frozenset(msgspec.json.decode(operation.facts, type=list[str]))


def cloudlet_status(cloudlet: Object) -> CloudletStatus:
    """Read a cloudlet's status."""
    return msgspec.json.decode(cloudlet.seen, type=CloudletStatus)


def agent_slots(cloudlet: Object, operation: Operation | None) -> AgentSlots:
    """Return the connection slots of a cloudlet's agents."""
    status = cloudlet_status(cloudlet)
    init = cloudlet.state == CloudletState.INIT_OK and operation is not None and operation.action == "upgrade"
    upgrading = cloudlet.state in IN_UPGRADE or init
    return AgentSlots(
        cloudlet.state,
        status.version,
        status.target,
        upgrading,
        status.operation,
        status.issued,
        status.serving,
        status.heir,
        status.maintained,
    )


def with_agent_slots(status: CloudletStatus, slots: AgentSlots) -> CloudletStatus:
    """Return a cloudlet's status after its slots have changed."""
    return replace(status, version=slots.version, issued=slots.issued, serving=slots.serving, heir=slots.successor)
