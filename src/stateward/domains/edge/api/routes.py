"""Routes below `/api/v1/edge`: cloudlets, instances, demand, and the WebSocket of the agents."""

from collections.abc import Callable
from typing import Any

import msgspec
from litestar import WebSocket, delete, get, patch, post, websocket
from litestar.di import Provide
from litestar.params import JSONBody

from stateward.access import Right
from stateward.domains.edge.agents.agent_auth import refusal_reason
from stateward.domains.edge.agents.cloudlet_hub import CloudletHub
from stateward.domains.edge.api.context import (
    ACCEPTED,
    ACT,
    CREATES,
    DONE_AT_ONCE,
    KEYED,
    NS_PATH,
    OVERRIDABLE,
    READ,
    App,
    Call,
    Cloudlet,
    HubDependency,
    OnCloudlet,
    PolicyDependency,
    ServiceDependency,
    TargetDependency,
    caller_of,
    target_dependencies,
    views,
)
from stateward.domains.edge.api.output_routes import OUTPUT_HANDLERS
from stateward.domains.edge.api.record_routes import RECORD_HANDLERS
from stateward.domains.edge.api.schemas import (
    AgentsView,
    AgentView,
    AppInstChange,
    CloudletChange,
    ClusterChange,
    EdgeAcceptedView,
    NewAppInst,
    NewCloudlet,
    NewCluster,
    NewDemand,
    NewLoad,
    NewOwner,
    NewVersion,
    View,
    accepted_view,
    changes,
    view,
)
from stateward.domains.edge.lifecycle import APP, APPINST, CLOUDLET, CLUSTERINST
from stateward.domains.edge.model import CloudletSpec, ClusterInst, parse_instance_id
from stateward.domains.edge.policy.demand import ClusterLoad
from stateward.domains.edge.policy.policy_controller import PolicyController
from stateward.domains.edge.service import Service
from stateward.plugin.agent_socket import serve_agent
from stateward.plugin.owned_router import OwnedRouter
from stateward.plugin.request_params import MAX_PAGE, After, IdempotencyKey, Ns, PageLimit
from stateward.plugin.route_options import can_dry_run, grant_of, needs
from stateward.store.filters import Page
from stateward.store.records import Key

BASE = "/api/v1/edge"
AGENTS = "/agents"
AGENTS_PATH = f"{BASE}{AGENTS}"
"""The route that agents connect to, followed by namespace and cloudlet."""

CLOUDLETS = f"{NS_PATH}/cloudlets"
ONE_CLOUDLET = f"{CLOUDLETS}/{{cloudlet:str}}"
CLUSTERS = f"{ONE_CLOUDLET}/clusterinsts"
ONE_CLUSTER = f"{CLUSTERS}/{{cluster:str}}"
APPS = f"{ONE_CLUSTER}/appinsts"
ONE_APP = f"{APPS}/{{app:str}}"


# --- cloudlets -------------------------------------------------------------------------------------------------------


@get(CLOUDLETS, opt=READ, summary="List cloudlets")
async def list_cloudlets(
    service: ServiceDependency, ns: Ns, after: After = None, limit: PageLimit = MAX_PAGE
) -> list[View]:
    """Return a page of the cloudlets, in the order of their ids, with the status of their agents."""
    return await views(service, ns, await service.list_page(ns, CLOUDLET.kind, Page(after, limit)))


@post(CLOUDLETS, opt=ACT | can_dry_run(), summary="Create a cloudlet", status_code=202)
async def create_cloudlet(
    request: Call, service: ServiceDependency, ns: Ns, data: JSONBody[NewCloudlet], key: IdempotencyKey = None
) -> EdgeAcceptedView:
    """Create a cloudlet; it is ready when its agent has connected and sent its inventory."""
    spec = CloudletSpec(data.missing, data.orphans, data.backend)
    return accepted_view(await service.create_cloudlet(ns, data.name, spec, caller_of(request, key=key)))


@get(ONE_CLOUDLET, opt=READ, summary="Get a cloudlet")
async def get_cloudlet(on_cloudlet: TargetDependency) -> View:
    """Return a cloudlet."""
    return await on_cloudlet.get()


@patch(ONE_CLOUDLET, **DONE_AT_ONCE, summary="Change a cloudlet")
async def change_cloudlet(on_cloudlet: TargetDependency, data: JSONBody[CloudletChange]) -> EdgeAcceptedView:
    """Change the policies for missing instances and orphans, or the back end of a cloudlet without instances."""
    return await on_cloudlet.act("change", {"change": changes(data)})


@delete(ONE_CLOUDLET, **OVERRIDABLE, summary="Delete a cloudlet")
async def delete_cloudlet(on_cloudlet: TargetDependency) -> EdgeAcceptedView:
    """Delete a cloudlet that has no instances, except auto-deleted ones."""
    return await on_cloudlet.act("delete")


@post(f"{ONE_CLOUDLET}/upgrade", **KEYED, summary="Upgrade a cloudlet's agent")
async def upgrade_cloudlet(on_cloudlet: TargetDependency, data: JSONBody[NewVersion]) -> EdgeAcceptedView:
    """Upgrade the agent: it starts its successor of another version, which takes over."""
    return await on_cloudlet.act("upgrade", {"version": data.version, "within": data.within})


@post(f"{ONE_CLOUDLET}/fix", **ACCEPTED, summary="Settle a failed upgrade")
async def fix_cloudlet(on_cloudlet: TargetDependency) -> EdgeAcceptedView:
    """Clear a failed upgrade, as an administrator."""
    return accepted_view(await on_cloudlet.service.fix(on_cloudlet.ns, on_cloudlet.id, on_cloudlet.by))


@post(f"{ONE_CLOUDLET}/maintain", **KEYED, summary="Begin the maintenance of a cloudlet")
async def maintain_cloudlet(on_cloudlet: TargetDependency) -> EdgeAcceptedView:
    """Begin the maintenance of a cloudlet: it gets no new instances, and apps with a policy are moved away first."""
    return await on_cloudlet.act("maintain")


@post(f"{ONE_CLOUDLET}/resume", **ACCEPTED, summary="End the maintenance of a cloudlet")
async def resume_cloudlet(on_cloudlet: TargetDependency) -> EdgeAcceptedView:
    """End the maintenance of a cloudlet; what was moved away stays where it is."""
    return accepted_view(await on_cloudlet.service.resume(on_cloudlet.ns, on_cloudlet.id, on_cloudlet.by))


@post(f"{ONE_CLOUDLET}/handover", **KEYED, summary="Hand a cloudlet over")
async def hand_over_cloudlet(on_cloudlet: TargetDependency, data: JSONBody[NewOwner]) -> EdgeAcceptedView:
    """Hand a cloudlet over, as an administrator, to a held installation of the agent."""
    return await on_cloudlet.act("handover", {"installation": data.installation})


# --- clusters --------------------------------------------------------------------------------------------------------


@get(f"{NS_PATH}/clusterinsts", opt=READ, summary="List clusters")
async def list_clusters(
    service: ServiceDependency, ns: Ns, cloudlet: OnCloudlet = None, after: After = None, limit: PageLimit = MAX_PAGE
) -> list[View]:
    """Return a page of the clusters, or of those on a cloudlet, in the order of their ids."""
    return await views(service, ns, await service.list_page(ns, CLUSTERINST.kind, Page(after, limit), cloudlet))


@post(CLUSTERS, **CREATES, summary="Create a cluster")
async def create_cluster(on_cloudlet: TargetDependency, data: JSONBody[NewCluster]) -> EdgeAcceptedView:
    """Create a cluster of nodes."""
    cloudlet, spec = on_cloudlet.id, msgspec.convert(data, ClusterInst, from_attributes=True)
    create = on_cloudlet.service.create_cluster
    return accepted_view(await create(on_cloudlet.ns, cloudlet, data.name, spec, on_cloudlet.by))


@get(ONE_CLUSTER, opt=READ, summary="Get a cluster")
async def get_cluster(on_cluster: TargetDependency) -> View:
    """Return a cluster."""
    return await on_cluster.get()


@patch(ONE_CLUSTER, **OVERRIDABLE, summary="Change a cluster")
async def update_cluster(on_cluster: TargetDependency, data: JSONBody[ClusterChange]) -> EdgeAcceptedView:
    """Change a cluster's number of nodes, or its autoscale policy."""
    return await on_cluster.act("update", {"change": changes(data)})


@delete(ONE_CLUSTER, **OVERRIDABLE, summary="Delete a cluster")
async def delete_cluster(on_cluster: TargetDependency) -> EdgeAcceptedView:
    """Delete a cluster that has no apps, except auto-deleted ones."""
    return await on_cluster.act("delete")


@post(f"{ONE_CLUSTER}/load", **DONE_AT_ONCE, summary="Report a cluster's load")
async def report_load(on_cluster: TargetDependency, data: JSONBody[NewLoad]) -> View:
    """Report a cluster's load; its autoscale policy may change the number of nodes."""
    load = ClusterLoad(data.cpu, data.mem, data.connections)
    await on_cluster.service.report_load(on_cluster.ns, on_cluster.id, load)
    return await on_cluster.get()


# --- apps in clusters ------------------------------------------------------------------------------------------------


@get(f"{NS_PATH}/appinsts", opt=READ, summary="List app instances")
async def list_appinsts(
    service: ServiceDependency, ns: Ns, cloudlet: OnCloudlet = None, after: After = None, limit: PageLimit = MAX_PAGE
) -> list[View]:
    """Return a page of the app instances, or of those on a cloudlet, in the order of their ids."""
    return await views(service, ns, await service.list_page(ns, APPINST.kind, Page(after, limit), cloudlet))


@post(APPS, **CREATES, summary="Deploy an app")
async def create_appinst(on_cluster: TargetDependency, data: JSONBody[NewAppInst]) -> EdgeAcceptedView:
    """Deploy an app in a cluster; for an `autocluster...`, a cluster is reserved or created."""
    cloudlet, cluster = parse_instance_id(on_cluster.kind, on_cluster.id)
    create = on_cluster.service.create_app
    return accepted_view(await create(on_cluster.ns, cloudlet, cluster, data.app, on_cluster.by))


@get(ONE_APP, opt=READ, summary="Get an app instance")
async def get_appinst(on_app: TargetDependency) -> View:
    """Return an app instance."""
    return await on_app.get()


@patch(ONE_APP, **OVERRIDABLE, summary="Change an app instance")
async def update_appinst(on_app: TargetDependency, data: JSONBody[AppInstChange]) -> EdgeAcceptedView:
    """Change the command, set-up script or process count of an app instance."""
    return await on_app.act("update", {"change": changes(data)})


@post(f"{ONE_APP}/refresh", **KEYED, summary="Refresh an app instance")
async def refresh_appinst(on_app: TargetDependency) -> EdgeAcceptedView:
    """Update an app instance to the current record of its app."""
    return await on_app.act("update", {"refresh": True})


@delete(ONE_APP, **OVERRIDABLE, summary="Delete an app instance")
async def delete_appinst(on_app: TargetDependency) -> EdgeAcceptedView:
    """Delete an app instance."""
    return await on_app.act("delete")


# --- demand ----------------------------------------------------------------------------------------------------------


@post(f"{NS_PATH}/apps/{{app:str}}/demand", opt=ACT, summary="Report an app's demand", status_code=200)
async def report_demand(
    service: ServiceDependency, policies: PolicyDependency, ns: Ns, app: App, data: JSONBody[NewDemand]
) -> View:
    """Report an interval of an app's requests; its policy deploys or removes instances."""
    await service.report_demand(ns, app, data.requests)
    await policies.reconcile_app(ns, await service.get_record(ns, APP.kind, app))
    return view(await service.get_record(ns, APP.kind, app))


# --- agents ----------------------------------------------------------------------------------------------------------


@get(f"{NS_PATH}/agents", opt=READ, summary="List connected agents")
async def list_agents(request: Call, hub: HubDependency, ns: Ns) -> AgentsView:
    """Return the agents that are connected to this process.

    Rejected messages are counted for the whole process; only callers who may read all namespaces see the counts.
    """
    connections = [
        connection for key, connections in sorted(hub.connections.items()) if key.ns == ns for connection in connections
    ]
    agents = [
        AgentView(
            connection.site_name,
            connection.version,
            connection.notify,
            connection.is_synced,
            len(connection.sent_orders),
        )
        for connection in connections
    ]
    rejected = dict(hub.rejected) if grant_of(request).namespace_filter is None else {}
    return AgentsView(hub.controller, agents, rejected)


@websocket(AGENTS + "/{space:str}/{cloudlet:str}", opt=needs(Right.REPORT))
async def connect_agent(socket: WebSocket[Any, Any, Any], hub: HubDependency, space: Ns, cloudlet: Cloudlet) -> None:
    """Serve an agent's connection."""
    grant = grant_of(socket)
    refusal = "" if grant.speaks_for(space, cloudlet) else refusal_reason(grant, space, cloudlet)
    await serve_agent(socket, hub, Key(space, cloudlet), refusal)


HANDLERS = (
    list_cloudlets, create_cloudlet, get_cloudlet, change_cloudlet, delete_cloudlet, upgrade_cloudlet, fix_cloudlet,
    maintain_cloudlet, resume_cloudlet, hand_over_cloudlet,
    list_clusters, create_cluster, get_cluster, update_cluster, delete_cluster, report_load,
    list_appinsts, create_appinst, get_appinst, update_appinst, refresh_appinst, delete_appinst,
    report_demand, list_agents, connect_agent,
    *OUTPUT_HANDLERS, *RECORD_HANDLERS,
)  # fmt: skip


def routes(
    service: Callable[[], Service], hub: Callable[[], CloudletHub], policies: Callable[[], PolicyController]
) -> list[OwnedRouter]:
    """Return the router of the domain."""
    parts = {"service": service, "hub": hub, "policies": policies}
    provided = {name: Provide(part, sync_to_thread=False) for name, part in parts.items()}
    dependencies = {**provided, **target_dependencies(service)}
    return [OwnedRouter(BASE, route_handlers=HANDLERS, dependencies=dependencies, tags=["edge"])]
