"""The views of systems, services, deploys and locks over HTTP."""

from datetime import UTC, datetime

from msgspec import Struct

from stateward.domains.systems.backends.port import ServiceInstance
from stateward.domains.systems.definition import NodePool, Service
from stateward.domains.systems.job_views import JobView
from stateward.domains.systems.model import ChangeSeen, ChangeSpec, DesiredService, seen_of, spec_of, system_spec
from stateward.domains.systems.object_ids import path_of
from stateward.engine import Accepted
from stateward.store.records import Lock, Object, Operation


class InstanceView(Struct, frozen=True):
    """An instance of a service; `unlimited` are the resources whose limits its host cannot enforce."""

    name: str
    revision: str
    phase: str
    ready: bool
    restarts: int
    since: datetime
    pid: int | None
    port: int | None
    node: str | None
    why: str
    unlimited: list[str]


class ServiceView(Struct, frozen=True):
    """A service: what is wanted of it, how it is, and its instances where they were asked for."""

    id: str
    path: str
    state: str
    since: datetime
    error: str | None
    definition: Service | None
    revision: str | None
    address: int | None  # the port of its address, also if the definition has 0
    instances: list[InstanceView] | None
    progress: str | None = None  # the last line of a change that is under way, if instances were asked for


class PoolView(Struct, frozen=True):
    """A node pool."""

    id: str
    name: str
    state: str
    error: str | None
    definition: NodePool | None


class NodeAlertView(Struct, frozen=True):
    """An alert of a node: a condition that somebody should look at."""

    node: str
    name: str
    reason: str
    since: datetime


class SystemView(Struct, frozen=True):
    """A system, and what it is made of where that was asked for; `alerts` are those of the nodes that it may run on."""

    ns: str
    id: str
    state: str
    since: datetime
    error: str | None
    backend: str
    services: list[ServiceView] | None = None
    node_pools: list[PoolView] | None = None
    jobs: list[JobView] | None = None
    deploys: list["ChangeView"] | None = None  # that are under way
    alerts: list[NodeAlertView] | None = None


class NodeView(Struct, frozen=True):
    """A node: its agent, what its host has and how much of it is in use, and the instances that are placed on it."""

    name: str
    state: str
    since: datetime
    operation: str | None
    connected: bool
    renewed: datetime | None
    labels: dict[str, str]
    address: str
    version: str
    containers: bool
    secrets: bool
    slots: int
    used_slots: int
    cpu: float
    used_cpu: float
    memory: int
    used_memory: int
    instances: list[str]
    alerts: list[NodeAlertView] = []


class ChangeView(Struct, frozen=True):
    """A deploy or a teardown. `undoes` is the deploy that it rolls back."""

    id: str
    state: str
    operation: str | None
    path: str
    services: int
    undoes: str | None
    cancelled: str | None
    error: str | None
    created: datetime
    jobs: int = 0
    progress: str | None = None  # the last line of one that is under way


class AskedView(Struct, frozen=True):
    """What was accepted: the object that it is about, and the operation to wait for, unless it was done at once."""

    id: str
    state: str
    operation: str | None
    waiting: bool


class SecretView(Struct, frozen=True):
    """A secret without its value: the number of its value, the id of its key, and the services that use it."""

    id: str
    ns: str
    name: str
    version: int
    key: str
    created: datetime
    changed: datetime
    used_by: list[str]


class SystemLockView(Struct, frozen=True):
    """A lock on a path, held or waited for, and for what."""

    path: str
    mode: str
    waiting: bool
    op: str
    object: str
    action: str
    who: str
    since: datetime


def when(seconds: float) -> datetime:
    """Return a time as a date in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


def system_view(system: Object) -> SystemView:
    """Return the view of a system."""
    backend = system_spec(system).backend
    return SystemView(system.ns, system.id, system.state, when(system.since), system.error, backend)


def service_view(service: Object, instances: list[InstanceView] | None, progress: str | None = None) -> ServiceView:
    """Return the view of a service."""
    wanted = spec_of(service, DesiredService)
    return ServiceView(
        id=service.id,
        path=str(path_of(service.id)),
        state=service.state,
        since=when(service.since),
        error=service.error,
        definition=None if wanted is None else wanted.service,
        revision=None if wanted is None else wanted.revision,
        address=None if wanted is None else wanted.port or None,
        instances=instances,
        progress=progress,
    )


def instance_view(instance: ServiceInstance) -> InstanceView:
    """Return the view of an instance."""
    shown = (
        instance.phase.value,
        instance.ready,
        instance.restarts,
        when(instance.since),
        instance.pid,
        instance.port,
        instance.node,
        instance.why,
        list(instance.unlimited),
    )
    return InstanceView(instance.name, instance.revision, *shown)


def pool_view(pool: Object) -> PoolView:
    """Return the view of a node pool."""
    name = pool.id.partition("~")[2]
    return PoolView(pool.id, name, pool.state, pool.error, spec_of(pool, NodePool))


def change_view(change: Object, progress: str | None = None) -> ChangeView:
    """Return the view of a deploy, with the last line of its progress."""
    spec = spec_of(change, ChangeSpec)
    return ChangeView(
        id=change.id,
        state=change.state,
        operation=change.op,
        path="/" if spec is None else spec.path,
        services=0 if spec is None else len(spec.picture.services),
        undoes=None if spec is None else spec.undoes,
        cancelled=seen_of(change, ChangeSeen).cancelled,
        error=change.error,
        created=when(change.created),
        jobs=0 if spec is None else len(spec.picture.jobs),
        progress=progress,
    )


def asked_view(accepted: Accepted, *, waiting: bool = False) -> AskedView:
    """Return the view of an accepted request."""
    record, operation = accepted.object, accepted.operation
    return AskedView(record.id, record.state, None if operation is None else operation.id, waiting)


def lock_view(lock: Lock, holder: Operation | None) -> SystemLockView:
    """Return the view of a lock."""
    facts = ("", "", "", 0.0) if holder is None else (holder.object, holder.action, holder.who, holder.created)
    object_, action, who, since = facts
    return SystemLockView(lock.path, lock.mode, lock.waiting, lock.op, object_, action, who, when(since))
