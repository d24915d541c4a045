"""The transaction that places instances on nodes: which nodes have room is decided where it is taken."""

from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.systems.backends.port import InstanceSpec, ServiceRef
from stateward.domains.systems.definition import NodePool
from stateward.domains.systems.errors import NodesFull
from stateward.domains.systems.lifecycle import INSTANCE, NODE, TAKES_ROOM, SystemNodeState
from stateward.domains.systems.model import spec_of
from stateward.domains.systems.nodes.node_model import (
    NODE_LABEL,
    PlacedInstance,
    instance_id,
    node_spec,
    node_status,
    placed_instance,
    ref_of_instance,
    service_key,
)
from stateward.domains.systems.nodes.node_records import save_seen, step_request, take_steps, unit_of_work
from stateward.domains.systems.nodes.placement import InstanceNeeds, NodeRoom, choose_host
from stateward.domains.systems.object_ids import pool_id
from stateward.engine.kinds import Kinds
from stateward.engine.requests import Creation
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import CONTROLLER
from stateward.store.filters import Page, Selector
from stateward.store.port import Reader, Tx
from stateward.store.records import Key, Object, to_json

ROOM_STATES = tuple(state.word for state in TAKES_ROOM)
MAX_LISTED = 100_000


class PlaceRequest(Struct, frozen=True):
    """An instance to place on a node."""

    ref: ServiceRef
    want: InstanceSpec

    @property
    def key(self) -> Key:
        """The instance."""
        return Key(self.ref.system.ns, instance_id(self.ref, self.want.name))

    @property
    def pool(self) -> Key | None:
        """The node pool of its service, if it has one."""
        pool = self.want.service.node_pool
        return None if pool is None else Key(self.ref.system.ns, pool_id(self.ref.system.system, pool))


async def place_instances(tx: Tx, kinds: Kinds, requests: Sequence[PlaceRequest]) -> list[NodesFull | None]:
    """Choose a node for each instance, unless there is one of its name, and store that."""
    answers: list[NodesFull | None] = []
    async with unit_of_work(tx, ()) as uow:
        namespaces = {request.key.ns for request in requests}
        nodes = {ns: await uow.select(Selector(ns, NODE.kind)) for ns in sorted(namespaces)}
        placed = {ns: await uow.select(Selector(ns, INSTANCE.kind, states=ROOM_STATES)) for ns in sorted(namespaces)}
        await uow.load(
            {request.key for request in requests}, [instance for instances in placed.values() for instance in instances]
        )
        pools = [request.pool for request in requests if request.pool is not None]
        found_pools = dict(zip(pools, await uow.peek(pools), strict=True))
        for request in requests:
            pool = None if request.pool is None else found_pools[request.pool]
            ns = request.key.ns
            answers.append(await _place(uow, kinds, request, nodes[ns], placed[ns], pool))
    return answers


async def _place(
    uow: UnitOfWork,
    kinds: Kinds,
    request: PlaceRequest,
    nodes: Collection[Object],
    placed: list[Object],
    pool: Object | None,
) -> NodesFull | None:
    """Place one instance; `placed` gets it, so that the next one of the batch sees it."""
    former = uow.objects.get(request.key)
    if former is not None and not former.removed:
        return None
    try:
        node = _choose_node(request, nodes, placed, pool)
    except NodesFull as error:
        return error
    before = 0 if former is None else placed_instance(former).number
    number = max(before + 2, int(uow.now * 1000))
    spec = to_json(PlacedInstance(node, request.ref.path, number, request.want))
    creation = Creation(INSTANCE.kind, service_key(request.ref), to_json({NODE_LABEL: node}))
    step = replace(step_request(request.key, "place", CONTROLLER), creates=creation, spec=spec)
    await take_steps(uow, kinds, [replace(step, seen="{}")])
    placed.append(uow.objects[request.key])
    if request.want.service.image is not None:
        await _note_system(
            uow, next(candidate for candidate in nodes if candidate.id == node), request.ref.system.system
        )
    return None


async def _note_system(uow: UnitOfWork, node: Object, system: str) -> None:
    """Note with a node that it may have volumes of a system."""
    current = uow.objects.get(node.key, node)
    status = node_status(current)
    if status.systems is not None and system not in status.systems:
        await uow.load([], [] if node.key in uow.objects else [node])
        save_seen(uow, current, replace(status, systems=(*status.systems, system)))


def _choose_node(
    request: PlaceRequest, nodes: Collection[Object], placed: Iterable[Object], pool: Object | None
) -> str:
    size = None if pool is None or pool.removed else spec_of(pool, NodePool)
    rooms = node_rooms(nodes, placed, request.ref, request.pool)
    lost = [node.id for node in nodes if node.state == SystemNodeState.LOST]
    return choose_host(demand_of(request.want, size), rooms, lost)


async def find_room_problems(reader: Reader, ns: str, moving: Sequence[Object]) -> dict[str, str]:
    """Return why no node has room for another instance of a service, by the service; not those that can be placed.

    `moving` has an instance of each of these services.
    """
    nodes = await reader.list_objects(Selector(ns, NODE.kind), Page(None, MAX_LISTED))
    placed = await reader.list_objects(Selector(ns, INSTANCE.kind, states=ROOM_STATES), Page(None, MAX_LISTED))
    asked = {
        instance.parent or "": PlaceRequest(ref_of_instance(*instance.key), placed_instance(instance).want)
        for instance in moving
    }
    pools = await reader.objects(
        {place_request.pool for place_request in asked.values() if place_request.pool is not None}
    )
    problems: dict[str, str] = {}
    for service, request in asked.items():
        try:
            _choose_node(request, nodes, placed, None if request.pool is None else pools.get(request.pool))
        except NodesFull as error:
            problems[service] = str(error)
    return problems


def demand_of(want: InstanceSpec, pool: NodePool | None) -> InstanceNeeds:
    """Return the needs of an instance of a service in a node pool."""
    needs = want.service.resources
    return InstanceNeeds(
        needs.cpu or 0.0,
        needs.memory or 0,
        labels={} if pool is None else pool.labels,
        pool_slots=None if pool is None else pool.slots,
        container=want.service.image is not None,
        secrets=bool(want.service.secrets),
    )


def node_rooms(
    nodes: Iterable[Object], placed: Iterable[Object], ref: ServiceRef, pool: Key | None
) -> Iterable[NodeRoom]:
    """Return the room of the nodes that take instances, for an instance of a service in a pool."""
    by_node: dict[str, list[Object]] = {}
    for instance in placed:
        by_node.setdefault(placed_instance(instance).node, []).append(instance)
    service = service_key(ref)
    for node in nodes:
        status = node_status(node)
        if node.state != SystemNodeState.READY or not status.connected:
            continue
        there = by_node.get(node.id, [])
        needs = [placed_instance(instance).want.service.resources for instance in there]
        yield NodeRoom(
            node.id,
            node_spec(node).labels,
            status.cpu,
            status.memory,
            status.slots,
            used_cpu=sum(need.cpu or 0.0 for need in needs),
            used_memory=sum(need.memory or 0 for need in needs),
            used_slots=len(there),
            same_service=sum(instance.parent == service for instance in there),
            same_pool=0 if pool is None else sum(_pool_of(instance) == pool.id for instance in there),
            has_engine=status.containers,
            secrets=status.secrets,
        )


def _pool_of(instance: Object) -> str | None:
    pool = placed_instance(instance).want.service.node_pool
    return None if pool is None else pool_id(instance.id.partition(":")[0], pool)
