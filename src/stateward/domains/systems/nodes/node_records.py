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
    await uow.load_operations({Key(one.ns, one.op) for one in uow.objects.values() if one.op is not None})
    yield uow
    await promote_waiters(uow)
    await uow.apply()


def loaded_node(uow: UnitOfWork, key: Key) -> Object | None:
    """Return a node that the unit of work has loaded, if there is one."""
    found = uow.objects.get(key)
    return None if found is None or found.removed or found.kind != NODE.kind else found


def save_seen(uow: UnitOfWork, found: Object, status: Struct) -> None:
    """Write the status of a node or an instance, without a transition."""
    seen = to_json(status)
    if seen != found.seen:
        uow.save_object(found.key, replace(found, seen=seen, version=uow.next_version(found.key)))


async def instances_on(uow: UnitOfWork, node: Key) -> list[Object]:
    """Return the instances of a node, locked."""
    found = await uow.select(Selector(node.ns, INSTANCE.kind, labels=((NODE_LABEL, node.id),)))
    await uow.load([], [one for one in found if one.key not in uow.objects])
    return found


def step_request(found: Key, event: str, actor: str, status: Struct | None = None) -> Request:
    """Return the request for a step of a node or an instance."""
    seen = None if status is None else to_json(status)
    return Request(found.ns, found.id, event, new_id(), actor, "nodes", seen=seen)


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
    async with unit_of_work(tx, {one.node for one in hellos}) as uow:
        return [_connect_node(uow, one) for one in hellos]


def _connect_node(uow: UnitOfWork, request: NodeHello) -> Welcome | Goodbye:
    found = loaded_node(uow, request.node)
    if found is None:
        return Goodbye(NO_NODE)
    status, hello = node_status(found), request.hello
    if found.state in SERVING and status.installation != hello.installation:
        return Goodbye(HELD, held=True)
    size = {"cpu": hello.cores, "memory": hello.memory // 2**20, "slots": hello.slots, "address": hello.address}
    who = {"version": hello.version, "installation": hello.installation, "server": request.server}
    has_engine = SiteBackend.CONTAINER in hello.backends
    has_had = status.has_had_engine or status.containers or has_engine
    offers = {"containers": has_engine, "has_had_engine": has_had, "secrets": request.takes_secrets, "images": {}}
    # Another server may have given a longer lease, which goes on until its end.
    lease = max(status.lease, request.lease) if found.state in SERVING else request.lease
    seen = replace(status, notify=status.notify + 1, connected=False, lease=lease, **size, **who, **offers)
    save_seen(uow, found, seen)
    return Welcome(status.notify + 1, beat=request.lease / BEATS_PER_LEASE, lease=request.lease)


async def renew_leases(tx: Tx, connections: Sequence[ConnectionId]) -> list[bool]:
    """Renew the leases of nodes, before their heartbeats are answered; returns for each whether it may be."""
    async with unit_of_work(tx, {one.site for one in connections}) as uow:
        return [_renew_lease(uow, one) for one in connections]


def _renew_lease(uow: UnitOfWork, connection: ConnectionId) -> bool:
    found = loaded_node(uow, connection.site)
    if found is None or found.state not in SERVING or node_status(found).notify != connection.notify:
        return False
    status = node_status(found)
    save_seen(uow, found, replace(status, renewals=status.renewals + 1, renewed=uow.now))
    return True


async def disconnect_nodes(tx: Tx, connections: Sequence[ConnectionId]) -> list[None]:
    """Record lost connections: the instances of such a node do not count as ready; its lease goes on."""
    async with unit_of_work(tx, {one.site for one in connections}) as uow:
        for one in connections:
            found = loaded_node(uow, one.site)
            if found is not None and node_status(found).notify == one.notify and node_status(found).connected:
                save_seen(uow, found, replace(node_status(found), connected=False))
                journal(uow, found, found.op, AGENT, "", "disconnected")
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
        found = loaded_node(uow, key)
        if found is None:
            return NO_NODE
        status = node_status(found)
        if status.notify != inventory.connection.notify:
            return SUPERSEDED
        alerts = without_alerts(status.alerts, NODE_LOST)
        save_alerts(uow, found, status.alerts, alerts)
        if status.systems is None:  # each volume there is of a system that exists, or whose deletion is noted
            existing = await uow.peek_selected(Selector(key.ns, SYSTEM.kind))
            status = replace(status, systems=tuple(one.id for one in existing))
        status = replace(
            status, connected=True, cordoned=False, renewals=status.renewals + 1, renewed=uow.now, alerts=alerts
        )
        steps = [_missing_step(one) for one in await instances_on(uow, key) if one.id not in items]
        if found.state in SERVING:
            save_seen(uow, found, status)
            journal(uow, found, found.op, AGENT, status.version, "connected")
        else:
            event = "cordoned" if node_status(found).cordoned else "ready"
            steps.append(step_request(key, event, CONTROLLER, status))
        await take_steps(uow, kinds, [one for one in steps if one is not None])
    return ""


def _missing_step(found: Object) -> Request | None:
    """Return the step of an instance that the agent of its node does not have.

    An agent has a record of all that it has started, so one that runs once and was never reported is ordered again.
    """
    placed, status = placed_instance(found), placed_status(found)
    if found.state != InstanceState.PLACED:
        return step_request(found.key, "gone", CONTROLLER)
    if status.seen is None or status.has_ended:
        return None
    if placed.want.run_once:
        return step_request(found.key, "report", AGENT, _vanished(placed, "its node does not have it any more"))
    return step_request(found.key, "report", AGENT, PlacedStatus())


def _vanished(placed: PlacedInstance, why: str) -> PlacedStatus:
    return PlacedStatus(ended_without_trace(placed.want, placed.node, why), is_ordered=True)


# --- loss ------------------------------------------------------------------------------------------------------------


async def lose_node(tx: Tx, kinds: Kinds, key: Key, renewals: int) -> bool:
    """Declare a node lost whose lease was renewed so often and not since: its instances run nowhere any more.

    Its connections no longer count. Instances that run once stay, as ended in an unknown way, and so do kept logs.
    """
    async with unit_of_work(tx, [key]) as uow:
        found = loaded_node(uow, key)
        if found is None or found.state not in SERVING or node_status(found).renewals != renewals:
            return False
        status, is_ready = node_status(found), found.state == SystemNodeState.READY
        there = await instances_on(uow, key)
        alerts = with_alert(status.alerts, NODE_LOST, _loss_reason(there), uow.now)
        lost = replace(status, notify=status.notify + 1, connected=False, cordoned=not is_ready, alerts=alerts)
        save_alerts(uow, found, status.alerts, alerts)
        steps = [step for one in there if (step := _loss_step(one)) is not None]
        await take_steps(uow, kinds, [step_request(key, "lost", CONTROLLER, lost), *steps])
    return True


def _loss_reason(there: Sequence[Object]) -> str:
    number = sum(one.state in TAKES_ROOM for one in there)
    return f"it did not renew its lease; {count_text(number, 'instance')} ran there"


def _loss_step(found: Object) -> Request | None:
    """Return the step of an instance whose node is lost; an instance that runs once and was not ordered may move."""
    placed, status = placed_instance(found), placed_status(found)
    if not placed.want.run_once or found.state == InstanceState.LEAVING or not status.is_ordered:
        return step_request(found.key, "gone", CONTROLLER)
    if found.state == InstanceState.KEPT or status.has_ended:
        return None
    vanished = _vanished(placed, f"its node {placed.node} was lost")
    if found.state == InstanceState.HALTING:
        return step_request(found.key, "keep", CONTROLLER, vanished)
    return step_request(found.key, "report", AGENT, vanished)


# --- stops -----------------------------------------------------------------------------------------------------------

MAX_KEPT_LOGS = 50
"""The number of ended instances of a run whose logs are kept; those of further ones are removed."""


async def stop_instances(tx: Tx, kinds: Kinds, keys: Sequence[Key]) -> list[None]:
    """Store that instances are to be stopped; those of a run are kept with their logs, until they are forgotten."""
    async with unit_of_work(tx, ()) as uow:
        present = await _load_instances(uow, keys, InstanceState.PLACED)
        runs = {Key(one.ns, one.parent or "") for one, _ in present if placed_instance(one).want.run_once}
        await uow.lock(
            runs
        )  # the kept logs are counted: each process that stops instances of a run waits for the others
        kept = {run: len(await uow.select(Selector(run.ns, INSTANCE.kind, run.id, KEPT_STATES))) for run in runs}
        steps = []
        for found, node in present:
            run = Key(found.ns, found.parent or "")
            is_log_kept = run in kept and kept[run] < MAX_KEPT_LOGS
            if is_log_kept:
                kept[run] += 1
            steps.append(step_request(found.key, _stop_event(found, node, is_log_kept=is_log_kept), CONTROLLER))
        await take_steps(uow, kinds, steps)
    return [None for _ in keys]


KEPT_STATES = (InstanceState.HALTING.word, InstanceState.KEPT.word)


async def _load_instances(
    uow: UnitOfWork, keys: Sequence[Key], state: InstanceState
) -> list[tuple[Object, Object | None]]:
    """Return instances that are in a state, each with its node."""
    await uow.load(keys)
    found = [uow.objects[key] for key in dict.fromkeys(keys) if key in uow.objects]
    present = [one for one in found if not one.removed and one.state == state]
    return list(zip(present, await uow.peek([Key(one.ns, placed_instance(one).node) for one in present]), strict=True))


def _stop_event(found: Object, node: Object | None, *, is_log_kept: bool) -> str:
    if is_log_kept and placed_status(found).has_ended:
        return "keep" if node is not None and not node.removed else "gone"
    if not _is_served(node):
        return "gone"
    return "halt" if is_log_kept else "stop"


async def forget_instances(tx: Tx, kinds: Kinds, keys: Sequence[Key]) -> list[None]:
    """Store that the logs of ended instances are to be removed; the agent of a lost node finds out when it returns."""
    async with unit_of_work(tx, ()) as uow:
        present = await _load_instances(uow, keys, InstanceState.KEPT)
        steps = [step_request(one.key, "stop" if _is_served(node) else "gone", CONTROLLER) for one, node in present]
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
        await uow.load({Key(one.connection.site.ns, one.name) for one in reports})
        # Read after the instances are locked: while this transaction waited for them, their node may have been lost.
        nodes = {one.connection.site for one in reports}
        known = dict(zip(nodes, await uow.peek(list(nodes)), strict=True))
        counted = []
        for one in reports:
            step = _report_step(uow, known[one.connection.site], one)
            counted.append(step is not None)
            await take_steps(uow, kinds, [step] if step is not None else [])
        return counted


def _report_step(uow: UnitOfWork, node: Object | None, report: InstanceReport) -> Request | None:
    found = uow.objects.get(Key(report.connection.site.ns, report.name))
    if node is None or node.kind != NODE.kind or node_status(node).notify != report.connection.notify:
        return None
    if found is None or found.removed or found.kind != INSTANCE.kind:
        return None
    placed = placed_instance(found)
    if placed.node != report.connection.site.id or not is_generation_of(report.number, placed.number):
        return None
    if report.seen is None:
        return step_request(found.key, "gone", CONTROLLER) if found.state == InstanceState.LEAVING else None
    seen = replace(report.seen, node=placed.node)
    if report.has_failed and placed.want.run_once:
        seen = replace(seen, phase=InstancePhase.ENDED)
    status = PlacedStatus(seen, is_ordered=True)
    if found.state == InstanceState.HALTING:
        return step_request(found.key, "keep", CONTROLLER, status) if status.has_ended else None
    if found.state != InstanceState.PLACED or to_json(status) == found.seen:
        return None
    return step_request(found.key, "report", AGENT, status)


async def mark_ordered(tx: Tx, keys: Collection[Key]) -> set[Key]:
    """Store that an agent is about to be told to start these instances; returns those that are still to be started."""
    placed = set()
    async with unit_of_work(tx, keys) as uow:
        for key in keys:
            found = uow.objects.get(key)
            if found is not None and not found.removed and found.state == InstanceState.PLACED:
                placed.add(key)
                save_seen(uow, found, replace(placed_status(found), is_ordered=True))
    return placed
