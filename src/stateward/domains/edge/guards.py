"""Guards: the dependency checks of a request, made in the transaction that accepts it.

No action starts on an AppInst while one runs on its ClusterInst, nor the reverse, nor on either while their cloudlet is
being upgraded. Check and write are one transaction, so an AppInst never exists without its ClusterInst. The guard of
cloudlets is in `cloudlet_guards`.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from stateward.agents.messages import SiteBackend
from stateward.domains.edge.errors import (
    ActionInProgress,
    AdminOnly,
    DependencyNotReady,
    ReferenceBeingDeleted,
    Reserved,
    RestartDelayed,
    StillReferenced,
)
from stateward.domains.edge.flavor_sizes import amounts_per_node
from stateward.domains.edge.lifecycle import (
    APP,
    CLUSTERINST,
    DEPENDENCIES,
    FLAVOR,
    IGNORE_TRANSIENT,
    OVERRIDES,
    CloudletState,
)
from stateward.domains.edge.lookups import (
    DELETING_STATES,
    NOT_PRESENT,
    apps_in_cluster,
    current_operation,
    find_object,
    get_object,
    get_open_cloudlet,
    is_in_transition,
    list_instances,
)
from stateward.domains.edge.model import (
    AUTOCLUSTER_PREFIX,
    INSTANCE_LIFECYCLES,
    AppInst,
    AppSpec,
    CloudletSpec,
    ClusterInst,
    FlavorSpec,
    InstanceStatus,
    app_program,
    cloudlet_of,
    cloudlet_status,
    cluster_id,
    instance_record,
    instance_status,
    merge_spec,
    parse_instance_id,
    read_spec,
    record_id,
    updated_status,
)
from stateward.domains.edge.policy.app_members import add_member, find_policy, mark_leaving
from stateward.domains.edge.policy.capacity import ResourceAmounts, amounts_of, check_capacity, used_amounts
from stateward.domains.edge.policy.cluster_reservation import reserve_cluster
from stateward.domains.edge.records.alert_names import AlertName
from stateward.domains.edge.records.instance_record import begin_operation
from stateward.domains.edge.records.restarts import CRASH_LOOP_RESTARTS, count_restart, restart_delay_s
from stateward.domains.edge.references import check_references
from stateward.domains.edge.sites.app_manifest import check_backend, check_manifest
from stateward.engine import NotFound, Request
from stateward.engine.alerts import save_alerts, with_alert, without_alerts
from stateward.engine.errors import NothingToDo
from stateward.engine.protection import require_parts_unprotected
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput, UnknownField
from stateward.lifecycle import ADMIN, Move, decide
from stateward.store.records import Object, to_json

GUARDED_ACTIONS = ("create", "update", "re-create", "delete", "expire")
DELETE_ACTIONS = ("delete", "expire")
CHANGEABLE_FIELDS = {ClusterInst: ("nodes", "autoscale", "setup"), AppInst: ("command", "setup", "count", "parts")}
"""The fields of an instance that an update can change, whichever API it comes through."""

KNOWN_ARGUMENTS = {"create": ("reserved_by",), "update": ("change", "refresh")}
"""The arguments of actions on instances; others would be ignored."""

READY = "Ready"


# --- clusters --------------------------------------------------------------------------------------------------------


async def guard_cluster(uow: UnitOfWork, request: Request, instance: Object) -> Request | None:
    """Check an action on a ClusterInst, and fill in its spec and numbers."""
    if request.action not in GUARDED_ACTIONS:
        return None
    _refuse_unknown_arguments(request)
    cloudlet, cluster = parse_instance_id(instance.kind, instance.id)
    check_caller(request, cloudlet)
    site = await get_open_cloudlet(uow, request, cloudlet)
    instances = await list_instances(uow, instance.ns, cloudlet)
    apps = apps_in_cluster(instances, cloudlet, cluster)
    refuse_transitions(apps, request)
    status = instance_status(instance)
    if request.action in DELETE_ACTIONS:
        _refuse_use(f"ClusterInst {instance.id}", apps, request, status)
        await require_parts_unprotected(uow, request, instance, apps)
        return await _with_numbers(uow, request, instance, None, status)
    spec = await _cluster_spec(uow, request, instance, status)
    _accept_unchanged(request, instance, spec, status)
    status = _count_restart(uow, request, instance, status)
    before = read_spec(instance, ClusterInst) if request.action != "create" else None
    taken = ResourceAmounts() if before is None else amounts_of(before)
    check_capacity(cloudlet, cloudlet_status(site), used_amounts(instances, instance.id), amounts_of(spec), taken)
    if spec.setup and read_spec(site, CloudletSpec).backend == SiteBackend.CONTAINER:
        raise BadInput("setup", spec.setup, f"empty on a cloudlet with the back end {SiteBackend.CONTAINER}")
    if request.action == "create":
        args = msgspec.json.decode(request.args)
        status = replace(status, reserved_by=str(args.get("reserved_by", "")) if spec.reservable else "")
    return await _with_numbers(uow, request, instance, spec, status)


def _refuse_unknown_arguments(request: Request) -> None:
    known = KNOWN_ARGUMENTS.get(request.action, ())
    for name in msgspec.json.decode(request.args):
        if name not in known:
            raise UnknownField(f"args.{name}", known)


async def _cluster_spec(uow: UnitOfWork, request: Request, instance: Object, status: InstanceStatus) -> ClusterInst:
    if request.action == "re-create":
        return msgspec.json.decode(status.spec or instance.spec, type=ClusterInst)
    wanted = merge_spec(request, instance, ClusterInst)
    if not 1 <= wanted.nodes <= 1000:
        raise BadInput("nodes", wanted.nodes, "a number from 1 to 1000")
    if request.action == "update":
        before = read_spec(instance, ClusterInst)
        _refuse_other_changes(before, wanted)
        await check_references(uow, instance, wanted, msgspec.to_builtins(before))
        return wanted
    await check_references(uow, instance, wanted, {})
    if not wanted.flavor:
        return wanted
    flavor = await get_object(uow, instance.ns, record_id(FLAVOR.kind, wanted.flavor), FLAVOR.kind)
    of_flavor = read_spec(flavor, FlavorSpec)
    cores, memory = amounts_per_node(of_flavor)
    return replace(wanted, size=of_flavor.size, cores=cores, memory=memory)


def _refuse_other_changes(before: ClusterInst | AppInst, wanted: ClusterInst | AppInst) -> None:
    """Refuse an update of fields that stay as they were at creation; the domain itself counts the revision."""
    changeable = CHANGEABLE_FIELDS[type(before)]
    for name in before.__struct_fields__:
        if name not in (*changeable, "revision") and getattr(wanted, name) != getattr(before, name):
            allowed = f"left as it is: only {', '.join(changeable)} can be changed"
            raise BadInput(name, getattr(wanted, name), allowed)


def _accept_unchanged(
    request: Request, instance: Object, wanted: ClusterInst | AppInst, status: InstanceStatus
) -> None:
    """Accept an update that changes nothing of a Ready instance as it is: its agent would replace what runs."""
    if request.action == "update" and instance.state == READY and not status.missing:
        before = read_spec(instance, type(wanted))
        if replace(wanted, revision=before.revision) == before:
            raise NothingToDo


def _refuse_use(what: str, apps: list[Object], request: Request, status: InstanceStatus) -> None:
    """Refuse to delete a cluster in use; one that expires must have no app and no reservation at all."""
    keep = [app.id for app in apps if not read_spec(app, AppInst).auto_delete or request.action == "expire"]
    if keep:
        raise StillReferenced(what, [f"AppInst {id_}" for id_ in keep])
    if request.action == "expire" and status.reserved_by:
        raise StillReferenced(what, [f"organisation {status.reserved_by}"])


# --- apps ------------------------------------------------------------------------------------------------------------


async def guard_app(uow: UnitOfWork, request: Request, instance: Object) -> Request | None:
    """Check an action on an AppInst, and fill in its spec and numbers."""
    if request.action not in GUARDED_ACTIONS:
        return None
    _refuse_unknown_arguments(request)
    cloudlet, cluster, app = parse_instance_id(instance.kind, instance.id)
    check_caller(request, cloudlet)
    site = await get_open_cloudlet(uow, request, cloudlet)
    backend = read_spec(site, CloudletSpec).backend
    if request.action == "create":
        return await _create_app(uow, request, instance, (cloudlet, cluster, app), backend)
    status = instance_status(instance)
    await _check_cluster(uow, request, instance, cluster_id(cloudlet, status.cluster))
    if request.action in DELETE_ACTIONS:
        await _leave_app(uow, request, instance, app, site)
        return await _with_numbers(uow, request, instance, None, status)
    if request.action == "re-create":
        spec = msgspec.json.decode(status.spec or instance.spec, type=AppInst)
    elif msgspec.json.decode(request.args).get("refresh"):
        record = read_spec(await get_object(uow, instance.ns, record_id(APP.kind, app), APP.kind), AppSpec)
        spec = _app_spec(record, app, status.cluster)
    else:
        spec = merge_spec(request, instance, AppInst)
        _refuse_other_changes(read_spec(instance, AppInst), spec)
        check_manifest(app_program(spec))
    _accept_unchanged(request, instance, spec, status)
    if request.action == "update":
        check_backend(app_program(spec), backend)
    status = _count_restart(uow, request, instance, status)
    return await _with_numbers(uow, request, instance, spec, status)


async def _create_app(
    uow: UnitOfWork, request: Request, instance: Object, parts: tuple[str, str, str], backend: str
) -> Request:
    cloudlet, cluster, app = parts
    merge_spec(request, instance, AppInst)  # the record of the app is copied, but a wrong spec is refused
    record = await get_object(uow, instance.ns, record_id(APP.kind, app), APP.kind)
    wanted = read_spec(record, AppSpec)
    check_backend(app_program(wanted), backend)
    automatic = cluster.startswith(AUTOCLUSTER_PREFIX)
    if automatic != (DEPENDENCIES in request.facts):
        raise BadInput(
            "facts",
            sorted(request.facts),
            f"given with {DEPENDENCIES!r} exactly where the cluster is an {AUTOCLUSTER_PREFIX}",
        )
    if automatic:
        cluster = await reserve_cluster(uow, instance.ns, cloudlet, cluster, wanted)
    else:
        await _check_new_app_cluster(uow, request, instance, cluster_id(cloudlet, cluster), wanted.organization)
    # A fail-over creates the new instance before it removes the old one, so for a while there is one more than `max`.
    policy = await find_policy(uow, instance.ns, wanted) if request.parent is None else None
    add_member(uow, record, instance.id, policy)
    status = replace(instance_status(instance), cluster=cluster)
    return await _with_numbers(uow, request, instance, _app_spec(wanted, app, cluster), status)


def _app_spec(app: AppSpec, name: str, cluster: str) -> AppInst:
    program = app.command, app.setup, app.count
    return AppInst(name, app.organization, cluster, *program, app.auto_delete, probe=app.probe, parts=app.parts)


async def _check_new_app_cluster(
    uow: UnitOfWork, request: Request, instance: Object, cluster: str, organization: str
) -> None:
    """Refuse a new app whose cluster does not exist, is not ready, or is reserved by another organisation."""
    await _check_cluster(uow, request, instance, cluster)
    host = await get_object(uow, instance.ns, cluster, CLUSTERINST.kind)
    reserved_by = instance_status(host).reserved_by
    if read_spec(host, ClusterInst).reservable and reserved_by != organization:
        raise Reserved(cluster, reserved_by)


async def _check_cluster(uow: UnitOfWork, request: Request, instance: Object, cluster: str) -> None:
    """Refuse an action while one runs on the cluster, unless it is part of the cluster's own delete."""
    host = await find_object(uow, instance.ns, cluster, CLUSTERINST.kind)
    if host is None:
        if request.action in DELETE_ACTIONS:
            return
        raise NotFound(instance.ns, cluster) if request.action == "create" else DependencyNotReady(cluster, NOT_PRESENT)
    if request.parent is not None and request.parent == host.op:
        return
    if request.action in DELETE_ACTIONS:
        if is_in_transition(host) and IGNORE_TRANSIENT not in request.facts:
            raise ActionInProgress(f"ClusterInst {cluster}", host.state, host.op)
        return
    if host.state in DELETING_STATES:
        raise ReferenceBeingDeleted(f"ClusterInst {cluster}")
    if is_in_transition(host):
        raise ActionInProgress(f"ClusterInst {cluster}", host.state, host.op)
    if host.state != READY:
        raise DependencyNotReady(f"ClusterInst {cluster}", host.state)
    if instance_status(host).missing:
        raise DependencyNotReady(f"ClusterInst {cluster}", "missing on its cloudlet")


async def _leave_app(uow: UnitOfWork, request: Request, instance: Object, app: str, site: Object) -> None:
    """Mark an instance as leaving its app; what goes with its cluster or cloudlet, goes whatever the minimum is."""
    record = await find_object(uow, instance.ns, record_id(APP.kind, app), APP.kind)
    if record is None:
        return
    wanted = read_spec(record, AppSpec)
    policy = await find_policy(uow, instance.ns, wanted)
    is_outside = policy is not None and cloudlet_of(instance.id) not in policy.cloudlets
    is_moved = site.state == CloudletState.PREPARE_MAINTENANCE and site.op == request.parent
    is_limited = (request.parent is None or is_moved) and request.actor != ADMIN and not is_outside
    mark_leaving(uow, record, instance.id, policy if is_limited else None)


# --- shared checks ---------------------------------------------------------------------------------------------------


def check_caller(request: Request, cloudlet: str) -> None:
    """Refuse overrides of a caller who is no administrator, and instances outside their cloudlet."""
    if request.creates is not None and request.creates.parent != cloudlet:
        raise BadInput("parent", request.creates.parent, f"the cloudlet, {cloudlet}")
    asked = request.facts & OVERRIDES
    if asked and request.actor != ADMIN:
        raise AdminOnly(sorted(asked))


def _count_restart(uow: UnitOfWork, request: Request, instance: Object, status: InstanceStatus) -> InstanceStatus:
    """Return the status of an instance that is re-created, or refuse to do it so soon; an update ends a crash loop."""
    alerts = without_alerts(status.alerts, AlertName.CRASH_LOOP)
    if request.action != "re-create":
        save_alerts(uow, instance, status.alerts, alerts)
        return replace(status, restarts=0, alerts=alerts)
    restarts = count_restart(status.restarts, status.restarted, uow.now)
    delay_s = status.restarted + restart_delay_s(restarts - 1) - uow.now
    if delay_s > 0:
        raise RestartDelayed(instance.id, status.restarts, delay_s)
    if restarts >= CRASH_LOOP_RESTARTS:
        why = f"re-created {restarts} times in a row"
        alerts = with_alert(status.alerts, AlertName.CRASH_LOOP, why, uow.now)
        save_alerts(uow, instance, status.alerts, alerts)
    return replace(status, restarts=restarts, restarted=uow.now, alerts=alerts)


def refuse_transitions(others: list[Object], request: Request) -> None:
    """Refuse while an operation runs on one of the instances, unless the request is part of it."""
    for other in others:
        is_own = request.parent is not None and request.parent == other.op
        if is_in_transition(other) and not is_own and IGNORE_TRANSIENT not in request.facts:
            raise ActionInProgress(other.id, other.state, other.op)


async def _with_numbers(
    uow: UnitOfWork,
    request: Request,
    instance: Object,
    spec: Any,  # noqa: ANN401
    status: InstanceStatus,
) -> Request:
    """Return the request with the number of its operation, and the generation of its new spec, if any."""
    record = instance_record(instance, await current_operation(uow, instance))
    former = uow.objects.get(instance.key)
    if former is not None and former.removed and former.kind == instance.kind:  # its numbers are never used again
        record = replace(record, issued=instance_status(former).issued)
    move = decide(INSTANCE_LIFECYCLES[instance.kind], instance.state, request.action, request.actor, request.facts)
    assert isinstance(move, Move)  # the engine has already decided this
    after = begin_operation(record, move, request.facts, int(uow.now * 1000))
    seen = replace(updated_status(status, after), undo_of="")
    text = None if spec is None else to_json(replace(spec, revision=after.generation))
    return replace(request, spec=text, seen=to_json(seen))
