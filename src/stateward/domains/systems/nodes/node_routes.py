"""The API of nodes: `/api/v1/systems/NAMESPACE/-/nodes`, and the WebSocket of their agents. No system is named `-`.

Whoever may read the namespace sees its nodes. A node is registered, drained and deleted with the right to govern, which
a deploy needs as well. An agent connects with a token that names its node.
"""

from typing import Annotated, Any

from litestar import Request, WebSocket, delete, get, post, websocket
from litestar.di import NamedDependency
from litestar.params import JSONBody, PathParameter
from msgspec import Meta, Struct

from stateward.access import Right
from stateward.domains.systems.definition.model import LabelName, LabelValue
from stateward.domains.systems.nodes.node_actions import NodeActions
from stateward.domains.systems.nodes.node_hub import NodeHub
from stateward.domains.systems.nodes.node_model import node_spec, node_status, placed_instance
from stateward.domains.systems.object_ids import NAME
from stateward.domains.systems.views import AskedView, NodeAlertView, NodeView, asked_view, when
from stateward.plugin.agent_socket import serve_agent
from stateward.plugin.request_params import MAX_PAGE, After, IdempotencyKey, Ns, PageLimit
from stateward.plugin.route_options import (
    actor_of,
    can_dry_run,
    engine_of,
    grant_of,
    needs,
)
from stateward.schemas.caller import Caller
from stateward.store.filters import Page
from stateward.store.records import Key, Object

NODES = "/{ns:str}/-/nodes"
NODE = f"{NODES}/{{node:str}}"
AGENTS = "/-/nodes"
"""The route that agents connect to, followed by namespace and node; no namespace is named `-`."""

NodeName = Annotated[str, PathParameter(pattern=NAME, description="the node")]
NodeHubDependency = NamedDependency[NodeHub]
Call = Request[Any, Any, Any]
GOVERN = needs(Right.GOVERN)


class NewSystemNode(Struct, frozen=True, forbid_unknown_fields=True):
    """A node to register: a host whose agent will connect."""

    name: Annotated[str, Meta(pattern=NAME)]
    labels: dict[LabelName, LabelValue] = {}


@post(NODES, opt=GOVERN | can_dry_run(), status_code=201, summary="Register a node")
async def register_node(request: Call, ns: Ns, data: JSONBody[NewSystemNode], key: IdempotencyKey = None) -> AskedView:
    """Register a node; it takes instances when its agent has connected with a token that names it."""
    return asked_view(await _actions(request, ns, key).register(data.name, data.labels))


@get(NODES, opt=needs(Right.READ), summary="List nodes")
async def list_nodes(request: Call, ns: Ns, after: After = None, limit: PageLimit = MAX_PAGE) -> list[NodeView]:
    """Return a page of the nodes of a namespace, in the order of their names, with what is placed on them."""
    actions = _actions(request, ns)
    placed = await actions.instances()
    return [node_view(node, placed) for node in await actions.nodes(Page(after, limit))]


@get(NODE, opt=needs(Right.READ), summary="Get a node")
async def get_node(request: Call, ns: Ns, node: NodeName) -> NodeView:
    """Return a node, with what is placed on it."""
    actions = _actions(request, ns)
    return node_view(await actions.node(node), await actions.instances(node))


@post(f"{NODE}/drain", opt=GOVERN | can_dry_run(), status_code=202, summary="Drain a node")
async def drain_node(request: Call, ns: Ns, node: NodeName, key: IdempotencyKey = None) -> AskedView:
    """Move all instances of a node to others, within the limits of their rollouts; it takes no new ones."""
    return asked_view(await _actions(request, ns, key).act(node, "drain"))


@post(f"{NODE}/uncordon", opt=GOVERN, status_code=202, summary="Uncordon a node")
async def uncordon_node(request: Call, ns: Ns, node: NodeName, key: IdempotencyKey = None) -> AskedView:
    """Let a node take instances again; a drain that is under way is cancelled."""
    return asked_view(await _actions(request, ns, key).act(node, "uncordon"))


@delete(NODE, opt=GOVERN | can_dry_run(), status_code=202, summary="Delete a node")
async def delete_node(request: Call, ns: Ns, node: NodeName) -> AskedView:
    """Delete a node that is empty, or lost."""
    return asked_view(await _actions(request, ns).act(node, "delete"))


@websocket(AGENTS + "/{space:str}/{node:str}", opt=needs(Right.REPORT))
async def connect_node_agent(
    socket: WebSocket[Any, Any, Any], node_hub: NodeHubDependency, space: Ns, node: NodeName
) -> None:
    """Serve the connection of a node's agent."""
    await serve_agent(socket, node_hub, Key(space, node))


def _actions(request: Call, ns: str, key: str | None = None) -> NodeActions:
    grant = grant_of(request)
    return NodeActions(engine_of(request), ns, Caller(actor_of(request), grant.name, key=grant.own_key(key)))


def node_view(node: Object, placed: list[Object]) -> NodeView:
    """Return the view of a node with the instances that are placed on it."""
    status = node_status(node)
    there = [instance for instance in placed if placed_instance(instance).node == node.id]
    needs_there = [placed_instance(instance).want.service.resources for instance in there]
    return NodeView(
        name=node.id,
        state=node.state,
        since=when(node.since),
        operation=node.op,
        connected=status.connected,
        renewed=when(status.renewed) if status.renewed else None,
        labels=node_spec(node).labels,
        address=status.address,
        version=status.version,
        containers=status.containers,
        secrets=status.secrets,
        slots=status.slots,
        used_slots=len(there),
        cpu=status.cpu,
        used_cpu=sum(resources.cpu or 0.0 for resources in needs_there),
        memory=status.memory,
        used_memory=sum(resources.memory or 0 for resources in needs_there),
        instances=[instance.id for instance in there],
        alerts=alert_views(node),
    )


def alert_views(node: Object) -> list[NodeAlertView]:
    """Return the alerts of a node."""
    return [NodeAlertView(node.id, alert.name, alert.reason, when(alert.since)) for alert in node_status(node).alerts]


NODE_ROUTES = (register_node, list_nodes, get_node, drain_node, uncordon_node, delete_node, connect_node_agent)
