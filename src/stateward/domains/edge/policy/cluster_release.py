"""What follows when an AppInst has come to rest: its app is told, and a cluster that nobody uses any more is freed."""

from collections.abc import Sequence

from msgspec.structs import replace

from stateward.domains.edge.lifecycle import APP, AUTOPROV, AppInstState, ClusterInstState
from stateward.domains.edge.lookups import apps_in, closed, on_cloudlet, opened
from stateward.domains.edge.model import (
    AppSpec,
    AutoprovSpec,
    ClusterInst,
    cloudlet_of,
    marks_of,
    record_id,
    spec_of,
    thing_of,
)
from stateward.domains.edge.policy.app_members import app_marks, put_marks, reviewed
from stateward.domains.edge.policy.cluster_reservation import set_free
from stateward.domains.edge.policy.demand import interval
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.port import Tx
from stateward.store.records import Key


async def release(tx: Tx, ns: str, instance: str, cluster: str) -> None:
    """Take note of the state that an AppInst is in now; `cluster` is the one that it was last known to be in."""
    cloudlet = cloudlet_of(instance)
    record = Key(ns, record_id(APP.kind, instance.rpartition(":")[2]))
    uow = await opened(tx, {record, Key(ns, cloudlet), Key(ns, cluster), Key(ns, instance)})
    found, app = uow.objects.get(Key(ns, instance)), uow.objects.get(record)
    state = None if found is None else found.state
    if app is not None and not app.removed:
        marks = reviewed(app_marks(app), instance, state)
        if state == AppInstState.CREATE_ERROR:
            marks = replace(marks, avoided=tuple(dict.fromkeys((*marks.avoided, cloudlet))))
        put_marks(uow, app, marks)
    if state is None or state == AppInstState.NOT_PRESENT:
        await _free(uow, Key(ns, cluster), cloudlet)
    await closed(uow)


async def _free(uow: UnitOfWork, key: Key, cloudlet: str) -> None:
    cluster = uow.objects.get(key)
    if cluster is None or cluster.removed:
        return
    if not marks_of(cluster).reserved_by or not spec_of(cluster, ClusterInst).reservable:
        return
    if not apps_in(await on_cloudlet(uow, key.ns, cloudlet), cloudlet, thing_of(key.id)):
        set_free(uow, cluster)


async def retire(tx: Tx, keys: Sequence[Key]) -> None:
    """Remove the records of instances that do not exist."""
    uow = await opened(tx, {*keys, *(Key(key.ns, cloudlet_of(key.id)) for key in keys)})
    for key in keys:
        found = uow.objects.get(key)
        if found is not None and found.state == AppInstState.NOT_PRESENT and not found.removed:
            uow.save_object(key, replace(found, removed=True, version=uow.next_version(key)))
    await closed(uow)


async def idle_again(tx: Tx, key: Key) -> None:
    """Let a cluster that nobody uses, and that could not be removed, be idle for another while."""
    uow = await opened(tx, {Key(key.ns, cloudlet_of(key.id)), key})
    found = uow.objects.get(key)
    is_ready = found is not None and found.state == ClusterInstState.READY
    if found is not None and is_ready and spec_of(found, ClusterInst).reservable and not marks_of(found).reserved_by:
        set_free(uow, found)
    await closed(uow)


async def count_interval(tx: Tx, ns: str, app: str, requests: dict[str, int]) -> None:
    """Count an interval of an app's demand."""
    record = Key(ns, record_id(APP.kind, app))
    uow = await opened(tx, [record])
    found = uow.objects.get(record)
    if found is not None and not found.removed and (name := spec_of(found, AppSpec).autoprov):
        policy = Key(ns, record_id(AUTOPROV.kind, name))
        await uow.load([policy])
        wanted = uow.objects.get(policy)
        if wanted is not None and not wanted.removed:
            put_marks(uow, found, interval(spec_of(wanted, AutoprovSpec), app_marks(found), requests))
    await closed(uow)
