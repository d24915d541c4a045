"""The agent hub of nodes: what connections, heartbeats and reports mean for nodes and the instances on them."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from random import Random

import msgspec

from stateward.agents.agent_hub import AgentHub, SyncResult
from stateward.agents.connection import AgentConnection, ConnectionId, Disconnected, OtherMessage
from stateward.agents.dialer import is_loopback
from stateward.agents.messages import (
    ENDED,
    FAILED,
    AgentOrder,
    AgentReport,
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
from stateward.domains.systems.backends.port import InstancePhase, ReadSecrets, ServiceInstance
from stateward.domains.systems.errors import NodeCannotAnswer
from stateward.domains.systems.lifecycle import INSTANCE, NODE, InstanceState
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
    AgentInventory,
    InstanceReport,
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
from stateward.store.records import JournalEntry, Key, Object, to_json

log = logging.getLogger("stateward.systems")

RESEND_S = 5.0
"""Seconds after which an unanswered order is sent again; the agent executes it once all the same."""

NOT_HERE = (
    "it is not connected to this server; if it is connected to another one, the setting server_url there says how this "
    "one reaches it"
)


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


class NodeHub(AgentHub):
    """The connections to the agents of nodes in this process."""

    site_noun = "node"
    wrong_site = "the token does not name this node"

    def __init__(
        self, engine: Engine, chance: Random, lease_s: float, read_secrets: ReadSecrets, server_url: str = ""
    ) -> None:
        super().__init__(engine, NodeCannotAnswer, chance, silent_s=lease_s, resend_s=RESEND_S)
        self._lease_s, self._server_url = lease_s, server_url
        self.instances = NodeInstances(engine)
        self._secrets = NodeSecrets(self.instances, read_secrets)
        self.images, self.volumes = NodeImages(self), NodeVolumes(self)
        self._connects, self._disconnects = self.batcher(connect_nodes), self.batcher(disconnect_nodes)
        self._renewals = self.batcher(renew_leases)
        self._report: TransactionBatcher[InstanceReport, bool] = self.batcher(
            lambda tx, reports: record_reports(tx, engine.kinds, reports)
        )

    # --- connections -------------------------------------------------------------------------------------------------

    async def accept(self, connection: AgentConnection, hello: Hello) -> Welcome | Goodbye:
        """Accept the agent of a node, or refuse it."""
        if problem := address_problem(hello.address, connection.peer):
            return Goodbye(problem, final=True)
        about = connection.site, hello, self._lease_s, self._server_url
        answer = await self._connects.submit(NodeHello(*about, takes_secrets=hello.secrets and connection.is_private))
        if isinstance(answer, Welcome):
            self.supersede(connection.site)
        return answer

    async def sync(self, connection: AgentConnection, items: Sequence[InventoryItem]) -> SyncResult:
        """Reconcile a complete inventory with what is placed on the node."""
        inventory = AgentInventory(connection.id, {item.name: item for item in items})
        return SyncResult(await self.engine.store.transact(lambda tx: sync_node(tx, self.engine.kinds, inventory)))

    async def on_synced(self, connection: AgentConnection) -> None:
        """Order the removal of what is not placed on the node, and send the orders due."""
        placed = {instance.id: instance for instance in await self.instances.of(connection.site)}
        for item in connection.items.values():
            if (order := _orphan_removal(connection, item, placed.get(item.name))) is not None:
                await connection.send_order(order)
        await self.send_orders(connection.site)
        self.start_task(self._remove_volumes(connection.site))  # its answer comes over this connection

    async def _remove_volumes(self, node: Key) -> None:
        """Remove the volumes of deleted systems from a node, and send the orders that have waited for that."""
        if await self.volumes.deleted_systems(node):
            await self.volumes.remove(node)
            await self.send_orders(node)

    async def renew_lease(self, connection: AgentConnection) -> bool:
        """Renew the lease of a node."""
        return connection.is_synced and await self._renewals.submit(connection.id)

    async def record_disconnect(self, lost: ConnectionId) -> None:
        """Record a lost connection of a node."""
        await self._disconnects.submit(lost)

    # --- messages ----------------------------------------------------------------------------------------------------

    async def on_message(self, connection: AgentConnection, message: OtherMessage) -> None:
        """Record a report about an instance, or answer a request for a secret; others are dropped."""
        if isinstance(message, SecretRequest):
            if connection.is_synced and message.notify == connection.notify:
                await connection.send(await self._secrets.answer(connection, connection.site, message))
            return
        report = _report_of(connection, message)
        if report is not None:  # recorded in order; heartbeats do not wait for that, or a slow store would end leases
            self.start_task(self._after_report(connection, report, self._report.submit(report)))

    async def _after_report(
        self, connection: AgentConnection, report: InstanceReport, recorded: asyncio.Future[bool]
    ) -> None:
        try:
            await recorded
        except Exception:
            await self.disconnect(connection)  # the agent reports everything over its next connection
            raise
        if report.seen is None:
            connection.sent_orders.pop(report.name, None)
            await self.send_orders(connection.site)  # one of the same name may be due

    # --- logs and commands -------------------------------------------------------------------------------------------

    async def read_log(self, node: Key, instance: str, after: int | None, most: int) -> Sequence[LogPart]:
        """Return the log of an instance, by the agent of its node."""
        cursor = "" if after is None else str(after)
        answer = await self.requests.read_log(self._serving(node), instance, "", cursor, most)
        return answer.parts

    async def run_command(self, node: Key, instance: str, argv: Sequence[str], timeout_s: float) -> CommandAnswer:
        """Run a command in an instance, by the agent of its node; it ends when the caller leaves."""
        return await self.requests.run_command(self._serving(node), instance, tuple(argv), "", timeout_s)

    def _serving(self, node: Key) -> AgentConnection:
        connection = self.serving_connection(node)
        if connection is None:
            raise NodeCannotAnswer(node.id, NOT_HERE)
        return connection

    def server_of(self, node: Object) -> str:
        """Return the URL of the server that a node's agent is connected to; empty: this one, none, or not known."""
        status = node_status(node)
        return status.server if status.connected and node.key not in self.connections else ""

    # --- orders ------------------------------------------------------------------------------------------------------

    def on_entries(self, entries: Sequence[JournalEntry]) -> None:
        """Act on journal entries: send orders to nodes that are connected here, close connections to lost ones."""
        changed: set[Key] = set()
        for entry in entries:
            if entry.kind == NODE.kind and entry.event in ("lost", "delete"):
                self.disconnect_site(Key(entry.ns, entry.object))
            elif entry.kind == NODE.kind and entry.event == IMAGES_ASKED:
                self.start_task(self.images.answer(Key(entry.ns, entry.object)))
            elif entry.kind == NODE.kind and entry.event == SYSTEM_DELETED:
                self.start_task(self._remove_volumes(Key(entry.ns, entry.object)))
            elif entry.kind == INSTANCE.kind and entry.event in ("place", "halt", "stop"):
                changed.add(Key(entry.ns, entry.object))
        if changed and self.connections:
            self.start_task(self._send_changed(changed))

    async def _send_changed(self, instances: set[Key]) -> None:
        records = (await self.engine.store.reader.objects(instances)).values()
        nodes = {Key(record.ns, placed_instance(record).node) for record in records if record.kind == INSTANCE.kind}
        for node in nodes & self.connections.keys():
            self.start_task(self.send_orders(node))

    async def send_orders(self, node: Key, patience: float = float("inf")) -> None:
        """Send the orders due to a node, unless they were sent less than `patience` seconds ago.

        Instances of a system wait until the volumes of a deleted one of the same name are removed there.
        """
        connection = self.serving_connection(node)
        if connection is None:
            return
        due = [
            (instance, order)
            for instance in await self.instances.of(node)
            if (order := due_order(instance, connection.notify))
        ]
        if any(order.work is OrderAction.CREATE for _, order in due):
            deleted = await self.volumes.deleted_systems(node)
            due = [
                (instance, order)
                for instance, order in due
                if order.work is not OrderAction.CREATE
                or ref_of_instance(instance.ns, instance.id).system.system not in deleted
            ]
        new = {
            instance.key
            for instance, order in due
            if order.work is OrderAction.CREATE and not placed_status(instance).is_ordered
        }
        once = {instance.key for instance, _ in due if instance.key in new and placed_instance(instance).want.run_once}
        stale = once - await self.engine.store.transact(lambda tx: mark_ordered(tx, once)) if once else set()
        with suppress(Disconnected):
            for instance, order in due:
                if instance.key not in stale:
                    await connection.send_order(order, patience)

    async def resend(self) -> None:
        """Send unanswered orders again, and remove volumes that are left.

        The work on all nodes begins at the same time, so that it shares its reads.
        """
        nodes = list(self.connections)
        for node in await self.volumes.to_remove(nodes):
            self.start_task(self._remove_volumes(node))
        if sending := [self.start_task(self.send_orders(node, RESEND_S)) for node in nodes]:
            await asyncio.wait(sending)


def due_order(instance: Object, notify: int) -> AgentOrder | None:
    """Return the order due for an instance: to start it, until its agent has reported it; to stop or to remove it."""
    placed = placed_instance(instance)
    if instance.state == InstanceState.LEAVING:
        number = delete_number(placed.number)
        return AgentOrder(OrderAction.DELETE, number, placed.number, notify, instance.id)
    ref = ref_of_instance(instance.ns, instance.id)
    spec = to_json(NodeOrder(instance.ns, ref.system.system, ref.path, placed.want))
    if instance.state == InstanceState.HALTING:
        numbers = halt_number(placed.number), halted_generation(placed.number)
        return AgentOrder(OrderAction.UPDATE, *numbers, notify, instance.id, spec=spec)
    if instance.state == InstanceState.KEPT or placed_status(instance).seen is not None:
        return None
    return AgentOrder(OrderAction.CREATE, create_number(placed.number), placed.number, notify, instance.id, spec=spec)


def _orphan_removal(connection: AgentConnection, item: InventoryItem, placed: Object | None) -> AgentOrder | None:
    """Return the order to remove what is not placed on a node, with a number above all that its agent has seen."""
    number = None if placed is None else placed_instance(placed).number
    if item.generation == 0 or (number is not None and is_generation_of(item.generation, number)):
        return None
    log.warning("node %s has %s, which is not placed there; it is removed", connection.site, item.name)
    latest = item.latest or delete_number(item.generation)
    return AgentOrder(OrderAction.DELETE, latest + 1, item.generation, connection.notify, item.name)


def _report_of(connection: AgentConnection, message: OtherMessage) -> InstanceReport | None:
    """Return the report in a message: a status, the end of a stop, or a failed start; None for any other message."""
    if message.notify != connection.notify:
        return None
    where = connection.id
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
