"""Routes below `/api/v1/edge`: cloudlets, instances, demand, and the WebSocket of the agents."""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from litestar import Router, WebSocket, delete, get, patch, post, websocket
from litestar.di import Provide
from litestar.exceptions import WebSocketDisconnect
from litestar.params import JSONBody

from stateward.access import Right
from stateward.agents.connection import Disconnected
from stateward.domains.edge.agents.agent_auth import may_connect, open_connection, refusal_reason
from stateward.domains.edge.agents.agent_hub import AgentHub
from stateward.domains.edge.api.context import (
    ACT,
    NS_PATH,
    READ,
    TAGS,
    App,
    Call,
    Cloudlet,
    Cluster,
    HubDependency,
    Ignores,
    OnCloudlet,
    PolicyDependency,
    ServiceDependency,
    caller_of,
)
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
from stateward.domains.edge.model import (
    CloudletSpec,
    ClusterInst,
    app_id,
    cluster_id,
)
from stateward.domains.edge.policy.demand import ClusterLoad
from stateward.domains.edge.policy.policy_controller import PolicyController
from stateward.domains.edge.service import Service
from stateward.domains.plugin import grant_of, needs
from stateward.domains.request_params import IdempotencyKey, Ns
from stateward.store.errors import StoreError

log = logging.getLogger("stateward.edge")

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


@get(CLOUDLETS, opt=READ, tags=TAGS, summary="List cloudlets")
async def list_cloudlets(service: ServiceDependency, ns: Ns) -> list[View]:
    """Return all cloudlets, with the status of their agents."""
    return [view(one) for one in await service.list_all(ns, CLOUDLET.kind)]


@post(CLOUDLETS, opt=ACT, tags=TAGS, summary="Make a cloudlet", status_code=202)
async def create_cloudlet(
    request: Call, service: ServiceDependency, ns: Ns, data: JSONBody[NewCloudlet], key: IdempotencyKey = None
) -> EdgeAcceptedView:
    """Create a cloudlet; it is ready when its agent has connected and sent its inventory."""
    spec = CloudletSpec(data.missing, data.orphans)
    return accepted_view(await service.create_cloudlet(ns, data.name, spec, caller_of(request, key=key)))


@get(ONE_CLOUDLET, opt=READ, tags=TAGS, summary="Get a cloudlet")
async def get_cloudlet(service: ServiceDependency, ns: Ns, cloudlet: Cloudlet) -> View:
    """Return a cloudlet."""
    return view(await service.get(ns, cloudlet, CLOUDLET.kind))


@patch(ONE_CLOUDLET, opt=ACT, tags=TAGS, summary="Change a cloudlet")
async def change_cloudlet(
    request: Call, service: ServiceDependency, ns: Ns, cloudlet: Cloudlet, data: JSONBody[CloudletChange]
) -> EdgeAcceptedView:
    """Change the policies for missing instances and orphans."""
    return accepted_view(await service.change_cloudlet(ns, cloudlet, changes(data), caller_of(request)))


@delete(ONE_CLOUDLET, opt=ACT, tags=TAGS, summary="Delete a cloudlet", status_code=202)
async def delete_cloudlet(
    request: Call,
    service: ServiceDependency,
    ns: Ns,
    cloudlet: Cloudlet,
    ignore: Ignores = None,
    key: IdempotencyKey = None,
) -> EdgeAcceptedView:
    """Delete a cloudlet that has no instances, except auto-deleted ones."""
    return accepted_view(await service.delete_cloudlet(ns, cloudlet, caller_of(request, ignore, key)))


@post(f"{ONE_CLOUDLET}/upgrade", opt=ACT, tags=TAGS, summary="Upgrade a cloudlet's agent", status_code=202)
async def upgrade_cloudlet(
    request: Call,
    service: ServiceDependency,
    ns: Ns,
    cloudlet: Cloudlet,
    data: JSONBody[NewVersion],
    key: IdempotencyKey = None,
) -> EdgeAcceptedView:
    """Upgrade the agent: it starts its successor of another version, which takes over."""
    return accepted_view(await service.upgrade(ns, cloudlet, data.version, data.within, caller_of(request, key=key)))


@post(f"{ONE_CLOUDLET}/fix", opt=ACT, tags=TAGS, summary="Settle a failed upgrade", status_code=202)
async def fix_cloudlet(request: Call, service: ServiceDependency, ns: Ns, cloudlet: Cloudlet) -> EdgeAcceptedView:
    """Clear a failed upgrade, as an administrator."""
    return accepted_view(await service.fix(ns, cloudlet, caller_of(request)))


@post(f"{ONE_CLOUDLET}/handover", opt=ACT, tags=TAGS, summary="Hand a cloudlet over", status_code=202)
async def hand_over_cloudlet(
    request: Call,
    service: ServiceDependency,
    ns: Ns,
    cloudlet: Cloudlet,
    data: JSONBody[NewOwner],
    key: IdempotencyKey = None,
) -> EdgeAcceptedView:
    """Hand a cloudlet over, as an administrator, to a held installation of the agent."""
    return accepted_view(await service.hand_over(ns, cloudlet, data.installation, caller_of(request, key=key)))


# --- clusters --------------------------------------------------------------------------------------------------------


@get(f"{NS_PATH}/clusterinsts", opt=READ, tags=TAGS, summary="List clusters")
async def list_clusters(service: ServiceDependency, ns: Ns, cloudlet: OnCloudlet = None) -> list[View]:
    """Return all clusters, or those on a cloudlet."""
    return [view(one) for one in await service.list_all(ns, CLUSTERINST.kind, cloudlet)]


@post(CLUSTERS, opt=ACT, tags=TAGS, summary="Make a cluster", status_code=202)
async def create_cluster(
    request: Call,
    service: ServiceDependency,
    ns: Ns,
    cloudlet: Cloudlet,
    data: JSONBody[NewCluster],
    ignore: Ignores = None,
    key: IdempotencyKey = None,
) -> EdgeAcceptedView:
    """Create a cluster of nodes."""
    spec = ClusterInst(
        data.organization,
        data.flavor,
        nodes=data.nodes,
        setup=data.setup,
        autoscale=data.autoscale,
        reservable=data.reservable,
    )
    by = caller_of(request, ignore, key)
    return accepted_view(await service.create_cluster(ns, cloudlet, data.name, spec, by))


@get(ONE_CLUSTER, opt=READ, tags=TAGS, summary="Get a cluster")
async def get_cluster(service: ServiceDependency, ns: Ns, cloudlet: Cloudlet, cluster: Cluster) -> View:
    """Return a cluster."""
    return view(await service.get(ns, cluster_id(cloudlet, cluster), CLUSTERINST.kind))


@patch(ONE_CLUSTER, opt=ACT, tags=TAGS, summary="Change a cluster", status_code=202)
async def update_cluster(
    request: Call,
    service: ServiceDependency,
    ns: Ns,
    cloudlet: Cloudlet,
    cluster: Cluster,
    data: JSONBody[ClusterChange],
    ignore: Ignores = None,
    key: IdempotencyKey = None,
) -> EdgeAcceptedView:
    """Change a cluster's number of nodes, or its autoscale policy."""
    by, id_ = caller_of(request, ignore, key), cluster_id(cloudlet, cluster)
    return accepted_view(await service.update(ns, id_, CLUSTERINST.kind, changes(data), by))


@delete(ONE_CLUSTER, opt=ACT, tags=TAGS, summary="Delete a cluster", status_code=202)
async def delete_cluster(
    request: Call,
    service: ServiceDependency,
    ns: Ns,
    cloudlet: Cloudlet,
    cluster: Cluster,
    ignore: Ignores = None,
    key: IdempotencyKey = None,
) -> EdgeAcceptedView:
    """Delete a cluster that has no apps, except auto-deleted ones."""
    by = caller_of(request, ignore, key)
    return accepted_view(await service.delete(ns, cluster_id(cloudlet, cluster), CLUSTERINST.kind, by))


@post(f"{ONE_CLUSTER}/load", opt=ACT, tags=TAGS, summary="Report a cluster's load", status_code=200)
async def report_load(
    service: ServiceDependency, ns: Ns, cloudlet: Cloudlet, cluster: Cluster, data: JSONBody[NewLoad]
) -> View:
    """Report a cluster's load; its autoscale policy may change the number of nodes."""
    id_ = cluster_id(cloudlet, cluster)
    await service.report_load(ns, id_, ClusterLoad(data.cpu, data.mem, data.connections))
    return view(await service.get(ns, id_, CLUSTERINST.kind))


# --- apps in clusters ------------------------------------------------------------------------------------------------


@get(f"{NS_PATH}/appinsts", opt=READ, tags=TAGS, summary="List app instances")
async def list_appinsts(service: ServiceDependency, ns: Ns, cloudlet: OnCloudlet = None) -> list[View]:
    """Return all app instances, or those on a cloudlet."""
    return [view(one) for one in await service.list_all(ns, APPINST.kind, cloudlet)]


@post(APPS, opt=ACT, tags=TAGS, summary="Deploy an app", status_code=202)
async def create_appinst(
    request: Call,
    service: ServiceDependency,
    ns: Ns,
    cloudlet: Cloudlet,
    cluster: Cluster,
    data: JSONBody[NewAppInst],
    ignore: Ignores = None,
    key: IdempotencyKey = None,
) -> EdgeAcceptedView:
    """Deploy an app in a cluster; for an `autocluster...`, a cluster is reserved or created."""
    by = caller_of(request, ignore, key)
    return accepted_view(await service.create_app(ns, cloudlet, cluster, data.app, by))


@get(ONE_APP, opt=READ, tags=TAGS, summary="Get an app instance")
async def get_appinst(service: ServiceDependency, ns: Ns, cloudlet: Cloudlet, cluster: Cluster, app: App) -> View:
    """Return an app instance."""
    return view(await service.get(ns, app_id(cloudlet, cluster, app), APPINST.kind))


@patch(ONE_APP, opt=ACT, tags=TAGS, summary="Change an app instance", status_code=202)
async def update_appinst(
    request: Call,
    service: ServiceDependency,
    ns: Ns,
    cloudlet: Cloudlet,
    cluster: Cluster,
    app: App,
    data: JSONBody[AppInstChange],
    ignore: Ignores = None,
    key: IdempotencyKey = None,
) -> EdgeAcceptedView:
    """Change the command, set-up script or process count of an app instance."""
    by, id_ = caller_of(request, ignore, key), app_id(cloudlet, cluster, app)
    return accepted_view(await service.update(ns, id_, APPINST.kind, changes(data), by))


@post(f"{ONE_APP}/refresh", opt=ACT, tags=TAGS, summary="Refresh an app instance", status_code=202)
async def refresh_appinst(
    request: Call,
    service: ServiceDependency,
    ns: Ns,
    cloudlet: Cloudlet,
    cluster: Cluster,
    app: App,
    key: IdempotencyKey = None,
) -> EdgeAcceptedView:
    """Update an app instance to the current record of its app."""
    return accepted_view(await service.refresh(ns, app_id(cloudlet, cluster, app), caller_of(request, key=key)))


@delete(ONE_APP, opt=ACT, tags=TAGS, summary="Delete an app instance", status_code=202)
async def delete_appinst(
    request: Call,
    service: ServiceDependency,
    ns: Ns,
    cloudlet: Cloudlet,
    cluster: Cluster,
    app: App,
    ignore: Ignores = None,
    key: IdempotencyKey = None,
) -> EdgeAcceptedView:
    """Delete an app instance."""
    by = caller_of(request, ignore, key)
    return accepted_view(await service.delete(ns, app_id(cloudlet, cluster, app), APPINST.kind, by))


# --- demand ----------------------------------------------------------------------------------------------------------


@post(f"{NS_PATH}/apps/{{app:str}}/demand", opt=ACT, tags=TAGS, summary="Report an app's demand", status_code=200)
async def report_demand(
    service: ServiceDependency, policies: PolicyDependency, ns: Ns, app: App, data: JSONBody[NewDemand]
) -> View:
    """Report an interval of an app's requests; its policy deploys or removes instances."""
    await service.report_demand(ns, app, data.requests)
    await policies.reconcile_app(ns, await service.get_record(ns, APP.kind, app))
    return view(await service.get_record(ns, APP.kind, app))


# --- agents ----------------------------------------------------------------------------------------------------------


@get(f"{NS_PATH}/agents", opt=READ, tags=TAGS, summary="List connected agents")
async def list_agents(request: Call, hub: HubDependency, ns: Ns) -> AgentsView:
    """Return the agents that are connected to this process.

    Rejected messages are counted for the whole process; only callers who may read all namespaces see the counts.
    """
    connections = [
        connection for key, connections in sorted(hub.connections.items()) if key.ns == ns for connection in connections
    ]
    agents = [
        AgentView(one.cloudlet, one.version, one.notify, one.is_synced, len(one.sent_orders)) for one in connections
    ]
    rejected = dict(hub.rejected) if grant_of(request).namespace_filter is None else {}
    return AgentsView(hub.controller, agents, rejected)


@websocket(AGENTS + "/{space:str}/{cloudlet:str}", opt=needs(Right.REPORT))
async def connect_agent(socket: WebSocket[Any, Any, Any], hub: HubDependency, space: Ns, cloudlet: Cloudlet) -> None:
    """Serve an agent's connection."""
    grant = grant_of(socket)
    with suppress(WebSocketDisconnect, OSError):  # the agent may disconnect before the accept
        await socket.accept()
    if not may_connect(grant, space, cloudlet):
        hub.refuse_token(grant, space, cloudlet)
        with suppress(
            WebSocketDisconnect, OSError
        ):  # the agent may disconnect before the close; its messages are not read
            await socket.close(4403, refusal_reason(grant, space, cloudlet))
        return
    try:
        await open_connection(socket, space, cloudlet).serve(hub)
    except Disconnected as gone:
        log.info("agent of cloudlet %s/%s is disconnected: %s", space, cloudlet, gone)
    except StoreError as error:
        log.warning(
            "agent of cloudlet %s/%s is disconnected by a store error and will reconnect: %s", space, cloudlet, error
        )


HANDLERS = (
    list_cloudlets, create_cloudlet, get_cloudlet, change_cloudlet, delete_cloudlet, upgrade_cloudlet, fix_cloudlet,
    hand_over_cloudlet,
    list_clusters, create_cluster, get_cluster, update_cluster, delete_cluster, report_load,
    list_appinsts, create_appinst, get_appinst, update_appinst, refresh_appinst, delete_appinst,
    report_demand, list_agents, connect_agent,
    *RECORD_HANDLERS,
)  # fmt: skip


def routes(
    service: Callable[[], Service], hub: Callable[[], AgentHub], policies: Callable[[], PolicyController]
) -> list[Router]:
    """Return the router of the domain."""
    provided = {
        "service": Provide(service, sync_to_thread=False),
        "hub": Provide(hub, sync_to_thread=False),
        "policies": Provide(policies, sync_to_thread=False),
    }
    return [Router(BASE, route_handlers=HANDLERS, dependencies=provided)]
