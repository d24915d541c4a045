"""The agent hub: this process's connections to agents, the messages on them, and the orders due.

Several controller processes may share one store, with a hub each. A hub learns from the journal what the others have
written, and the hub that has the connection sends the order. The hub's memory may be lost at any time: the store has
everything.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from random import Random

from msgspec.structs import replace

from stateward.access import Grant
from stateward.access.lifecycle import TOKEN, TokenState
from stateward.agents.agent_requests import AgentRequests
from stateward.agents.connection import (
    DIAL_AGAIN,
    ENDLESS_INVENTORY,
    NO_HELLO,
    REJECTION_COST,
    REPEATED_MESSAGE,
    UNREADABLE_MESSAGE,
    AgentConnection,
    Disconnected,
    OtherMessage,
)
from stateward.agents.measure_messages import Load, Measures
from stateward.agents.messages import (
    BUSY,
    ENDED,
    PROTOCOL,
    AgentReport,
    AnswerPiece,
    Goodbye,
    Hello,
    OrderAction,
    StatusMessage,
    Upgrade,
    Welcome,
)
from stateward.agents.node_messages import SecretRequest
from stateward.aio.supervise import cancel_tasks
from stateward.domains.edge.agents.agent_auth import WRONG_CLOUDLET
from stateward.domains.edge.agents.agent_reports import AgentMessage, journal_violation
from stateward.domains.edge.agents.connections import ConnectRequest, Disconnect
from stateward.domains.edge.agents.inventory_sync import Inventory, journal_orphan_removed
from stateward.domains.edge.agents.measures import STALE_LOAD, CloudletReport
from stateward.domains.edge.agents.report_batches import ReportBatcher
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
from stateward.domains.edge.records.agent_upgrade import is_upgrade_due, must_disconnect
from stateward.domains.edge.records.instance_record import needs_undo
from stateward.engine import Denied, Engine
from stateward.engine.errors import VersionMismatch
from stateward.engine.queries import list_all
from stateward.lifecycle import CONTROLLER
from stateward.store.errors import StoreError
from stateward.store.filters import Selector
from stateward.store.records import JournalEntry, Key, Object

log = logging.getLogger("stateward.edge")
audit = logging.getLogger("stateward.audit")

PROTOCOL_VIOLATIONS = frozenset({ENDLESS_INVENTORY, NO_HELLO, UNREADABLE_MESSAGE, REPEATED_MESSAGE})
"""Reasons for a disconnect that a correct agent never gives; they are counted and journaled."""

HEARTBEAT_INTERVAL_S = 10.0
"""Seconds between two heartbeats of an agent."""

MEASURE_INTERVAL_S = 10.0
"""Seconds between two measurements of an agent."""

MAX_MISSED_HEARTBEATS = 3
"""Missed heartbeats after which a connection is closed."""

ORDER_RETRY_S = 10.0
"""Seconds after which an unanswered order is sent again; the agent executes it once all the same."""

ORDER_STATES = tuple(f"{one}{what}" for one in ("Create", "Update", "Delete") for what in ("Requested", "Error"))
"""The states in which an order for the agent may be due."""

INVENTORY_DELAY_S = 0.5
"""Seconds to wait before an agent must send its inventory again, after records have changed without it."""

BUSY_RETRY_S = 0.5
"""Seconds to wait before an order is sent again to a busy agent."""

OnLoad = Callable[[str, str, Load], Coroutine[object, object, None]]
CloudletCheck = Callable[[Key], Awaitable[None]]


class AgentHub:
    """The connections to agents in this process; implements `ConnectionHandler`."""

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
        self.engine, self.controller = engine, controller
        self.heartbeat_s, self.retry_s, self.measure_s = heartbeat_s, retry_s, measure_s
        self.connections: dict[Key, list[AgentConnection]] = {}
        self.rejected: Counter[str] = Counter()  # bounded by: the reasons, which are fixed texts
        self._on_load = on_load
        self._missing: dict[Key, set[str]] = {}
        self._unrecorded: set[Disconnect] = set()  # lost connections that the store has not recorded yet
        self._awaiting_inventory: set[Key] = set()  # cloudlets whose agents must send a new inventory
        self._failed_checks: set[tuple[CloudletCheck, Key]] = set()  # checks of journal entries, to be repeated
        self._orphan_removals: set[tuple[Key, str, int]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.batcher = ReportBatcher(engine, chance, idle_s)
        self.requests = AgentRequests(AgentCannotAnswer)

    # --- agents.connection.ConnectionHandler -------------------------------------------------------------------------

    async def on_hello(self, connection: AgentConnection, hello: Hello) -> Welcome | Goodbye:
        """Accept an agent, or refuse it by its protocol version or by the state of its cloudlet."""
        if hello.protocol != PROTOCOL:
            return Goodbye(f"protocol {hello.protocol} is not spoken here, but {PROTOCOL}", final=True)
        key = Key(connection.ns, connection.site_name)
        request = ConnectRequest(*key, hello.version, hello.heir, self.controller, hello.installation, hello.things)
        request = replace(request, cores=hello.cores, memory=hello.memory, backends=hello.backends)
        result = await self.batcher.connect(request)
        if result.rejection:
            return Goodbye(result.rejection, final=hello.heir > 0, held=result.is_held)
        connection.notify, connection.backend = result.notify, result.backend
        self.connections.setdefault(key, []).append(connection)
        return Welcome(result.notify, result.role, self.heartbeat_s, self.measure_s, result.backend)

    async def on_inventory(self, connection: AgentConnection) -> None:
        """Reconcile a complete inventory, and send the orders due."""
        key, items = Key(connection.ns, connection.site_name), tuple(connection.items.values())
        inventory = Inventory(*key, connection.version, connection.notify, items, connection.installation)
        found = await self.batcher.sync_inventory(inventory)
        connection.items.clear()
        if found.rejection:
            await connection.send(Goodbye(found.rejection))
            raise Disconnected(found.rejection)
        connection.is_synced = True
        for name, operation in found.working:
            connection.sent_orders[name] = operation, asyncio.get_running_loop().time()
        for order in (*found.orphan_removals, *found.orders):
            await connection.send_order(order)
        self._orphan_removals.update((key, order.name, order.operation) for order in found.orphan_removals)
        await self._check_cloudlet(key)
        self._add_missing(key, found.missing)

    async def on_heartbeat(self, connection: AgentConnection) -> None:
        """Do nothing: the agents of cloudlets have no lease."""

    async def on_message(self, connection: AgentConnection, message: OtherMessage) -> None:
        """Process a message; rejected ones are counted."""
        key = Key(connection.ns, connection.site_name)
        if isinstance(message, StatusMessage | SecretRequest):
            self.rejected["statuses and secrets are for nodes"] += 1
            connection.rate_limit.spend(REJECTION_COST)
            return
        if isinstance(message, Measures):
            await self._handle_measures(connection, key, message)
            return
        if isinstance(message, AgentReport) and await self._handle_orphan_removal(connection, key, message):
            return
        result = await self.batcher.process_message(AgentMessage(*key, connection.version, message))
        if not result.is_accepted:
            self.rejected[result.reason] += 1
            connection.rate_limit.spend(REJECTION_COST)
        if result.order is not None:
            await connection.send_order(result.order)
        if result.is_accepted and isinstance(message, AgentReport):
            _forget_deleted(connection, message)
        if result.must_resend:
            self._start_task(
                self.resend_order(connection, Key(connection.ns, f"{connection.site_name}:{message.name}"))
            )
        if result.is_missing:
            self._add_missing(key, [message.name])

    async def _handle_measures(self, connection: AgentConnection, key: Key, measures: Measures) -> None:
        """Keep measures, and pass on the loads of clusters that scale; only what a correct agent never sends costs."""
        result = await self.batcher.store_measures(CloudletReport(*key, connection.version, measures))
        self.rejected.update(result.rejections)
        if any(one != STALE_LOAD for one in result.rejections):
            connection.rate_limit.spend(REJECTION_COST)
        for cluster, load in result.scaled:
            self._start_task(self._on_load(connection.ns, cluster, load))

    def on_answer(self, connection: AgentConnection, piece: AnswerPiece) -> None:
        """Give a piece of the answer to a request for logs or a command to its caller."""
        self.requests.on_answer(connection, piece)

    async def on_failure(self, connection: AgentConnection, why: Disconnected) -> None:
        """Count and journal a violation of the protocol."""
        if why.reason in PROTOCOL_VIOLATIONS:
            self.rejected[why.reason] += 1
            with suppress(StoreError):
                await self.engine.store.transact(
                    lambda tx: journal_violation(tx, connection.ns, connection.site_name, connection.version, str(why))
                )

    def refuse_token(self, grant: Grant, ns: str, cloudlet: str) -> None:
        """Count and audit a token of another cloudlet; nothing is written to the cloudlet's own journal."""
        self.rejected[WRONG_CLOUDLET] += 1
        audit.warning("refused: %s token=%s cloudlet=%s/%s", WRONG_CLOUDLET, grant.token, ns, cloudlet)

    async def on_closed(self, connection: AgentConnection) -> None:
        """Forget a closed connection, and record its loss."""
        self.requests.on_closed(connection)
        key = Key(connection.ns, connection.site_name)
        others = [one for one in self.connections.get(key, ()) if one is not connection]
        if others:
            self.connections[key] = others
        else:
            self.connections.pop(key, None)
        if connection.notify:
            await self.record_disconnects([Disconnect(connection.ns, connection.site_name, connection.notify)])

    async def record_disconnects(self, disconnects: Iterable[Disconnect]) -> None:
        """Record lost connections of this or another controller; retried later if the store is not available."""
        given = list(disconnects)
        outcomes = await asyncio.gather(*(self.batcher.disconnect(one) for one in given), return_exceptions=True)
        self._unrecorded.update(
            one for one, outcome in zip(given, outcomes, strict=True) if isinstance(outcome, StoreError)
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, StoreError):
                raise outcome

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

    def on_journal(self, entries: Iterable[JournalEntry]) -> None:
        """Act on journal entries of cloudlets whose agents are connected here: send orders, close connections."""
        instances: dict[Key, None] = {}
        cloudlets: dict[Key, None] = {}
        for entry in entries:
            key = Key(entry.ns, entry.object)
            if entry.kind == TOKEN.kind and entry.target != TokenState.ACTIVE:
                self._disconnect_token(entry.object.removeprefix("token-"))
            elif entry.kind == CLOUDLET.kind and key in self.connections:
                cloudlets[key] = None
                if entry.event == "change":
                    self._start_task(self._check(self._apply_changed_policies, key))
            elif entry.kind in INSTANCE_LIFECYCLES and _ended_without_agent(entry):
                self._request_inventory(Key(entry.ns, cloudlet_of(entry.object)))
            elif entry.kind in INSTANCE_LIFECYCLES and entry.target in ORDER_STATES:
                instances[key] = None
        for key in cloudlets:
            self._start_task(self._check(self._check_cloudlet, key))
        for key in instances:
            if Key(key.ns, cloudlet_of(key.id)) in self.connections:
                self._start_task(self.send_due_order(key))

    def _request_inventory(self, key: Key) -> None:
        """Make an agent reconnect soon and send its inventory, because records have changed without it."""
        if key in self.connections and key not in self._awaiting_inventory:
            self._awaiting_inventory.add(key)
            self._start_task(self._disconnect_soon(key))

    async def _apply_changed_policies(self, key: Key) -> None:
        """Re-create missing instances, and make an agent send its inventory, if the policies now say so."""
        reader = self.engine.store.reader
        found = await reader.object(key)
        if found is None or found.removed:
            return
        spec = read_spec(found, CloudletSpec)
        if spec.orphans == "remove" and cloudlet_status(found).orphan_count:
            self._request_inventory(key)
        if spec.missing == "recreate":
            instances = list_all(reader, Selector(key.ns, parent=key.id, states=("Ready",)))
            self._add_missing(key, [local_name(one.id) async for one in instances if instance_status(one).missing])

    async def _disconnect_soon(self, key: Key) -> None:
        await asyncio.sleep(INVENTORY_DELAY_S)
        self._awaiting_inventory.discard(key)
        await asyncio.gather(*(self._disconnect(connection, "") for connection in self.connections.get(key, ())))

    def _disconnect_token(self, token: str) -> None:
        """Close the connections of a token that is no longer valid."""
        for connection in self._all_connections():
            if connection.token == token:
                self._start_task(self._disconnect(connection, ""))

    async def send_due_order(self, key: Key, patience: float = math.inf) -> None:
        """Send the order due for an instance, unless it was sent less than `patience` seconds ago."""
        order = await self.batcher.due_order(key)
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
        found = await reader.object(key)
        operation = await reader.operation(Key(key.ns, found.op)) if found is not None and found.op else None
        for connection in list(self.connections.get(key, ())):
            if found is None or found.removed:
                self._start_task(self._disconnect(connection, "the cloudlet was deleted"))
                continue
            slots = agent_slots(found, operation)
            is_unfit = read_spec(found, CloudletSpec).backend != connection.backend
            if is_unfit or must_disconnect(slots, connection.notify):
                self._start_task(self._disconnect(connection, ""))
            elif is_upgrade_due(slots, connection.notify) and connection.is_synced:
                within = cloudlet_status(found).within
                await self._send_upgrade(connection, Upgrade(slots.target, slots.operation, slots.serving, within))

    async def _send_upgrade(self, connection: AgentConnection, upgrade: Upgrade) -> None:
        out = connection.sent_orders.get("")
        if out is None or out[0] < upgrade.operation:
            connection.sent_orders[""] = upgrade.operation, asyncio.get_running_loop().time()
            with suppress(Disconnected):
                await connection.send(upgrade)

    async def _disconnect(self, connection: AgentConnection, reason: str) -> None:
        with suppress(Disconnected):
            if reason:
                await connection.send(Goodbye(reason, final=True))
        await connection.close(reason or DIAL_AGAIN)

    # --- missing instances -------------------------------------------------------------------------------------------

    def _add_missing(self, key: Key, names: Iterable[str]) -> None:
        """Note missing instances of a cloudlet, and start their re-creation."""
        found = set(names)
        if found:
            self._missing.setdefault(key, set()).update(found)
            self._start_task(self._recreate_missing(key))

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
        found = await self.engine.store.reader.object(key)
        if found is None or found.removed or not instance_status(found).missing:
            return True
        how = {"actor": CONTROLLER, "facts": {MISSING}, "also_locks": related_ids(found), "version": found.version}
        try:
            await self.engine.act(found.ns, found.id, "re-create", **how)
        except VersionMismatch:
            return False
        except Denied as denied:
            return not (denied.retry or "not_ready" in denied.code)  # an app needs its cluster to be Ready first
        return True

    # --- timers ------------------------------------------------------------------------------------------------------

    async def watch_connections(self) -> None:
        """Close silent connections, resend unanswered orders, and retry failed checks and re-creations, in a loop.

        Each cloudlet has tasks of its own, so an agent that does not read delays its own orders only.
        """
        while True:
            await asyncio.sleep(min(self.heartbeat_s, self.retry_s) / 2)
            now = asyncio.get_running_loop().time()
            for connection in self._all_connections():
                if now - connection.last_message_at > MAX_MISSED_HEARTBEATS * self.heartbeat_s:
                    self._start_task(self._disconnect(connection, ""))
            if self._unrecorded:
                unrecorded, self._unrecorded = self._unrecorded, set()
                await self.record_disconnects(unrecorded)
            failed, self._failed_checks = self._failed_checks, set()
            for check, key in failed:
                self._start_task(self._check(check, key))
            await self._resend_overdue_orders(now)
            for key in list(self._missing):
                self._start_task(self._recreate_missing(key))

    async def _resend_overdue_orders(self, now: float) -> None:
        """Send due orders that were not sent, or were not answered in time; the agent executes each once."""
        for ns in {key.ns for key in self.connections}:
            for kind in INSTANCE_LIFECYCLES:
                async for found in list_all(self.engine.store.reader, Selector(ns, kind, states=ORDER_STATES)):
                    if self._is_order_overdue(found, now):
                        self._start_task(self.send_due_order(found.key, self.retry_s))

    def _is_order_overdue(self, found: Object, now: float) -> bool:
        name = local_name(found.id)
        connections = [one for one in self.connections.get(Key(found.ns, cloudlet_of(found.id)), ()) if one.is_synced]
        is_late = any(
            name not in one.sent_orders or now - one.sent_orders[name][1] > self.retry_s for one in connections
        )
        return is_late and _may_have_order(found)

    def serving_connection(self, key: Key) -> AgentConnection | None:
        """Return the newest connection of a cloudlet's agent in this process that has sent its inventory."""
        synced = [one for one in self.connections.get(key, ()) if one.is_synced]
        return max(synced, key=lambda one: one.notify, default=None)

    def _all_connections(self) -> list[AgentConnection]:
        return [connection for connections in self.connections.values() for connection in connections]

    def _start_task(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, StoreError | Disconnected):
            log.warning("edge agent hub task failed and is retried later: %s", error)
        elif error is not None:
            log.error("edge agent hub task failed unexpectedly and is retried later", exc_info=error)

    async def disconnect_all(self) -> None:
        """Close all connections; the agents reconnect to this or another controller, and send their inventories."""
        await asyncio.gather(*(self._disconnect(connection, "") for connection in self._all_connections()))

    async def close(self) -> None:
        """Close all connections, and end the tasks."""
        await self.disconnect_all()
        await cancel_tasks(self._tasks)
        await self.batcher.drain()


def _forget_deleted(connection: AgentConnection, report: AgentReport) -> None:
    """Forget the order for an instance that is deleted; that of a new one of its name may have been sent meanwhile."""
    number = connection.sent_orders.get(report.name, (math.inf,))[0]
    if report.event == ENDED[OrderAction.DELETE] and number <= report.operation:
        del connection.sent_orders[report.name]


def _may_have_order(found: Object) -> bool:
    """Tell whether an order may be due for an instance; an error whose undos have failed rests."""
    record = instance_record(found, None)
    return found.op is not None or record.operation > 0 or needs_undo(record)


def _ended_without_agent(entry: JournalEntry) -> bool:
    """Tell whether an operation ended without the agent, by an administrator's override."""
    return entry.actor == CONTROLLER and entry.event in ENDED.values()
