"""The node hub: this process's connections to the agents of nodes, and the orders due to them.

Several controller processes may share one store, with a hub each. The hub that has the connection of a node sends its
orders; it learns from the journal what others have placed. Its memory may be lost at any time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from random import Random
from typing import TypeVar

import msgspec

from stateward.access import Grant
from stateward.access.lifecycle import TOKEN, TokenState
from stateward.agents.agent_requests import AgentRequests
from stateward.agents.app_manifest import SiteBackend
from stateward.agents.connection import DIAL_AGAIN, AgentConnection, Disconnected, OtherMessage
from stateward.agents.dialer import is_loopback
from stateward.agents.messages import (
    ENDED,
    FAILED,
    PROTOCOL,
    AgentOrder,
    AgentReport,
    AnswerPiece,
    CommandAnswer,
    Goodbye,
    Hello,
    InventoryItem,
    LogPart,
    OrderAction,
    StatusMessage,
    Welcome,
)
from stateward.agents.node_messages import SecretRequest
from stateward.agents.site import SiteCapacity
from stateward.aio.supervise import cancel_tasks
from stateward.domains.systems.backends.port import InstancePhase, ReadSecrets, ServiceInstance
from stateward.domains.systems.errors import NodeCannotAnswer
from stateward.domains.systems.lifecycle import INSTANCE, NODE, InstanceState
from stateward.domains.systems.nodes.lease_rules import BEATS_PER_LEASE
from stateward.domains.systems.nodes.node_images import IMAGES_ASKED, NodeImages
from stateward.domains.systems.nodes.node_instances import NodeInstances
from stateward.domains.systems.nodes.node_model import (
    NodeOrder,
    create_number,
    delete_number,
    halt_number,
    halted_generation,
    is_generation_of,
    node_status,
    placed_instance,
    placed_status,
    ref_of_instance,
)
from stateward.domains.systems.nodes.node_records import (
    SUPERSEDED,
    AgentInventory,
    InstanceReport,
    NodeConnection,
    NodeHello,
    connect_nodes,
    disconnect_nodes,
    mark_ordered,
    record_reports,
    renew_leases,
    sync_node,
)
from stateward.domains.systems.nodes.node_secrets import NodeSecrets
from stateward.domains.systems.nodes.node_volumes import SYSTEM_DELETED, NodeVolumes
from stateward.engine import Engine
from stateward.engine.transaction_batcher import TransactionBatcher
from stateward.store.errors import StoreError
from stateward.store.port import Tx
from stateward.store.records import JournalEntry, Key, Object, to_json

log = logging.getLogger("stateward.systems")
audit = logging.getLogger("stateward.audit")

RESEND_S = 5.0
"""Seconds after which an unanswered order is sent again; the agent executes it once all the same."""

NOT_HERE = (
    "it is not connected to this server; if it is connected to another one, the setting server_url there says how this "
    "one reaches it"
)

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def address_problem(address: str, peer: str) -> str:
    """Return why the address that an agent names for its node is refused; empty if it is accepted.

    Proxies connect to instances there. An agent must not lead them to services that only this host can reach: those on
    its loopback address, unless the agent is on this host too, and those of link-local addresses, such as a cloud's
    metadata.
    """
    try:
        named = ip_address(address)
    except ValueError:
        return f"--address: {address!r} must be an IP address"
    named = (named.ipv4_mapped if isinstance(named, IPv6Address) else None) or named
    if named.is_link_local or named.is_unspecified or named.is_multicast:
        return f"--address: {address} must be an address of the node that other hosts reach"
    if named.is_loopback and peer and not is_loopback(peer):
        return f"--address: {address} must be an address of the node: its agent connects from {peer}"
    return ""


def batcher(
    engine: Engine, chance: Random, run: Callable[[Tx, Sequence[Item]], Awaitable[list[Answer]]]
) -> TransactionBatcher[Item, Answer]:
    """Return a batcher whose batches run in one transaction each."""

    async def process(items: Sequence[Item]) -> Sequence[Answer | Exception]:
        return await engine.store.transact(lambda tx: run(tx, items))

    return TransactionBatcher(process, chance)


class NodeHub:
    """The connections to agents of nodes in this process; implements `ConnectionHandler`."""

    def __init__(
        self, engine: Engine, chance: Random, lease_s: float, read_secrets: ReadSecrets, server_url: str = ""
    ) -> None:
        self._engine, self._lease_s, self._server_url = engine, lease_s, server_url
        self.instances = NodeInstances(engine)
        self._secrets = NodeSecrets(self.instances, read_secrets)
        self.connections: dict[Key, AgentConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._requests = AgentRequests(NodeCannotAnswer)
        self.images = NodeImages(engine, self.connections, self._requests)
        self.volumes = NodeVolumes(engine, self.connections, self._requests)
        self._connect = batcher(engine, chance, connect_nodes)
        self._renew = batcher(engine, chance, renew_leases)
        self._disconnect = batcher(engine, chance, disconnect_nodes)
        self._report: TransactionBatcher[InstanceReport, bool] = batcher(
            engine, chance, lambda tx, reports: record_reports(tx, engine.kinds, reports)
        )

    # --- agents.connection.ConnectionHandler -------------------------------------------------------------------------

    async def on_hello(self, connection: AgentConnection, hello: Hello) -> Welcome | Goodbye:
        """Accept an agent, or refuse it."""
        if hello.protocol != PROTOCOL:
            return Goodbye(f"protocol {hello.protocol} is not spoken here, but {PROTOCOL}", final=True)
        if problem := address_problem(hello.address, connection.peer):
            return Goodbye(problem, final=True)
        capacity = SiteCapacity(hello.cores, hello.memory, hello.slots, hello.address)
        who = _node(connection), hello.version, hello.installation
        takes_secrets = hello.secrets and connection.is_private
        has_engine = SiteBackend.CONTAINER in hello.backends
        request = NodeHello(*who, capacity, self._lease_s, self._server_url, takes_secrets, has_engine)
        answer = await self._connect.submit(request)
        if answer.rejection:
            return Goodbye(answer.rejection, held=answer.is_held)
        connection.notify = answer.notify
        former = self.connections.get(_node(connection))
        self.connections[_node(connection)] = connection
        if former is not None:
            self._start_task(former.close(SUPERSEDED))
        return Welcome(answer.notify, beat=self._lease_s / BEATS_PER_LEASE, lease=self._lease_s)

    async def on_inventory(self, connection: AgentConnection) -> None:
        """Reconcile a complete inventory, and send the orders due."""
        items = dict(connection.items)
        connection.items.clear()
        inventory = AgentInventory(_connection(connection), items)
        why = await self._engine.store.transact(lambda tx: sync_node(tx, self._engine.kinds, inventory))
        if why:
            await connection.send(Goodbye(why))
            raise Disconnected(why)
        connection.is_synced = True
        placed = {one.id: one for one in await self.instances.of(_node(connection))}
        for item in items.values():
            await self._remove_orphan(connection, item, placed.get(item.name))
        await self.send_orders(_node(connection))
        self._start_task(self._remove_volumes(_node(connection)))  # its answer comes over this connection

    async def _remove_volumes(self, node: Key) -> None:
        """Remove the volumes of deleted systems from a node, and send the orders that have waited for that."""
        if await self.volumes.deleted_systems(node):
            await self.volumes.remove(node)
            await self.send_orders(node)

    async def on_heartbeat(self, connection: AgentConnection) -> None:
        """Renew the lease of a node; an agent whose lease cannot be renewed must connect again."""
        if not connection.is_synced or not await self._renew.submit(_connection(connection)):
            raise Disconnected(SUPERSEDED)

    async def on_message(self, connection: AgentConnection, message: OtherMessage) -> None:
        """Record a report about an instance, or answer a request for a secret; others are dropped."""
        if isinstance(message, SecretRequest):
            if connection.is_synced and message.notify == connection.notify:
                await connection.send(await self._secrets.answer(connection, _node(connection), message))
            return
        report = _report_of(connection, message)
        if report is not None:  # recorded in order; heartbeats do not wait for that, or a slow store would end leases
            self._start_task(self._after_report(connection, report, self._report.submit(report)))

    async def _after_report(
        self, connection: AgentConnection, report: InstanceReport, recorded: asyncio.Future[bool]
    ) -> None:
        try:
            await recorded
        except Exception:
            await connection.close(DIAL_AGAIN)  # the agent reports everything over its next connection
            raise
        if report.seen is None:
            connection.sent_orders.pop(report.name, None)
            await self.send_orders(_node(connection))  # one of the same name may be due

    def on_answer(self, connection: AgentConnection, piece: AnswerPiece) -> None:
        """Give a piece of the answer to a request for a log to its caller."""
        self._requests.on_answer(connection, piece)

    async def on_failure(self, connection: AgentConnection, why: Disconnected) -> None:
        """Log a connection that ends with an error."""
        log.info("agent of node %s in %s is disconnected: %s", connection.site_name, connection.ns, why)

    def refuse_token(self, grant: Grant, ns: str, node: str, why: str) -> None:
        """Audit a token of another node; nothing is written to the journal of the node."""
        audit.warning("refused: %s token=%s node=%s/%s", why, grant.token, ns, node)

    async def on_closed(self, connection: AgentConnection) -> None:
        """Forget a closed connection, and record its loss."""
        self._requests.on_closed(connection)
        if self.connections.get(_node(connection)) is connection:
            del self.connections[_node(connection)]
        if connection.notify:
            with suppress(StoreError):  # the end of the lease makes up for it
                await self._disconnect.submit(_connection(connection))

    # --- logs and commands -------------------------------------------------------------------------------------------

    async def read_log(self, node: Key, instance: str, after: int | None, most: int) -> Sequence[LogPart]:
        """Return the log of an instance, by the agent of its node."""
        cursor = "" if after is None else str(after)
        answer = await self._requests.read_log(self._serving(node), instance, "", cursor, most)
        return answer.parts

    async def run_command(self, node: Key, instance: str, argv: Sequence[str], timeout_s: float) -> CommandAnswer:
        """Run a command in an instance, by the agent of its node; it ends when the caller leaves."""
        return await self._requests.run_command(self._serving(node), instance, tuple(argv), "", timeout_s)

    def _serving(self, node: Key) -> AgentConnection:
        connection = self.connections.get(node)
        if connection is None or not connection.is_synced:
            raise NodeCannotAnswer(node.id, NOT_HERE)
        return connection

    def server_of(self, node: Object) -> str:
        """Return the URL of the server that a node's agent is connected to; empty: this one, none, or not known."""
        status = node_status(node)
        return status.server if status.connected and node.key not in self.connections else ""

    # --- orders ------------------------------------------------------------------------------------------------------

    def on_journal(self, entries: Iterable[JournalEntry]) -> None:
        """Act on journal entries: send orders to nodes that are connected here, close connections without a right."""
        changed: set[Key] = set()
        for entry in entries:
            if entry.kind == TOKEN.kind and entry.target != TokenState.ACTIVE:
                self._close_token(entry.object.removeprefix("token-"))
            elif entry.kind == NODE.kind and entry.event in ("lost", "delete"):
                self._close(Key(entry.ns, entry.object))
            elif entry.kind == NODE.kind and entry.event == IMAGES_ASKED:
                self._start_task(self.images.answer(Key(entry.ns, entry.object)))
            elif entry.kind == NODE.kind and entry.event == SYSTEM_DELETED:
                self._start_task(self._remove_volumes(Key(entry.ns, entry.object)))
            elif entry.kind == INSTANCE.kind and entry.event in ("place", "halt", "stop"):
                changed.add(Key(entry.ns, entry.object))
        if changed and self.connections:
            self._start_task(self._send_changed(changed))

    async def _send_changed(self, instances: set[Key]) -> None:
        found = (await self._engine.store.reader.objects(instances)).values()
        nodes = {Key(one.ns, placed_instance(one).node) for one in found if one.kind == INSTANCE.kind}
        for node in nodes & self.connections.keys():
            self._start_task(self.send_orders(node))

    def _close_token(self, token: str) -> None:
        for connection in [one for one in self.connections.values() if one.token == token]:
            self._start_task(connection.close(DIAL_AGAIN))

    def _close(self, node: Key) -> None:
        if node in self.connections:
            self._start_task(self.connections[node].close(DIAL_AGAIN))

    async def send_orders(self, node: Key, patience: float = float("inf")) -> None:
        """Send the orders due to a node, unless they were sent less than `patience` seconds ago.

        Instances of a system wait until the volumes of a deleted one of the same name are removed there.
        """
        connection = self.connections.get(node)
        if connection is None or not connection.is_synced:
            return
        due = [(one, order) for one in await self.instances.of(node) if (order := due_order(one, connection.notify))]
        if any(order.work is OrderAction.CREATE for _, order in due):
            deleted = await self.volumes.deleted_systems(node)
            due = [
                (one, order) for one, order in due
                if order.work is not OrderAction.CREATE or ref_of_instance(one.ns, one.id).system.system not in deleted
            ]  # fmt: skip
        new = {one.key for one, order in due if order.work is OrderAction.CREATE and not _is_ordered(one)}
        once = {one.key for one, _ in due if one.key in new and placed_instance(one).want.run_once}
        stale = once - await self._engine.store.transact(lambda tx: mark_ordered(tx, once)) if once else set()
        with suppress(Disconnected):
            for one, order in due:
                if one.key not in stale:
                    await connection.send_order(order, patience)

    async def _remove_orphan(self, connection: AgentConnection, item: InventoryItem, placed: Object | None) -> None:
        """Order the removal of what is not placed on the node, with a number above all that its agent has seen."""
        number = None if placed is None else placed_instance(placed).number
        if item.generation == 0 or (number is not None and is_generation_of(item.generation, number)):
            return
        log.warning("node %s has %s, which is not placed there; it is removed", _node(connection), item.name)
        order = AgentOrder(OrderAction.DELETE, item.latest + 1, item.generation, connection.notify, item.name)
        if not item.latest:
            order = msgspec.structs.replace(order, operation=delete_number(item.generation) + 1)
        await connection.send_order(order)

    async def resend_orders(self) -> None:
        """Send unanswered orders again, and remove volumes that are left, in a loop."""
        while True:
            await asyncio.sleep(RESEND_S)
            await self._resend()

    async def _resend(self) -> None:
        """Begin the work on all nodes at the same time, so that it shares its reads, and wait for its end."""
        nodes = list(self.connections)
        for node in await self.volumes.to_remove(nodes):
            self._start_task(self._remove_volumes(node))
        if sending := [self._start_task(self.send_orders(node, RESEND_S)) for node in nodes]:
            await asyncio.wait(sending)

    async def close_silent(self) -> None:
        """Close connections whose agents are silent for a whole lease, in a loop."""
        while True:
            await asyncio.sleep(self._lease_s / BEATS_PER_LEASE)
            now = asyncio.get_running_loop().time()
            for node, connection in list(self.connections.items()):
                if now - connection.last_message_at > self._lease_s:
                    self._close(node)

    def _start_task(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.warning("node hub: a task failed, and is repeated later", exc_info=error)

    async def close(self) -> None:
        """Close all connections; the agents connect again, to this or another controller."""
        for connection in list(self.connections.values()):
            await connection.close(DIAL_AGAIN)
        await cancel_tasks(self._tasks)


def due_order(found: Object, notify: int) -> AgentOrder | None:
    """Return the order due for an instance: to start it, until its agent has reported it; to stop or to remove it."""
    placed = placed_instance(found)
    if found.state == InstanceState.LEAVING:
        number = delete_number(placed.number)
        return AgentOrder(OrderAction.DELETE, number, placed.number, notify, found.id)
    ref = ref_of_instance(found.ns, found.id)
    spec = to_json(NodeOrder(found.ns, ref.system.system, ref.path, placed.want))
    if found.state == InstanceState.HALTING:
        numbers = halt_number(placed.number), halted_generation(placed.number)
        return AgentOrder(OrderAction.UPDATE, *numbers, notify, found.id, spec=spec)
    if found.state == InstanceState.KEPT or placed_status(found).seen is not None:
        return None
    return AgentOrder(OrderAction.CREATE, create_number(placed.number), placed.number, notify, found.id, spec=spec)


def _is_ordered(found: Object) -> bool:
    return placed_status(found).is_ordered


def _node(connection: AgentConnection) -> Key:
    return Key(connection.ns, connection.site_name)


def _connection(connection: AgentConnection) -> NodeConnection:
    return NodeConnection(_node(connection), connection.notify)


def _report_of(connection: AgentConnection, message: OtherMessage) -> InstanceReport | None:
    """Return the report in a message: a status, the end of a stop, or a failed start; None for any other message."""
    if message.notify != connection.notify:
        return None
    where = _connection(connection)
    if isinstance(message, StatusMessage):
        try:
            seen = msgspec.json.decode(message.status, type=ServiceInstance)
        except msgspec.DecodeError as error:
            raise Disconnected("the status cannot be read", error) from error
        return InstanceReport(where, message.name, message.generation, seen)
    if isinstance(message, AgentReport) and message.event == ENDED[OrderAction.DELETE]:
        return InstanceReport(where, message.name, message.generation, None)
    if isinstance(message, AgentReport) and message.event == FAILED[OrderAction.CREATE]:
        name = message.name.rpartition("~")[2]
        failed = ServiceInstance(name, name.rpartition("-")[0], InstancePhase.CRASHED, why=message.error)
        return InstanceReport(where, message.name, message.generation, failed, has_failed=True)
    return None
