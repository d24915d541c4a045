"""What the edge domain keeps: in an object's spec what is wanted, in `seen` the numbers that words are weighed by."""

import re
from collections.abc import Collection
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from stateward.domains.edge.lifecycle import APPINST, CLUSTERINST, CloudletState
from stateward.domains.edge.records.agent_upgrade import IN_UPGRADE, AgentSlots
from stateward.domains.edge.records.instance_record import ERROR_STATES, InstanceRecord
from stateward.engine import Request
from stateward.errors import BadInput
from stateward.lifecycle import Lifecycle
from stateward.naming import check_script, check_text
from stateward.store.records import Key, Object, Operation

T = TypeVar("T", bound=Struct)

CONTROLLER_NS = "(edge)"
"""The namespace of the controllers."""

NAME = r"^[a-z0-9][a-z0-9-]{0,62}$(?!\n)"
Name = Annotated[str, Meta(pattern=NAME, description="small letters, digits and dashes, at most 63 of them")]
MaybeName = Annotated[str, Meta(pattern=rf"{NAME}|^$", description="a name, or nothing")]
Count = Annotated[int, Meta(ge=1, le=1000)]
Text = Annotated[str, Meta(max_length=4000)]

MAX_SIZE_CHARS = 100
SCRIPT_FIELDS = ("command", "setup")

MIN_TARGET, MAX_TARGET = 0.001, 1e9
"""Between which numbers a node's share of a load lies, unless it is 0: that does not matter."""

VERSION = r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}$(?!\n)"
"""A version of an agent. It is the name of a folder at the agent."""

AUTOCLUSTER_PREFIX = "autocluster"
"""An app on a cluster of such a name gets a cluster that is reserved for it, or made for it."""

RESERVABLE_PREFIX = "reservable"
MAX_RESERVABLE_CLUSTERS = 64
INSTANCE_LIFECYCLES: dict[str, Lifecycle] = {one.kind: one for one in (CLUSTERINST, APPINST)}

Missing = Literal["recreate", "leave"]
Orphans = Literal["report", "remove"]


# --- specs -----------------------------------------------------------------------------------------------------------


class CloudletSpec(Struct, frozen=True):
    """A cloudlet: what is done about instances that are missing there, and about things that nobody knows of."""

    missing: Missing = "recreate"
    orphans: Orphans = "report"


class FlavorSpec(Struct, frozen=True):
    """A size of node, in the words of the agents' driver."""

    size: Annotated[str, Meta(min_length=1, max_length=MAX_SIZE_CHARS)] = "tiny"


class AppSpec(Struct, frozen=True):
    """An app: what it runs, how often, what is run before it counts as there, and who deploys it.

    `auto_delete` says that its instances go with their clusters; `autoprov` names the policy that it is deployed by.
    """

    command: Text
    organization: Name = "default"
    count: Count = 1
    setup: Text = ""
    flavor: MaybeName = ""
    auto_delete: bool = False
    autoprov: MaybeName = ""


class AutoscaleSpec(Struct, frozen=True):
    """How many nodes a cluster may have, and how much each of them is to carry; 0: that does not matter."""

    min: Count = 1
    max: Count = 10
    cpu: Annotated[float, Meta(ge=0)] = 0.0
    mem: Annotated[float, Meta(ge=0)] = 0.0
    connections: Annotated[float, Meta(ge=0)] = 0.0


class AutoprovSpec(Struct, frozen=True):
    """On which cloudlets an app is deployed: how many at least and at most, and after how much demand.

    It is deployed where at least `requests` came in each of `deploy_after` intervals in a row, and taken away where
    fewer came in each of `undeploy_after`.
    """

    cloudlets: Annotated[tuple[Name, ...], Meta(max_length=1000)]
    min: Annotated[int, Meta(ge=0, le=1000)] = 0
    max: Count = 10
    requests: Count = 10
    deploy_after: Count = 1
    undeploy_after: Count = 3


class ClusterInst(Struct, frozen=True):
    """A cluster on a cloudlet: nodes of one flavor. What the flavor meant when it was made, it means for good."""

    organization: str = "default"
    flavor: str = ""
    size: str = "tiny"
    nodes: int = 1
    setup: str = ""
    autoscale: str = ""
    reservable: bool = False
    revision: int = 0  # the generation that this is


class AppInst(Struct, frozen=True):
    """An app in a cluster, as the app was when this was made, updated or refreshed."""

    app: str = ""
    organization: str = "default"
    cluster: str = ""  # that it is really in
    command: str = ""
    setup: str = ""
    count: int = 1
    auto_delete: bool = False
    revision: int = 0


# --- what is kept beside ---------------------------------------------------------------------------------------------


class InstanceStatus(Struct, frozen=True, omit_defaults=True):
    """What is kept of an instance beside its spec: the numbers, the last spec that was Ready, who has reserved it."""

    issued: int = 0
    operation: int = 0
    generation: int = 0
    confirmed: int = 0
    tries: int = 0
    missing: bool = False
    undoing: bool = False
    undo_of: str = ""  # the operation that failed
    spec: str = ""  # that was confirmed
    cluster: str = ""  # that an AppInst is in, or is to be
    reserved_by: str = ""


class HeldAgent(Struct, frozen=True, omit_defaults=True):
    """An agent of another installation, which is not let in: since when, when it last dialled, and what it has."""

    installation: str
    version: str
    since: float
    dialled: float
    things: tuple[str, ...] = ()


class CloudletStatus(Struct, frozen=True, omit_defaults=True):
    """What is kept of a cloudlet's agents; `controller` is the process that the serving one is connected to.

    `installation` is the one that the cloudlet belongs to (None: no agent with an identity has served).
    """

    version: str = ""
    target: str = ""
    within: float = 60.0  # how many seconds the successor has to come up
    operation: int = 0
    issued: int = 0
    serving: int = 0
    heir: int = 0
    controller: str = ""
    heir_controller: str = ""
    orphans: tuple[str, ...] = ()
    installation: str | None = None
    held: tuple[HeldAgent, ...] = ()


class AppStatus(Struct, frozen=True, omit_defaults=True):
    """Where an app is: its instances, those that are on their way out, and the demand seen so far by cloudlet."""

    members: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    high: dict[str, int] = {}  # intervals in a row with enough requests
    low: dict[str, int] = {}
    avoided: tuple[str, ...] = ()  # a create failed there in this interval


def read_spec(found: Object, form: type[T]) -> T:
    """Read an object's spec; of one whose create came to nothing, there is none."""
    return msgspec.json.decode(found.spec, type=form)


def instance_status(found: Object) -> InstanceStatus:
    """Read what is kept of an instance."""
    return msgspec.json.decode(found.seen, type=InstanceStatus)


def to_builtins(record: Struct) -> Any:  # noqa: ANN401 - plain JSON
    """Return a record as plain values."""
    return msgspec.to_builtins(record)


def merge_spec(request: Request, found: Object, form: type[T]) -> T:
    """Return what is wanted: a whole spec, or what was before with some of it changed."""
    change = msgspec.json.decode(request.args).get("change")
    try:
        if request.spec is not None:
            wanted, given = msgspec.json.decode(request.spec, type=form), msgspec.json.decode(request.spec)
        else:
            before: dict[str, Any] = msgspec.json.decode(found.spec)
            wanted, given = msgspec.convert({**before, **(change or {})}, type=form), change or {}
    except msgspec.ValidationError as error:
        raise BadInput("spec", str(error), "what this kind has") from error
    _check_texts(wanted, given)
    return wanted


def _check_texts(wanted: Struct, given: Collection[str]) -> None:
    """Refuse texts that no process can be given; what was stored before is not looked at again."""
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
    """Return the parts of an instance's id, or raise if it is none."""
    parts = object_id.split(":")
    wanted = 2 if kind == CLUSTERINST.kind else 3
    if len(parts) != wanted or not all(re.match(NAME, part) for part in parts):
        form = "CLOUDLET:CLUSTER" if wanted == 2 else "CLOUDLET:CLUSTER:APP"
        raise BadInput("id", object_id, f"of the form {form}, of small letters, digits and dashes")
    return parts


# --- records as the pure parts know them -----------------------------------------------------------------------------


def instance_record(found: Object, operation: Operation | None, notify: int = 0) -> InstanceRecord:
    """Return an instance as the guard and the settling know it."""
    status = instance_status(found)
    under_way = operation is not None or (found.state in ERROR_STATES and status.undoing)
    return InstanceRecord(
        state=INSTANCE_LIFECYCLES[found.kind].state(found.state),
        operation=status.operation if under_way else 0,
        generation=status.generation,
        confirmed=status.confirmed,
        origin=None if operation is None else INSTANCE_LIFECYCLES[found.kind].state(operation.origin),
        facts=operation_facts(operation),
        tries=status.tries,
        missing=status.missing,
        issued=status.issued,
        notify=notify,
    )


def updated_status(status: InstanceStatus, record: InstanceRecord) -> InstanceStatus:
    """Return what is kept of an instance after its record has changed."""
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


def cloudlet_status(found: Object) -> CloudletStatus:
    """Read what is kept of a cloudlet's agents."""
    return msgspec.json.decode(found.seen, type=CloudletStatus)


def agent_slots(found: Object, operation: Operation | None) -> AgentSlots:
    """Return a cloudlet as the succession knows it."""
    status = cloudlet_status(found)
    init = found.state == CloudletState.INIT_OK and operation is not None and operation.action == "upgrade"
    upgrading = found.state in IN_UPGRADE or init
    return AgentSlots(
        found.state,
        status.version,
        status.target,
        upgrading,
        status.operation,
        status.issued,
        status.serving,
        status.heir,
    )


def with_agent_slots(status: CloudletStatus, slots: AgentSlots) -> CloudletStatus:
    """Return what is kept of a cloudlet's agents after the seat has changed."""
    return replace(status, version=slots.version, issued=slots.issued, serving=slots.serving, heir=slots.successor)


def key_of(found: Object, name: str) -> Key:
    """Return the key of another object in the same namespace."""
    return Key(found.ns, name)
