"""The records of nodes and of the instances on them. They are stored as JSON; field names never change."""

import msgspec
from msgspec import Struct

from stateward.agents.node_messages import ImageAnswer, WantedImage
from stateward.domains.systems.backends.port import InstancePhase, InstanceSpec, ServiceInstance, ServiceRef, SystemRef
from stateward.engine.alerts import Alerts
from stateward.store.records import Object


class SystemNodeSpec(Struct, frozen=True, omit_defaults=True):
    """The labels of a node, by which node pools choose it."""

    labels: dict[str, str] = {}


class ImageQuestion(Struct, frozen=True, omit_defaults=True):
    """A question about images to a node, or the answer of its agent."""

    images: tuple[WantedImage, ...] = ()
    answer: ImageAnswer | None = None


class NodeStatus(Struct, frozen=True, omit_defaults=True):
    """The agent of a node, what its host has, and its lease.

    `notify` is the newest connection; messages of others do not count. `renewals` counts the renewals of the lease:
    whoever sees it unchanged for long enough, by any clock, knows that the lease has ended.
    """

    notify: int = 0
    connected: bool = False
    version: str = ""
    installation: str = ""
    cpu: float = 0.0
    memory: int = 0
    slots: int = 0
    address: str = ""
    renewals: int = 0
    renewed: float = 0.0  # when the lease was renewed, for people
    lease: float = 0.0  # the longest lease in seconds that its agent may have, since it began to serve
    containers: bool = False  # it has a container engine
    secrets: bool = False  # its connection may carry values of secrets
    images: dict[str, ImageQuestion] = {}  # questions of processes that it is not connected to
    cordoned: bool = False  # it was lost while it took no new instances
    alerts: Alerts = ()
    deleted_systems: tuple[str, ...] = ()  # systems whose volumes are to be removed there
    systems: tuple[str, ...] | None = None  # those whose containers were placed there; None: unknown, by an old record
    has_had_engine: bool = False  # an agent of it has had a container engine, so there may be volumes
    server: str = ""  # the URL of the server that its agent is connected to; empty: unknown to other servers


class PlacedInstance(Struct, frozen=True, omit_defaults=True):
    """The spec of an instance on a node. `number` grows whenever an instance of the same name is placed again."""

    node: str
    path: str
    number: int
    want: InstanceSpec


class PlacedStatus(Struct, frozen=True, omit_defaults=True):
    """The state of an instance as its agent has reported it; `is_ordered`: an agent may have been told to start it."""

    seen: ServiceInstance | None = None
    is_ordered: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether it was to run once, and has."""
        return self.seen is not None and self.seen.phase is InstancePhase.ENDED


class NodeOrder(Struct, frozen=True):
    """The spec of an order to the agent of a node: an instance to run."""

    ns: str
    system: str
    path: str
    want: InstanceSpec

    @property
    def ref(self) -> ServiceRef:
        """The service of the instance."""
        return ServiceRef(SystemRef(self.ns, self.system), self.path)


NODE_LOST = "node lost"
"""The alert of a node that did not renew its lease; it ends when the node returns or is deleted."""

NODE_LABEL = "node"
"""The label of an instance with the name of its node."""


def node_spec(node: Object) -> SystemNodeSpec:
    """Return the spec of a node."""
    return msgspec.json.decode(node.spec, type=SystemNodeSpec)


def node_status(node: Object) -> NodeStatus:
    """Return the status of a node."""
    return msgspec.json.decode(node.seen, type=NodeStatus)


def placed_instance(instance: Object) -> PlacedInstance:
    """Return the spec of an instance."""
    return msgspec.json.decode(instance.spec, type=PlacedInstance)


def placed_status(instance: Object) -> PlacedStatus:
    """Return the status of an instance."""
    return msgspec.json.decode(instance.seen, type=PlacedStatus)


def service_key(ref: ServiceRef) -> str:
    """Return the id of a service, or of a run of a job: the parent of its instances."""
    return f"{ref.system.system}:{ref.path.removeprefix('/').replace('/', '.')}"


def instance_id(ref: ServiceRef, name: str) -> str:
    """Return the id of an instance on a node."""
    return f"{service_key(ref)}~{name}"


def ref_of_instance(ns: str, object_id: str) -> ServiceRef:
    """Return the service of an instance, by the instance's id."""
    system, _, rest = object_id.partition(":")
    return ServiceRef(SystemRef(ns, system), "/" + rest.rpartition("~")[0].replace(".", "/"))


class NodeRecord(NodeOrder, frozen=True):
    """An order as the agent of a node keeps it, with the end of an instance that was to run once."""

    ended: ServiceInstance | None = None


def create_number(number: int) -> int:
    """Return the operation number of the order to start an instance."""
    return 4 * number


def halt_number(number: int) -> int:
    """Return the operation number of the order to stop an instance, and to keep its log."""
    return 4 * number + 1


def delete_number(number: int) -> int:
    """Return the operation number of the order to remove an instance; one more is left for the removal of an orphan."""
    return 4 * number + 2


def halted_generation(number: int) -> int:
    """Return the generation of an instance that was stopped, and whose log is kept; a placement takes two numbers."""
    return number + 1


def is_generation_of(generation: int, number: int) -> bool:
    """Tell whether a generation at an agent belongs to a placement."""
    return generation in (number, halted_generation(number))


def ended_without_trace(want: InstanceSpec, node: str, why: str) -> ServiceInstance:
    """Return an instance that was to run once and of which nobody knows how it ended."""
    return ServiceInstance(want.name, want.revision, InstancePhase.ENDED, node=node, why=why)
