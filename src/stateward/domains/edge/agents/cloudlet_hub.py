"""The agent hub of cloudlets: what connections, inventories and messages mean for their records."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from random import Random

from msgspec.structs import replace

from stateward.agents.agent_hub import AgentHub
from stateward.agents.connection import (
    PROGRESS_COST,
    REJECTION_COST,
    AgentConnection,
    ConnectionId,
    Disconnected,
    OtherMessage,
)
from stateward.agents.measure_messages import Load, Measures
from stateward.agents.messages import (
    BUSY,
    ENDED,
    AgentReport,
    Goodbye,
    Hello,
    InventoryItem,
    OrderAction,
    ProgressMessage,
    StatusMessage,
    Upgrade,
    Welcome,
)
from stateward.agents.node_messages import SecretRequest
from stateward.domains.edge.agents.agent_auth import WRONG_CLOUDLET
from stateward.domains.edge.agents.agent_reports import AgentMessage, journal_violation, process_messages
from stateward.domains.edge.agents.connections import ConnectRequest, connect_agents, disconnect_agents
from stateward.domains.edge.agents.inventory_sync import (
    CloudletSync,
    Inventory,
    journal_orphan_removed,
    sync_inventories,
)
from stateward.domains.edge.agents.measures import STALE_LOAD, CloudletReport, store_measures
from stateward.domains.edge.agents.orders import due_orders
from stateward.domains.edge.errors import AgentCannotAnswer
from stateward.domains.edge.handlers import related_ids
from stateward.domains.edge.lifecycle import CLOUDLET, MISSING
from stateward.domains.edge.model import (
    INSTANCE_LIFECYCLES,
    CloudletSpec,
    agent_slots,
    cloudlet_of,
    cloudlet_status,
    instance_record,
    instance_status,
    local_name,
    read_spec,
)
from stateward.domains.edge.policy.cluster_reservation import IDLE_TIMEOUT_S
from stateward.domains.edge.records.agent_upgrade import AgentRejection, is_upgrade_due, must_disconnect
from stateward.domains.edge.records.instance_record import needs_undo
from stateward.engine import Denied, Engine
from stateward.engine.errors import VersionMismatch
from stateward.engine.queries import list_all
from stateward.engine.requests import RequestOptions
from stateward.lifecycle import CONTROLLER
from stateward.store.filters import Selector
from stateward.store.records import JournalEntry, Key, Object

HEARTBEAT_INTERVAL_S = 10.0
"""Seconds between two heartbeats of an agent."""

MEASURE_INTERVAL_S = 10.0
"""Seconds between two measurements of an agent."""

MAX_MISSED_HEARTBEATS = 3
"""Missed heartbeats after which a connection is closed."""

ORDER_RETRY_S = 10.0
"""Seconds after which an unanswered order is sent again; the agent executes it once all the same."""

ORDER_STATES = tuple(f"{verb}{what}" for verb in ("Create", "Update", "Delete") for what in ("Requested", "Error"))
"""The states in which an order for the agent may be due."""

INVENTORY_DELAY_S = 0.5
"""Seconds to wait before an agent must send its inventory again, after records have changed without it."""

BUSY_RETRY_S = 0.5
"""Seconds to wait before an order is sent again to a busy agent."""

OnLoad = Callable[[str, str, Load], Coroutine[object, object, None]]
CloudletCheck = Callable[[Key], Awaitable[None]]


class CloudletHub(AgentHub):
    """The connections to the agents of cloudlets in this process."""

    site_noun = "cloudlet"
    wrong_site = WRONG_CLOUDLET
    unlogged = frozenset({AgentRejection.HELD})  # logged when it came; a held agent dials every few seconds

    def __init__(
        self,
        engine: Engine,
        controller: str,
        chance: Random,
        on_load: OnLoad,
        *,
        heartbeat_s: float = HEARTBEAT_INTERVAL_S,
        retry_s: float = ORDER_RETRY_S,
        measure_s: float = MEASURE_INTERVAL_S,
        idle_s: float = IDLE_TIMEOUT_S,
    ) -> None:
        times = {"silent_s": MAX_MISSED_HEARTBEATS * heartbeat_s, "resend_s": min(heartbeat_s, retry_s) / 2}
        super().__init__(engine, AgentCannotAnswer, chance, **times)
        self.controller = controller
        self.heartbeat_s, self.retry_s, self.measure_s = heartbeat_s, retry_s, measure_s
        self._on_load = on_load
        self._missing: dict[Key, set[str]] = {}
        self._awaiting_inventory: set[Key] = set()  # cloudlets whose agents must send a new inventory
        self._failed_checks: set[tuple[CloudletCheck, Key]] = set()  # checks of journal entries, to be repeated
        self._orphan_removals: set[tuple[Key, str, int]] = set()
        self.connects = self.batcher(partial(connect_agents, kinds=engine.kinds))
        self.disconnects, self._orders = self.batcher(disconnect_agents), self.batcher(due_orders)
        self._inventories = self.batcher(partial(sync_inventories, idle_s=idle_s), max_size=100)
        self._messages = self.batcher(partial(process_messages, idle_s=idle_s))
        self._measures = self.batcher(store_measures, max_size=100)

    # --- connections -------------------------------------------------------------------------------------------------

    async def accept(self, connection: AgentConnection, hello: Hello) -> Welcome | Goodbye:
        """Accept an agent, or refuse it by the state of its cloudlet."""
        answer = await self.connects.submit(ConnectRequest(connection.site, hello, self.controller))
        times = {"beat": self.heartbeat_s, "measures": self.measure_s}
        return answer if isinstance(answer, Goodbye) else replace(answer, **times)

    async def sync(self, connection: AgentConnection, items: Sequence[InventoryItem]) -> CloudletSync:
        """Reconcile a complete inventory with the records of its cloudlet."""
        about = *connection.site, connection.version, connection.notify
        result = await self._inventories.submit(Inventory(*about, tuple(items), connection.installation))
        self._orphan_removals.update(
            (connection.site, removal.name, removal.operation) for removal in result.orphan_removals
        )
        self._add_missing(connection.site, result.missing)
        return result

    async def on_synced(self, connection: AgentConnection) -> None:
        """Send the request to upgrade that is due."""
        await self._check_cloudlet(connection.site)

    async def record_disconnect(self, lost: ConnectionId) -> None:
        """Record a lost connection of a cloudlet."""
        await self.disconnects.submit(lost)

    async def record_violation(self, connection: AgentConnection, why: str) -> None:
        """Journal a violation of the protocol."""
        about = *connection.site, connection.version, why
        await self.engine.store.transact(lambda tx: journal_violation(tx, *about))

    # --- messages ----------------------------------------------------------------------------------------------------

    async def on_message(self, connection: AgentConnection, message: OtherMessage) -> None:
        """Process a message; rejected ones are counted."""
        key = connection.site
        if isinstance(message, StatusMessage | SecretRequest):
            self.reject(connection, "statuses and secrets are for nodes")
            return
        if isinstance(message, Measures):
            await self._handle_measures(connection, key, message)
            return
        if isinstance(message, AgentReport) and await self._handle_orphan_removal(connection, key, message):
            return
        result = await self._messages.submit(AgentMessage(*key, connection.version, message))
        if not result.is_accepted:
            self.reject(connection, result.reason)
        elif isinstance(message, ProgressMessage):
            connection.rate_limit.spend(PROGRESS_COST)
        if result.order is not None:
            await connection.send_order(result.order)
        if result.is_accepted and isinstance(message, AgentReport):
            _forget_deleted(connection, message)
        if result.must_resend:
            self.start_task(self.resend_order(connection, Key(key.ns, f"{key.id}:{message.name}")))
        if result.is_missing:
            self._add_missing(key, [message.name])

    async def _handle_measures(self, connection: AgentConnection, key: Key, measures: Measures) -> None:
        """Keep measures, and pass on the loads of clusters that scale; only what a correct agent never sends costs."""
        result = await self._measures.submit(CloudletReport(*key, connection.version, measures))
        self.rejected.update(result.rejections)
        if any(rejection != STALE_LOAD for rejection in result.rejections):
            connection.rate_limit.spend(REJECTION_COST)
        for cluster, load in result.scaled:
            self.start_task(self._on_load(connection.ns, cluster, load))

    async def _handle_orphan_removal(self, connection: AgentConnection, key: Key, report: AgentReport) -> bool:
        removal = key, report.name, report.operation
        if removal not in self._orphan_removals:
            return False
        if report.event in ENDED.values():
            self._orphan_removals.discard(removal)
            _forget_deleted(connection, report)
            await self.engine.store.transact(lambda tx: journal_orphan_removed(tx, key.ns, key.id, report.name))
        elif report.event == BUSY:
            connection.sent_orders.pop(report.name, None)
        return True

    # --- journal -----------------------------------------------------------------------------------------------------

    def on_entries(self, entries: Sequence[JournalEntry]) -> None:
        """Act on journal entries of cloudlets whose agents are connected here: send orders, close connections."""
        instances: dict[Key, None] = {}
        cloudlets: dict[Key, None] = {}
        for entry in entries:
            key = Key(entry.ns, entry.object)
            if entry.kind == CLOUDLET.kind and key in self.connections:
                cloudlets[key] = None
                if entry.event == "change":
                    self.start_task(self._check(self._apply_changed_policies, key))
            elif entry.kind in INSTANCE_LIFECYCLES and _ended_without_agent(entry):
                self._request_inventory(Key(entry.ns, cloudlet_of(entry.object)))
            elif entry.kind in INSTANCE_LIFECYCLES and entry.target in ORDER_STATES:
                instances[key] = None
        for key in cloudlets:
            self.start_task(self._check(self._check_cloudlet, key))
        for key in instances:
            if Key(key.ns, cloudlet_of(key.id)) in self.connections:
                self.start_task(self.send_due_order(key))

    def _request_inventory(self, key: Key) -> None:
        """Make an agent reconnect soon and send its inventory, because records have changed without it."""
        if key in self.connections and key not in self._awaiting_inventory:
            self._awaiting_inventory.add(key)
            self.start_task(self._disconnect_soon(key))

    async def _apply_changed_policies(self, key: Key) -> None:
        """Re-create missing instances, and make an agent send its inventory, if the policies now say so."""
        reader = self.engine.store.reader
        cloudlet = await reader.object(key)
        if cloudlet is None or cloudlet.removed:
            return
        spec = read_spec(cloudlet, CloudletSpec)
        if spec.orphans == "remove" and cloudlet_status(cloudlet).orphan_count:
            self._request_inventory(key)
        if spec.missing == "recreate":
            instances = list_all(reader, Selector(key.ns, parent=key.id, states=("Ready",)))
            self._add_missing(
                key, [local_name(instance.id) async for instance in instances if instance_status(instance).missing]
            )

    async def _disconnect_soon(self, key: Key) -> None:
        await asyncio.sleep(INVENTORY_DELAY_S)
        self._awaiting_inventory.discard(key)
        self.disconnect_site(key)

    async def send_due_order(self, key: Key, patience: float = math.inf) -> None:
        """Send the order due for an instance, unless it was sent less than `patience` seconds ago."""
        order = await self._orders.submit(key)
        if order is None:
            return
        for connection in self.connections.get(Key(key.ns, cloudlet_of(key.id)), ()):
            with suppress(Disconnected):
                await connection.send_order(order, patience)

    async def resend_order(self, connection: AgentConnection, key: Key) -> None:
        """Send an order again to an agent that was busy."""
        await asyncio.sleep(BUSY_RETRY_S)
        connection.sent_orders.pop(local_name(key.id), None)
        await self.send_due_order(key)

    async def _check(self, check: CloudletCheck, key: Key) -> None:
        """Run a check that a journal entry requires; it is repeated if it fails, because the entry isn't read again."""
        try:
            await check(key)
        except Exception:
            self._failed_checks.add((check, key))
            raise

    async def _check_cloudlet(self, key: Key) -> None:
        reader = self.engine.store.reader
        cloudlet = await reader.object(key)
        operation = await reader.operation(Key(key.ns, cloudlet.op)) if cloudlet is not None and cloudlet.op else None
        for connection in list(self.connections.get(key, ())):
            if cloudlet is None or cloudlet.removed:
                self.start_task(self.disconnect(connection, "the cloudlet was deleted"))
                continue
            slots = agent_slots(cloudlet, operation)
            is_unfit = read_spec(cloudlet, CloudletSpec).backend != connection.backend
            if is_unfit or must_disconnect(slots, connection.notify):
                self.start_task(self.disconnect(connection))
            elif is_upgrade_due(slots, connection.notify) and connection.is_synced:
                within = cloudlet_status(cloudlet).within
                await self._send_upgrade(connection, Upgrade(slots.target, slots.operation, slots.serving, within))

    async def _send_upgrade(self, connection: AgentConnection, upgrade: Upgrade) -> None:
        out = connection.sent_orders.get("")
        if out is None or out[0] < upgrade.operation:
            connection.sent_orders[""] = upgrade.operation, asyncio.get_running_loop().time()
            with suppress(Disconnected):
                await connection.send(upgrade)

    # --- missing instances -------------------------------------------------------------------------------------------

    def _add_missing(self, key: Key, names: Iterable[str]) -> None:
        """Note missing instances of a cloudlet, and start their re-creation."""
        missing = set(names)
        if missing:
            self._missing.setdefault(key, set()).update(missing)
            self.start_task(self._recreate_missing(key))

    async def _recreate_missing(self, key: Key) -> None:
        """Re-create missing instances, if the cloudlet's policy says so; clusters before their apps.

        A name is forgotten only after its verdict; after an error, the rest is tried again later. If the policy leaves
        them, all are forgotten: a change of the policy finds them again.
        """
        left = self._missing.pop(key, set())
        try:
            cloudlet = await self.engine.store.reader.object(key)
            if cloudlet is None or cloudlet.removed or read_spec(cloudlet, CloudletSpec).missing != "recreate":
                left.clear()
            for name in sorted(left):
                if await self._recreate_one(Key(key.ns, f"{key.id}:{name}")):
                    left.discard(name)
        finally:
            if left:
                self._missing.setdefault(key, set()).update(left)

    async def _recreate_one(self, key: Key) -> bool:
        """Re-create an instance that is still missing; returns whether nothing is left to do."""
        instance = await self.engine.store.reader.object(key)
        if instance is None or instance.removed or not instance_status(instance).missing:
            return True
        how = RequestOptions(
            actor=CONTROLLER, facts={MISSING}, also_locks=related_ids(instance), version=instance.version
        )
        try:
            await self.engine.act(instance.ns, instance.id, "re-create", **how)
        except VersionMismatch:
            return False
        except Denied as denied:
            return not (denied.retry or "not_ready" in denied.code)  # an app needs its cluster to be Ready first
        return True

    # --- timers ------------------------------------------------------------------------------------------------------

    async def resend(self) -> None:
        """Send unanswered orders again, and retry failed checks and re-creations."""
        failed, self._failed_checks = self._failed_checks, set()
        for check, key in failed:
            self.start_task(self._check(check, key))
        await self._resend_overdue_orders(asyncio.get_running_loop().time())
        for key in list(self._missing):
            self.start_task(self._recreate_missing(key))

    async def _resend_overdue_orders(self, now: float) -> None:
        """Send due orders that were not sent, or were not answered in time; the agent executes each once."""
        for ns in {key.ns for key in self.connections}:
            for kind in INSTANCE_LIFECYCLES:
                async for instance in list_all(self.engine.store.reader, Selector(ns, kind, states=ORDER_STATES)):
                    if self._is_order_overdue(instance, now):
                        self.start_task(self.send_due_order(instance.key, self.retry_s))

    def _is_order_overdue(self, instance: Object, now: float) -> bool:
        name = local_name(instance.id)
        connections = [
            connection
            for connection in self.connections.get(Key(instance.ns, cloudlet_of(instance.id)), ())
            if connection.is_synced
        ]
        is_late = any(
            name not in connection.sent_orders or now - connection.sent_orders[name][1] > self.retry_s
            for connection in connections
        )
        return is_late and _may_have_order(instance)


def _forget_deleted(connection: AgentConnection, report: AgentReport) -> None:
    """Forget the order for an instance that is deleted; that of a new one of its name may have been sent meanwhile."""
    number = connection.sent_orders.get(report.name, (math.inf,))[0]
    if report.event == ENDED[OrderAction.DELETE] and number <= report.operation:
        del connection.sent_orders[report.name]


def _may_have_order(instance: Object) -> bool:
    """Tell whether an order may be due for an instance; an error whose undos have failed rests."""
    record = instance_record(instance, None)
    return instance.op is not None or record.operation > 0 or needs_undo(record)


def _ended_without_agent(entry: JournalEntry) -> bool:
    """Tell whether an operation ended without the agent, by an administrator's override."""
    return entry.actor == CONTROLLER and entry.event in ENDED.values()
