"""Reservable clusters: an app on an autocluster gets a free one, or one is made for it."""

from msgspec.structs import replace

from stateward.domains.edge.errors import LimitReached, Reserved
from stateward.domains.edge.lifecycle import APPINST, ClusterInstState
from stateward.domains.edge.lookups import clusters, in_motion, on_cloudlet
from stateward.domains.edge.model import (
    MOST_RESERVABLE,
    RESERVABLE,
    AppSpec,
    ClusterInst,
    InstanceStatus,
    marks_of,
    spec_of,
    text_of,
    thing_of,
)
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.records import Key, Object, Timer

IDLE = 30 * 60.0
"""How many seconds a reservable cluster is kept that nobody uses."""


async def reserve(uow: UnitOfWork, ns: str, cloudlet: str, auto: str, app: AppSpec) -> str:
    """Return the cluster that an app on an autocluster is to be in: reserved from now on, or still to be made."""
    instances = await on_cloudlet(uow, ns, cloudlet)
    shared = _shared(instances, cloudlet, auto, app.organization)
    if shared is not None:
        return shared
    for found in clusters(instances):
        if _is_free(found, app.flavor):
            _mark(uow, found, app.organization)
            uow.changes.timers_gone.append(Key(ns, idle_timer(found.id)))
            return thing_of(found.id)
    taken = {thing_of(one.id) for one in clusters(instances)} | _promised(instances)
    name = next((one for n in range(MOST_RESERVABLE) if (one := f"{RESERVABLE}{n}") not in taken), None)
    if name is None:
        raise LimitReached(f"cloudlet {cloudlet}", "at most so many reservable clusters:", MOST_RESERVABLE)
    return name


def _shared(instances: list[Object], cloudlet: str, auto: str, organization: str) -> str | None:
    """Return the cluster behind an autocluster in which other apps are already."""
    for one in _apps(instances):
        if one.id.startswith(f"{cloudlet}:{auto}:"):
            owner = str(_owner(instances, f"{cloudlet}:{marks_of(one).cluster}") or organization)
            if owner != organization:
                raise Reserved(f"{cloudlet}:{auto}", owner)
            return marks_of(one).cluster
    return None


def _owner(instances: list[Object], cluster: str) -> str:
    return next((marks_of(one).reserved_by for one in instances if one.id == cluster), "")


def _apps(instances: list[Object]) -> list[Object]:
    return [one for one in instances if one.kind == APPINST.kind and one.state != ClusterInstState.NOT_PRESENT]


def _promised(instances: list[Object]) -> set[str]:
    return {marks_of(one).cluster for one in _apps(instances)}


def _is_free(found: Object, flavor: str) -> bool:
    marks, spec = marks_of(found), spec_of(found, ClusterInst)
    ready = found.state == ClusterInstState.READY and not in_motion(found) and not marks.missing
    return ready and spec.reservable and not marks.reserved_by and spec.flavor == flavor


def _mark(uow: UnitOfWork, found: Object, organization: str) -> None:
    put_instance_marks(uow, found, replace(marks_of(found), reserved_by=organization))


def put_instance_marks(uow: UnitOfWork, found: Object, marks: InstanceStatus) -> None:
    """Write what is kept of an instance."""
    seen = text_of(marks)
    if seen != found.seen:
        uow.save_object(found.key, replace(found, seen=seen, version=uow.next_version(found.key)))


def idle_timer(cluster: str) -> str:
    """Return the id of the timer that ends an idle cluster."""
    return f"idle {cluster}"


def set_free(uow: UnitOfWork, found: Object) -> None:
    """Give a reservable cluster back that nobody uses any more; it goes when nobody wants it for long."""
    _mark(uow, found, "")
    timer = Timer(found.ns, idle_timer(found.id), uow.now + IDLE, 0, found.id, "expire", "[]", "{}")
    uow.changes.timers.append(timer)
