"""The API of systems: `/api/v1/systems/NAMESPACE/SYSTEM/...`.

A definition is sent as text with the name of its file, so that an error names the file and the line. A deploy runs
commands on this host as the server's own user, so it needs the right to govern; a rollback is a deploy.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

from litestar import Request, delete, get, post
from litestar.di import NamedDependency, Provide
from litestar.params import JSONBody, PathParameter, QueryParameter
from litestar.types import ControllerRouterHandler
from msgspec import Meta, Struct
from msgspec.structs import replace

from stateward import naming
from stateward.access import Right
from stateward.domains.systems.backends.names import CONTAINER, LOCAL, NODES
from stateward.domains.systems.backends.port import LogExcerpt, ServiceRef, SystemRef
from stateward.domains.systems.context import SystemContext
from stateward.domains.systems.definition import locate_error, read
from stateward.domains.systems.exec_routes import run_in_instance
from stateward.domains.systems.guards import check_logins
from stateward.domains.systems.instance_limits import check_first_instances, check_system_size
from stateward.domains.systems.instance_output import read_instance_logs, require_instance
from stateward.domains.systems.job_views import job_views
from stateward.domains.systems.lifecycle import NODE, SYSTEM, SystemNodeState
from stateward.domains.systems.model import DesiredTree, system_spec
from stateward.domains.systems.nodes.node_hub import NodeHub
from stateward.domains.systems.nodes.node_routes import NODE_ROUTES, alert_views
from stateward.domains.systems.object_ids import NAME, PATH, checked_path, path_of, service_id
from stateward.domains.systems.secrets.secret_routes import SECRET_ROUTES
from stateward.domains.systems.service import SystemActions, require_parts, rooted_tree
from stateward.domains.systems.settings import SystemsSettings
from stateward.domains.systems.views import (
    AskedView,
    ChangeView,
    NodeAlertView,
    ServiceView,
    SystemLockView,
    SystemView,
    asked_view,
    change_view,
    instance_view,
    lock_view,
    pool_view,
    service_view,
    system_view,
)
from stateward.engine import Accepted, NotFound
from stateward.errors import BadInput
from stateward.locks.paths import ROOT
from stateward.plugin.owned_router import OwnedRouter
from stateward.plugin.request_params import MAX_PAGE, After, IdempotencyKey, Ns, PageLimit
from stateward.plugin.route_options import actor_of, can_dry_run, disclosure_of, engine_of, grant_of, needs
from stateward.store.filters import Page, Selector
from stateward.store.records import Key, Object

BASE = "/api/v1/systems"
DEPLOYS = "/{ns:str}/{system:str}/deploys"
MAX_DEFINITION_CHARS = 1_000_000

Name = Annotated[str, PathParameter(pattern=NAME, description="the system")]
ChangeName = Annotated[str, PathParameter(pattern=naming.NAME, description="the deploy")]
Where = Annotated[str, Meta(pattern=PATH, description="a path in the system, such as /store/api")]
LockWaitSeconds = Annotated[
    float, Meta(ge=0, le=86_400, description="seconds to wait for the lock; refused at once if null")
]
ContextDependency = NamedDependency[SystemContext]
Call = Request[Any, Any, Any]


class NewDeploy(Struct, frozen=True, forbid_unknown_fields=True):
    """A definition to deploy: YAML as text, the name of its file, and the folder of the file."""

    definition: Annotated[str, Meta(max_length=MAX_DEFINITION_CHARS)]
    path: Where = "/"
    file: Annotated[str, Meta(max_length=1_000)] = "definition"
    base: Annotated[str, Meta(max_length=4_000)] | None = None
    wait: LockWaitSeconds | None = None
    allow_empty: Annotated[bool, Meta(description="deploy a definition without services and jobs: all are removed")] = (
        False
    )


class NewSystem(Struct, frozen=True, forbid_unknown_fields=True):
    """A system to be created; `first_deploy` is what you are going to deploy to it, and is only checked."""

    name: Annotated[str, Meta(pattern=NAME)]
    backend: Annotated[str, Meta(min_length=1, max_length=100)] = LOCAL
    first_deploy: NewDeploy | None = None


class NewRollback(Struct, frozen=True, forbid_unknown_fields=True):
    """The deploy to roll back: the named one, or the last one of a path, or the last one of all."""

    path: Where | None = None
    deploy: Annotated[str, Meta(pattern=naming.NAME)] | None = None
    wait: LockWaitSeconds | None = None


class NewTeardown(Struct, frozen=True, forbid_unknown_fields=True):
    """How a system is to be torn down."""

    wait: LockWaitSeconds | None = None


# --- actions ---------------------------------------------------------------------------------------------------------


@post("/{ns:str}", opt=needs(Right.ACT) | can_dry_run(), status_code=202, summary="Create a system")
async def create_system(
    request: Call, context: ContextDependency, ns: Ns, data: JSONBody[NewSystem], key: IdempotencyKey = None
) -> AskedView:
    """Create a system; it has no services until something is deployed to it.

    With a `first_deploy` whose definition is not valid or exceeds a limit, no system is created.
    """
    if data.backend not in context.backends:
        off = "; containers need the setting systems_container_engine" if data.backend == CONTAINER else ""
        raise BadInput("backend", data.backend, f"one of {', '.join(context.backends)}{off}")
    actions, first = system_actions(request, ns), data.first_deploy
    if first is not None:
        async with _located_errors(first):
            wanted = await asyncio.to_thread(_read_definition, context.settings, first)
            check_logins(context.settings, ns, wanted)
            context.ports.check(wanted)
            await check_first_instances(context.settings, context.engine.store, Key(ns, data.name), wanted)
            await actions.check_first_deploy(data.name, data.backend, wanted)
            await context.check_folders_here(ns, data.backend, wanted)
    return asked_view(await actions.create(data.name, data.backend, own_key(request, key)))


@post("/{ns:str}/{system:str}/retry", opt=needs(Right.ACT), status_code=202, summary="Try a system again")
async def retry_system(request: Call, ns: Ns, system: Name, key: IdempotencyKey = None) -> AskedView:
    """Try again to make a system ready that has failed; what was deployed to it is not touched."""
    actions = system_actions(request, ns)
    await actions.system(system)
    return asked_view(await actions.retry(system, own_key(request, key)))


@delete("/{ns:str}/{system:str}", opt=needs(Right.ACT) | can_dry_run(), status_code=202, summary="Delete a system")
async def delete_system(
    request: Call,
    ns: Ns,
    system: Name,
    force: Annotated[bool, QueryParameter(description="cancel deploys in the way, and wait for them")] = False,
) -> AskedView:
    """Remove a system with all that it has, whatever state it is in."""
    return asked_view(await system_actions(request, ns).delete(system, force=force))


@post(DEPLOYS, opt=needs(Right.GOVERN) | can_dry_run(), status_code=202, summary="Deploy a definition")
async def deploy(
    request: Call,
    context: ContextDependency,
    ns: Ns,
    system: Name,
    data: JSONBody[NewDeploy],
    key: IdempotencyKey = None,
) -> AskedView:
    """Deploy a definition at a path of the system and below it; nothing else changes."""
    actions = system_actions(request, ns)
    await actions.system(system)
    async with _located_errors(data):
        wanted = await asyncio.to_thread(_read_definition, context.settings, data)  # a large one takes a second
        accepted = await actions.deploy_tree(
            system, data.path, wanted, data.wait, own_key(request, key), context.check_folders
        )
    return await _locked(request, accepted)


@asynccontextmanager
async def _located_errors(data: NewDeploy) -> AsyncIterator[None]:
    """Add the file and the line to an error about a definition."""
    try:
        yield
    except BadInput as error:
        located = await asyncio.to_thread(locate_error, error, data.definition, data.file, checked_path(data.path))
        raise located from (None if located is error else error)


def _read_definition(settings: SystemsSettings, data: NewDeploy) -> DesiredTree:
    """Read a definition and expand its paths; raises unless a system can have it."""
    tree = read(data.definition, data.file, data.base)
    if not data.allow_empty:
        require_parts(tree)
    wanted = rooted_tree(data.path, tree)
    check_system_size(settings, wanted)
    return wanted


@post("/{ns:str}/{system:str}/rollback", opt=needs(Right.GOVERN) | can_dry_run(), status_code=202, summary="Roll back")
async def rollback(
    request: Call, ns: Ns, system: Name, data: JSONBody[NewRollback], key: IdempotencyKey = None
) -> AskedView:
    """Restore the definition before a deploy that succeeded; the rollback is a deploy itself."""
    actions = system_actions(request, ns)
    return await _locked(
        request, await actions.rollback(system, data.path, data.deploy, data.wait, own_key(request, key))
    )


@post(f"{DEPLOYS}/{{change:str}}/cancel", opt=needs(Right.ACT), status_code=202, summary="Cancel a deploy")
async def cancel_deploy(request: Call, ns: Ns, system: Name, change: ChangeName) -> AskedView:
    """Cancel a deploy: a waiting one ends at once; a started one restores the definition before it, and then ends."""
    return asked_view(await system_actions(request, ns).cancel(system, change))


@post("/{ns:str}/{system:str}/teardowns", opt=needs(Right.ACT) | can_dry_run(), status_code=202, summary="Tear down")
async def teardown(
    request: Call, ns: Ns, system: Name, data: JSONBody[NewTeardown], key: IdempotencyKey = None
) -> AskedView:
    """End all services of a system and remove its node pools; the system stays."""
    return await _locked(request, await system_actions(request, ns).teardown(system, data.wait, own_key(request, key)))


# --- reads -----------------------------------------------------------------------------------------------------------


@get("/{ns:str}", opt=needs(Right.READ), summary="List systems")
async def list_systems(request: Call, ns: Ns, after: After = None, limit: PageLimit = MAX_PAGE) -> list[SystemView]:
    """Return a page of the systems of a namespace, in the order of their names."""
    systems = await engine_of(request).store.reader.list_objects(Selector(ns, SYSTEM.kind), Page(after, limit))
    return [system_view(system) for system in systems]


@get("/{ns:str}/{system:str}", opt=needs(Right.READ), summary="Get a system")
async def get_system(
    request: Call,
    context: ContextDependency,
    ns: Ns,
    system: Name,
    path: Annotated[str, QueryParameter(pattern=PATH, description="only what is there and below")] = "/",
    instances: Annotated[bool, QueryParameter(description="with the instances of each service")] = False,
) -> SystemView:
    """Return a system with its services, jobs and node pools."""
    record = await system_actions(request, ns).system(system)
    system_ref, top = SystemRef(ns, system), checked_path(path)
    disclosure = disclosure_of(request)
    stored = [disclosure.object(service) for service in await context.services(system_ref, top)]
    services = [await _service(request, context, record, service, instances) for service in stored]
    pools = [pool_view(pool) for pool in await context.pools(system_ref)] if top == ROOT else []
    jobs = [disclosure.object(job) for job in await context.jobs(system_ref, top)]
    shown_jobs = job_views(jobs, await context.runs_of_system(system_ref) if jobs else ())
    deploys = await _change_views(request, ns, await system_actions(request, ns).open_deploys(system))
    alerts = await _node_alerts(request, ns) if system_spec(record).backend == NODES else []
    parts = {"services": services, "node_pools": pools, "jobs": shown_jobs, "deploys": deploys}
    return replace(system_view(record), **parts, alerts=alerts)


async def _node_alerts(request: Call, ns: str) -> list[NodeAlertView]:
    """Return the alerts of lost nodes: a system on nodes may run on all of its namespace."""
    lost = Selector(ns, NODE.kind, states=(SystemNodeState.LOST.word,))
    nodes = await engine_of(request).store.reader.list_objects(lost, Page(None, 1_000))
    return [alert for node in nodes for alert in alert_views(node)]


async def _change_views(request: Call, ns: str, changes: Sequence[Object]) -> list[ChangeView]:
    """Return the views of deploys; those that are under way have a line of progress."""
    actions = system_actions(request, ns)
    return [
        change_view(change, None if change.op is None else await actions.last_progress(change)) for change in changes
    ]


async def _service(
    request: Call, context: SystemContext, system: Object, service: Object, instances: bool
) -> ServiceView:
    if not instances:
        return service_view(service, None)
    ref = ServiceRef(SystemRef(service.ns, system.id), str(path_of(service.id)))
    seen = [instance_view(instance) for instance in await context.backend_of(system).instances(ref)]
    return service_view(service, seen, await system_actions(request, service.ns).last_progress(service))


@get(DEPLOYS, opt=needs(Right.READ), summary="List deploys")
async def list_deploys(request: Call, ns: Ns, system: Name) -> list[ChangeView]:
    """Return the deploys of a system, newest first."""
    actions = system_actions(request, ns)
    await actions.system(system)
    return await _change_views(request, ns, await actions.deploys(system))


@get("/{ns:str}/{system:str}/locks", opt=needs(Right.READ), summary="List locks")
async def list_locks(request: Call, ns: Ns, system: Name) -> list[SystemLockView]:
    """Return the locks of a system, held and waited for, in the order of asking."""
    await system_actions(request, ns).system(system)
    reader = engine_of(request).store.reader
    locks = await reader.locks_of(Key(ns, system))
    return [lock_view(lock, await reader.operation(Key(ns, lock.op))) for lock in locks]


@get("/{ns:str}/{system:str}/logs", opt=needs(Right.READ), summary="Read logs")
async def read_logs(
    request: Call,
    context: ContextDependency,
    ns: Ns,
    system: Name,
    path: Annotated[str, QueryParameter(pattern=PATH, description="the service")],
    instance: Annotated[str | None, QueryParameter(pattern=naming.NAME, description="only this one")] = None,
    after: Annotated[int | None, QueryParameter(ge=0, le=10**15, description="`next` of the answer before")] = None,
    most: Annotated[
        int, QueryParameter(ge=1, le=MAX_DEFINITION_CHARS, description="most bytes of each instance")
    ] = 10_000,
) -> list[LogExcerpt]:
    """Return the end of the logs of a service's instances, or the part after an offset.

    Of a new service that a failed deploy has removed again, the backends local and container keep the last logs.
    """
    record = await system_actions(request, ns).system(system)
    top = checked_path(path)
    if top == ROOT:
        raise NotFound(ns, service_id(system, top))
    ref = ServiceRef(SystemRef(ns, system), str(top))
    backend = context.backend_of(record)
    excerpts = await read_instance_logs(request, backend, ref, instance, after, most)
    if not excerpts:
        if await context.object(ns, service_id(system, top)) is None:
            raise NotFound(ns, service_id(system, top))
        await require_instance(backend, ref, instance)
    return excerpts


def own_key(request: Call, key: str | None) -> str | None:
    """Return the idempotency key as that of the caller."""
    return grant_of(request).own_key(key)


def system_actions(request: Call, ns: str) -> SystemActions:
    """Return the actions on systems, on behalf of the caller."""
    grant = grant_of(request)
    return SystemActions(engine_of(request), ns, grant.name, actor_of(request), grant.opens)


async def _locked(request: Call, accepted: Accepted) -> AskedView:
    """Return the view of an accepted request, and whether it waits for its locks."""
    operation = accepted.operation
    if operation is None or operation.tree is None:
        return asked_view(accepted)
    locks = await engine_of(request).store.reader.locks_of(Key(operation.ns, operation.tree))
    return asked_view(accepted, waiting=any(lock.waiting and lock.op == operation.id for lock in locks))


ROUTES = (
    create_system,
    retry_system,
    delete_system,
    deploy,
    rollback,
    cancel_deploy,
    teardown,
    list_systems,
    get_system,
    list_deploys,
    list_locks,
    read_logs,
    run_in_instance,
    *SECRET_ROUTES,
    *NODE_ROUTES,
)


def routes(
    context: SystemContext, node_hub: Callable[[], NodeHub], further: Sequence[ControllerRouterHandler] = ()
) -> list[ControllerRouterHandler]:
    """Return the routes of the domain, with further ones below the same path."""
    provided = {
        "context": Provide(lambda: context, sync_to_thread=False),
        "node_hub": Provide(node_hub, sync_to_thread=False),
    }
    return [OwnedRouter(BASE, route_handlers=[*ROUTES, *further], dependencies=provided, tags=["systems"])]
