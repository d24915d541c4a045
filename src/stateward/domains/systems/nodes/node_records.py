"""The transactions on nodes and their instances.

Desired instances are stored before any order is sent, so any controller can serve any node, and a restart loses
nothing. A transaction that changes a node and its instances locks the node's row first. So a renewal of the lease, the
loss of the node, and a placement on it never overlap. A transaction that changes only instances locks these, and then
reads their nodes: it sees a loss that it had to wait for.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from msgspec import Struct
from msgspec.structs import replace

from stateward.agents.connection import SUPERSEDED, ConnectionId
from stateward.agents.messages import Goodbye, Hello, InventoryItem, SiteBackend, Welcome
from stateward.domains.systems.backends.port import InstancePhase, ServiceInstance
from stateward.domains.systems.lifecycle import (
    INSTANCE,
    NODE,
    SERVING,
    SYSTEM,
    TAKES_ROOM,
    InstanceState,
    SystemNodeState,
)
from stateward.domains.systems.nodes.lease_rules import BEATS_PER_LEASE
from stateward.domains.systems.nodes.node_model import (
    NODE_LABEL,
    NODE_LOST,
    PlacedInstance,
    PlacedStatus,
    ended_without_trace,
    is_generation_of,
    node_status,
    placed_instance,
    placed_status,
)
from stateward.engine import Accepted, Request
from stateward.engine.accept.accept import admit_all
from stateward.engine.alerts import save_alerts, with_alert, without_alerts
from stateward.engine.kinds import Kinds
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork, promote_waiters
from stateward.errors import count_text
from stateward.lifecycle import AGENT, CONTROLLER
from stateward.naming import new_id
from stateward.store.filters import Selector
from stateward.store.port import Tx
from stateward.store.records import Key, Object, to_json

NO_NODE = "no such node is registered"
HELD = "the node belongs to another installation of the agent, until its lease has ended"


@asynccontextmanager
async def unit_of_work(tx: Tx, keys: Iterable[Key]) -> AsyncIterator[UnitOfWork]:
    """Yield a unit of work with these objects locked; its changes are written at the end."""
    uow = UnitOfWork(tx)
    await uow.load(set(keys))
    await uow.load_operations({Key(record.ns, record.op) for record in uow.objects.values() if record.op is not None})
    yield uow
    await promote_waiters(uow)
    await uow.apply()


def loaded_node(uow: UnitOfWork, key: Key) -> Object | None:
    """Return a node that the unit of work has loaded, if there is one."""
    node = uow.objects.get(key)
    return None if node is None or node.removed or node.kind != NODE.kind else node


def save_seen(uow: UnitOfWork, record: Object, status: Struct) -> None:
    """Write the status of a node or an instance, without a transition."""
    seen = to_json(status)
    if seen != record.seen:
        uow.save_object(record.key, replace(record, seen=seen, version=uow.next_version(record.key)))


async def instances_on(uow: UnitOfWork, node: Key) -> list[Object]:
    """Return the instances of a node, locked."""
    instances = await uow.select(Selector(node.ns, INSTANCE.kind, labels=((NODE_LABEL, node.id),)))
    await uow.load([], [instance for instance in instances if instance.key not in uow.objects])
    return instances


def step_request(key: Key, event: str, actor: str, status: Struct | None = None) -> Request:
    """Return the request for a step of a node or an instance."""
    seen = None if status is None else to_json(status)
    return Request(key.ns, key.id, event, new_id(), actor, "nodes", seen=seen)


async def take_steps(uow: UnitOfWork, kinds: Kinds, requests: Sequence[Request]) -> None:
    """Take steps that nothing may refuse, since the unit of work has locked and checked the objects."""
    for verdict in await admit_all(uow, kinds, requests) if requests else ():
        if not isinstance(verdict, Accepted):
            raise verdict


# --- connections -----------------------------------------------------------------------------------------------------


class NodeHello(Struct, frozen=True):
    """An agent that connects for a node; it gets leases of `lease` seconds."""

    node: Key
    hello: Hello
    lease: float
    server: str = ""
    takes_secrets: bool = False


async def connect_nodes(tx: Tx, hellos: Sequence[NodeHello]) -> list[Welcome | Goodbye]:
    """Accept agents: each gets a notify id above all that were issued for its node."""
    async with unit_of_work(tx, {hello.node for hello in hellos}) as uow:
        return [_connect_node(uow, hello) for hello in hellos]


def _connect_node(uow: UnitOfWork, request: NodeHello) -> Welcome | Goodbye:
    node = loaded_node(uow, request.node)
    if node is None:
        return Goodbye(NO_NODE)
    status, hello = node_status(node), request.hello
    if node.state in SERVING and status.installation != hello.installation:
        return Goodbye(HELD, held=True)
    size = {"cpu": hello.cores, "memory": hello.memory // 2**20, "slots": hello.slots, "address": hello.address}
    who = {"version": hello.version, "installation": hello.installation, "server": request.server}
    has_engine = SiteBackend.CONTAINER in hello.backends
    has_had = status.has_had_engine or status.containers or has_engine
    offers = {"containers": has_engine, "has_had_engine": has_had, "secrets": request.takes_secrets, "images": {}}
    # Another server may have given a longer lease, which goes on until its end.
    lease = max(status.lease, request.lease) if node.state in SERVING else request.lease
    seen = replace(status, notify=status.notify + 1, connected=False, lease=lease, **size, **who, **offers)
    save_seen(uow, node, seen)
    return Welcome(status.notify + 1, beat=request.lease / BEATS_PER_LEASE, lease=request.lease)


async def renew_leases(tx: Tx, connections: Sequence[ConnectionId]) -> list[bool]:
    """Renew the leases of nodes, before their heartbeats are answered; returns for each whether it may be."""
    async with unit_of_work(tx, {connection.site for connection in connections}) as uow:
        return [_renew_lease(uow, connection) for connection in connections]


def _renew_lease(uow: UnitOfWork, connection: ConnectionId) -> bool:
    node = loaded_node(uow, connection.site)
    if node is None or node.state not in SERVING or node_status(node).notify != connection.notify:
        return False
    status = node_status(node)
    save_seen(uow, node, replace(status, renewals=status.renewals + 1, renewed=uow.now))
    return True


async def disconnect_nodes(tx: Tx, connections: Sequence[ConnectionId]) -> list[None]:
    """Record lost connections: the instances of such a node do not count as ready; its lease goes on."""
    async with unit_of_work(tx, {connection.site for connection in connections}) as uow:
        for connection in connections:
            node = loaded_node(uow, connection.site)
            if node is not None and node_status(node).notify == connection.notify and node_status(node).connected:
                save_seen(uow, node, replace(node_status(node), connected=False))
                journal(uow, node, node.op, AGENT, "", "disconnected")
        return [None for _ in connections]


# --- inventory -------------------------------------------------------------------------------------------------------


class AgentInventory(Struct, frozen=True):
    """A complete inventory of a node's agent."""

    connection: ConnectionId
    items: Mapping[str, InventoryItem]


async def sync_node(tx: Tx, kinds: Kinds, inventory: AgentInventory) -> str:
    """Reconcile the instances of a node with its inventory; from then on it serves. Returns why it does not count.

    An instance that was to run once, and that the agent does not have any more, has ended in an unknown way.
    """
    key, items = inventory.connection.site, inventory.items
    async with unit_of_work(tx, [key]) as uow:
        node = loaded_node(uow, key)
        if node is None:
            return NO_NODE
        status = node_status(node)
        if status.notify != inventory.connection.notify:
            return SUPERSEDED
        alerts = without_alerts(status.alerts, NODE_LOST)
        save_alerts(uow, node, status.alerts, alerts)
        if status.systems is None:  # each volume there is of a system that exists, or whose deletion is noted
            existing = await uow.peek_selected(Selector(key.ns, SYSTEM.kind))
            status = replace(status, systems=tuple(system.id for system in existing))
        status = replace(
            status, connected=True, cordoned=False, renewals=status.renewals + 1, renewed=uow.now, alerts=alerts
        )
        steps = [_missing_step(instance) for instance in await instances_on(uow, key) if instance.id not in items]
        if node.state in SERVING:
            save_seen(uow, node, status)
            journal(uow, node, node.op, AGENT, status.version, "connected")
        else:
            event = "cordoned" if node_status(node).cordoned else "ready"
            steps.append(step_request(key, event, CONTROLLER, status))
        await take_steps(uow, kinds, [step for step in steps if step is not None])
    return ""


def _missing_step(instance: Object) -> Request | None:
    """Return the step of an instance that the agent of its node does not have.

    An agent has a record of all that it has started, so one that runs once and was never reported is ordered again.
    """
    placed, status = placed_instance(instance), placed_status(instance)
    if instance.state != InstanceState.PLACED:
        return step_request(instance.key, "gone", CONTROLLER)
    if status.seen is None or status.has_ended:
        return None
    if placed.want.run_once:
        return step_request(instance.key, "report", AGENT, _vanished(placed, "its node does not have it any more"))
    return step_request(instance.key, "report", AGENT, PlacedStatus())


def _vanished(placed: PlacedInstance, why: str) -> PlacedStatus:
    return PlacedStatus(ended_without_trace(placed.want, placed.node, why), is_ordered=True)


# --- loss ------------------------------------------------------------------------------------------------------------


async def lose_node(tx: Tx, kinds: Kinds, key: Key, renewals: int) -> bool:
    """Declare a node lost whose lease was renewed so often and not since: its instances run nowhere any more.

    Its connections no longer count. Instances that run once stay, as ended in an unknown way, and so do kept logs.
    """
    async with unit_of_work(tx, [key]) as uow:
        node = loaded_node(uow, key)
        if node is None or node.state not in SERVING or node_status(node).renewals != renewals:
            return False
        status, is_ready = node_status(node), node.state == SystemNodeState.READY
        there = await instances_on(uow, key)
        alerts = with_alert(status.alerts, NODE_LOST, _loss_reason(there), uow.now)
        lost = replace(status, notify=status.notify + 1, connected=False, cordoned=not is_ready, alerts=alerts)
        save_alerts(uow, node, status.alerts, alerts)
        steps = [step for instance in there if (step := _loss_step(instance)) is not None]
        await take_steps(uow, kinds, [step_request(key, "lost", CONTROLLER, lost), *steps])
    return True


def _loss_reason(there: Sequence[Object]) -> str:
    number = sum(instance.state in TAKES_ROOM for instance in there)
    return f"it did not renew its lease; {count_text(number, 'instance')} ran there"


def _loss_step(instance: Object) -> Request | None:
    """Return the step of an instance whose node is lost; an instance that runs once and was not ordered may move."""
    placed, status = placed_instance(instance), placed_status(instance)
    if not placed.want.run_once or instance.state == InstanceState.LEAVING or not status.is_ordered:
        return step_request(instance.key, "gone", CONTROLLER)
    if instance.state == InstanceState.KEPT or status.has_ended:
        return None
    vanished = _vanished(placed, f"its node {placed.node} was lost")
    if instance.state == InstanceState.HALTING:
        return step_request(instance.key, "keep", CONTROLLER, vanished)
    return step_request(instance.key, "report", AGENT, vanished)


# --- stops -----------------------------------------------------------------------------------------------------------

MAX_KEPT_LOGS = 50
"""The number of ended instances of a run whose logs are kept; those of further ones are removed."""


async def stop_instances(tx: Tx, kinds: Kinds, keys: Sequence[Key]) -> list[None]:
    """Store that instances are to be stopped; those of a run are kept with their logs, until they are forgotten."""
    async with unit_of_work(tx, ()) as uow:
        present = await _load_instances(uow, keys, InstanceState.PLACED)
        runs = {
            Key(instance.ns, instance.parent or "")
            for instance, _ in present
            if placed_instance(instance).want.run_once
        }
        await uow.lock(
            runs
        )  # the kept logs are counted: each process that stops instances of a run waits for the others
        kept = {run: len(await uow.select(Selector(run.ns, INSTANCE.kind, run.id, KEPT_STATES))) for run in runs}
        steps = []
        for instance, node in present:
            run = Key(instance.ns, instance.parent or "")
            is_log_kept = run in kept and kept[run] < MAX_KEPT_LOGS
            if is_log_kept:
                kept[run] += 1
            steps.append(step_request(instance.key, _stop_event(instance, node, is_log_kept=is_log_kept), CONTROLLER))
        await take_steps(uow, kinds, steps)
    return [None for _ in keys]


KEPT_STATES = (InstanceState.HALTING.word, InstanceState.KEPT.word)


async def _load_instances(
    uow: UnitOfWork, keys: Sequence[Key], state: InstanceState
) -> list[tuple[Object, Object | None]]:
    """Return instances that are in a state, each with its node."""
    await uow.load(keys)
    instances = [uow.objects[key] for key in dict.fromkeys(keys) if key in uow.objects]
    present = [instance for instance in instances if not instance.removed and instance.state == state]
    return list(
        zip(
            present,
            await uow.peek([Key(instance.ns, placed_instance(instance).node) for instance in present]),
            strict=True,
        )
    )


def _stop_event(instance: Object, node: Object | None, *, is_log_kept: bool) -> str:
    if is_log_kept and placed_status(instance).has_ended:
        return "keep" if node is not None and not node.removed else "gone"
    if not _is_served(node):
        return "gone"
    return "halt" if is_log_kept else "stop"


async def forget_instances(tx: Tx, kinds: Kinds, keys: Sequence[Key]) -> list[None]:
    """Store that the logs of ended instances are to be removed; the agent of a lost node finds out when it returns."""
    async with unit_of_work(tx, ()) as uow:
        present = await _load_instances(uow, keys, InstanceState.KEPT)
        steps = [
            step_request(instance.key, "stop" if _is_served(node) else "gone", CONTROLLER) for instance, node in present
        ]
        await take_steps(uow, kinds, steps)
    return [None for _ in keys]


def _is_served(node: Object | None) -> bool:
    return node is not None and not node.removed and node.kind == NODE.kind and node.state in SERVING


# --- reports ---------------------------------------------------------------------------------------------------------


class InstanceReport(Struct, frozen=True):
    """A report of an agent about an instance: its state, or None if it is gone; `has_failed`: it was not started."""

    connection: ConnectionId
    name: str
    number: int
    seen: ServiceInstance | None
    has_failed: bool = False


async def record_reports(tx: Tx, kinds: Kinds, reports: Sequence[InstanceReport]) -> list[bool]:
    """Record reports; returns for each whether it counted: of the newest connection, about what is placed there."""
    async with unit_of_work(tx, ()) as uow:
        await uow.load({Key(report.connection.site.ns, report.name) for report in reports})
        # Read after the instances are locked: while this transaction waited for them, their node may have been lost.
        nodes = {report.connection.site for report in reports}
        known = dict(zip(nodes, await uow.peek(list(nodes)), strict=True))
        counted = []
        for report in reports:
            step = _report_step(uow, known[report.connection.site], report)
            counted.append(step is not None)
            await take_steps(uow, kinds, [step] if step is not None else [])
        return counted


def _report_step(uow: UnitOfWork, node: Object | None, report: InstanceReport) -> Request | None:
    instance = uow.objects.get(Key(report.connection.site.ns, report.name))
    if node is None or node.kind != NODE.kind or node_status(node).notify != report.connection.notify:
        return None
    if instance is None or instance.removed or instance.kind != INSTANCE.kind:
        return None
    placed = placed_instance(instance)
    if placed.node != report.connection.site.id or not is_generation_of(report.number, placed.number):
        return None
    if report.seen is None:
        return step_request(instance.key, "gone", CONTROLLER) if instance.state == InstanceState.LEAVING else None
    seen = replace(report.seen, node=placed.node)
    if report.has_failed and placed.want.run_once:
        seen = replace(seen, phase=InstancePhase.ENDED)
    status = PlacedStatus(seen, is_ordered=True)
    if instance.state == InstanceState.HALTING:
        return step_request(instance.key, "keep", CONTROLLER, status) if status.has_ended else None
    if instance.state != InstanceState.PLACED or to_json(status) == instance.seen:
        return None
    return step_request(instance.key, "report", AGENT, status)


async def mark_ordered(tx: Tx, keys: Collection[Key]) -> set[Key]:
    """Store that an agent is about to be told to start these instances; returns those that are still to be started."""
    placed = set()
    async with unit_of_work(tx, keys) as uow:
        for key in keys:
            instance = uow.objects.get(key)
            if instance is not None and not instance.removed and instance.state == InstanceState.PLACED:
                placed.add(key)
                save_seen(uow, instance, replace(placed_status(instance), is_ordered=True))
    return placed
