"""The actions on nodes, and the guard of their kind: a node is deleted only when it is empty or lost."""

from typing import Any

from msgspec.structs import replace

from stateward.domains.systems.errors import NodeNotEmpty
from stateward.domains.systems.lifecycle import INSTANCE, NODE, SystemNodeState
from stateward.domains.systems.model import SECRET_ENV
from stateward.domains.systems.nodes.node_model import NODE_LABEL, NodeStatus, SystemNodeSpec, node_status
from stateward.domains.systems.nodes.placement_records import ROOM_STATES
from stateward.domains.systems.object_ids import checked_name
from stateward.engine import Accepted, Engine, Kind, NotFound, Request, Rules, Why
from stateward.engine.alerts import save_alerts
from stateward.engine.unit_of_work import UnitOfWork
from stateward.schemas.caller import Caller
from stateward.store.filters import Page, Selector
from stateward.store.records import Key, Object, to_json


async def guard_node(uow: UnitOfWork, request: Request, node: Object) -> Request | None:
    """Refuse the deletion of a node that has instances, unless it is lost; its alerts end with it.

    A node that is registered again knows the volumes to be removed there, and its connections have new numbers.
    """
    if request.action == "delete":
        left = await uow.select(Selector(node.ns, INSTANCE.kind, states=ROOM_STATES, labels=((NODE_LABEL, node.id),)))
        if left and node.state != SystemNodeState.LOST:
            raise NodeNotEmpty(node.id, len(left))
        status = node_status(node)
        save_alerts(uow, node, status.alerts, ())
        return replace(request, seen=to_json(replace(status, alerts=())))
    if request.creates is None:
        return None
    former = uow.objects.get(node.key)
    before = NodeStatus(systems=()) if former is None or former.kind != NODE.kind else node_status(former)
    kept = NodeStatus(
        notify=before.notify,
        deleted_systems=before.deleted_systems,
        systems=before.systems,
        has_had_engine=before.has_had_engine or before.containers,
    )
    return replace(request, seen=to_json(kept))


def node_kinds() -> list[Kind]:
    """Return the kinds of nodes and of the instances on them."""
    made_by, why = "stateward system node register", Why(has_alerts=True)
    return [
        Kind(NODE, guard=guard_node, made_by=made_by, rules=Rules(cancels=False), why=why),
        Kind(INSTANCE, privacy=SECRET_ENV, general=False, rules=Rules(reserved_labels=(NODE_LABEL,))),
    ]


class NodeActions:
    """The actions on the nodes of one namespace, on behalf of one caller."""

    def __init__(self, engine: Engine, ns: str, by: Caller) -> None:
        self._engine, self._ns, self._by = engine, ns, by

    async def register(self, name: str, labels: dict[str, str]) -> Accepted:
        """Register a node; its agent connects with a token that names it."""
        spec = SystemNodeSpec(labels)
        how: dict[str, Any] = {"actor": self._by.actor, "who": self._by.who, "key": self._by.key}
        return await self._engine.create(self._ns, checked_name("name", name), NODE.kind, "register", spec=spec, **how)

    async def act(self, name: str, action: str) -> Accepted:
        """Drain, uncordon or delete a node."""
        await self.node(name)
        how: dict[str, Any] = {"actor": self._by.actor, "who": self._by.who, "key": self._by.key}
        return await self._engine.act(self._ns, name, action, **how)

    async def node(self, name: str) -> Object:
        """Return a node, or raise."""
        node = await self._engine.store.reader.object(Key(self._ns, name))
        if node is None or node.removed or node.kind != NODE.kind:
            raise NotFound(self._ns, name)
        return node

    async def nodes(self, page: Page) -> list[Object]:
        """Return a page of the nodes."""
        return await self._engine.store.reader.list_objects(Selector(self._ns, NODE.kind), page)

    async def instances(self, node: str | None = None) -> list[Object]:
        """Return the instances on a node, or on all, without those of which only the log is kept."""
        labels = () if node is None else ((NODE_LABEL, node),)
        chosen = Selector(self._ns, INSTANCE.kind, states=ROOM_STATES, labels=labels)
        return await self._engine.store.reader.list_objects(chosen, Page(None, 100_000))
