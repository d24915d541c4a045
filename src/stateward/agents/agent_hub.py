"""The hub of a domain's agents in this process: their connections, the messages on them, and the orders due to them.

Several processes may share one store, with a hub each. The hub that has an agent's connection sends its orders; it
learns from the journal what other processes have written. A hub's memory can be lost at any time, because the store has
everything. A domain adapts the hub to its records: it says who may connect, what an inventory means, and which orders
are due.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from random import Random
from typing import Any, ClassVar, TypeVar

from msgspec import Struct

from stateward.access import Grant
from stateward.access.lifecycle import TOKEN, TokenState
from stateward.agents.agent_requests import AgentRequests
from stateward.agents.connection import (
    DIAL_AGAIN,
    ENDLESS_INVENTORY,
    NO_HELLO,
    REJECTION_COST,
    REPEATED_MESSAGE,
    SUPERSEDED,
    UNREADABLE_MESSAGE,
    AgentConnection,
    ConnectionId,
    Disconnected,
    OtherMessage,
)
from stateward.agents.messages import PROTOCOL, AgentOrder, AnswerPiece, Goodbye, Hello, InventoryItem, Welcome
from stateward.aio.supervise import background, cancel_tasks, supervise
from stateward.engine import Engine
from stateward.engine.maintenance.horizon import EntriesPruned
from stateward.engine.queries import watch_pages
from stateward.engine.transaction_batcher import TransactionBatcher, transaction_batcher
from stateward.store.errors import StoreError
from stateward.store.port import Tx
from stateward.store.records import JournalEntry, Key

log = logging.getLogger("stateward.agents")
audit = logging.getLogger("stateward.audit")

PROTOCOL_VIOLATIONS = frozenset({ENDLESS_INVENTORY, NO_HELLO, UNREADABLE_MESSAGE, REPEATED_MESSAGE})
"""Reasons for a disconnect that a correct agent never gives; they are counted."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")
OnPage = Callable[[Sequence[JournalEntry]], Awaitable[None]]
SILENCE_CHECKS = 5
"""How often a hub checks for silent connections within the time that they may be silent."""


class SyncResult(Struct, frozen=True):
    """What a complete inventory means: the orders due, and by name the operations that the agent works at already.

    `rejection` is the reason why the inventory did not count.
    """

    rejection: str = ""
    orders: tuple[AgentOrder, ...] = ()
    working: tuple[tuple[str, int], ...] = ()


class AgentHub(ABC):
    """The connections to the agents of a domain in this process; implements `ConnectionHandler`."""

    site_noun: ClassVar = "site"
    """What an agent serves, in logs."""

    wrong_site: ClassVar = "the token does not name this site"
    """Why a token is refused, in logs."""

    unlogged: ClassVar[frozenset[str]] = frozenset()
    """Reasons for a disconnect that the domain logs itself."""

    def __init__(
        self,
        engine: Engine,
        refusal: Callable[[str, str], Exception],
        chance: Random,
        *,
        silent_s: float,
        resend_s: float,
    ) -> None:
        self.engine, self._chance, self.silent_s, self.resend_s = engine, chance, silent_s, resend_s
        self.connections: dict[Key, list[AgentConnection]] = {}
        self.rejected: Counter[str] = Counter()  # bounded by: the reasons, which are fixed texts
        self.requests = AgentRequests(refusal)
        self._unrecorded: set[ConnectionId] = set()  # lost connections that the store has not recorded yet
        self._tasks: set[asyncio.Task[None]] = set()
        self._batchers: list[TransactionBatcher[Any, Any]] = []  # bounded by: those of a domain

    # --- what a domain decides ---------------------------------------------------------------------------------------

    @abstractmethod
    async def accept(self, connection: AgentConnection, hello: Hello) -> Welcome | Goodbye:
        """Give an agent a notify id above all that were issued for its site, or refuse it."""

    @abstractmethod
    async def sync(self, connection: AgentConnection, items: Sequence[InventoryItem]) -> SyncResult:
        """Reconcile a complete inventory with the records."""

    async def on_synced(self, connection: AgentConnection) -> None:  # noqa: B027 - optional
        """Do what can be done only now that orders may be sent; `connection.items` still has the inventory."""

    async def renew_lease(self, connection: AgentConnection) -> bool:  # noqa: ARG002 - for domains with leases
        """Store a heartbeat before it is answered; returns whether the agent may continue."""
        return True

    @abstractmethod
    async def on_message(self, connection: AgentConnection, message: OtherMessage) -> None:
        """Process a report, or any other message about what the agent runs."""

    @abstractmethod
    async def record_disconnect(self, lost: ConnectionId) -> None:
        """Record a lost connection, unless the site has a newer one."""

    async def record_violation(self, connection: AgentConnection, why: str) -> None:  # noqa: B027 - optional
        """Record that an agent has violated the protocol."""

    @abstractmethod
    def on_entries(self, entries: Sequence[JournalEntry]) -> None:
        """Act on journal entries: send the orders that other processes have stored."""

    @abstractmethod
    async def resend(self) -> None:
        """Send unanswered orders again; the agent executes each one once."""

    # --- agents.connection.ConnectionHandler -------------------------------------------------------------------------

    async def on_hello(self, connection: AgentConnection, hello: Hello) -> Welcome | Goodbye:
        """Accept an agent, or refuse it by its protocol version or by the records."""
        if hello.protocol != PROTOCOL:
            return Goodbye(f"protocol {hello.protocol} is not spoken here, but {PROTOCOL}", final=True)
        answer = await self.accept(connection, hello)
        if isinstance(answer, Welcome):
            connection.notify, connection.backend = answer.notify, answer.backend
            self.connections.setdefault(connection.site, []).append(connection)
        return answer

    async def on_inventory(self, connection: AgentConnection) -> None:
        """Reconcile a complete inventory, and send the orders due."""
        answer = await self.sync(connection, tuple(connection.items.values()))
        if answer.rejection:
            await connection.send(Goodbye(answer.rejection))
            raise Disconnected(answer.rejection)
        connection.is_synced = True
        for name, operation in answer.working:
            connection.sent_orders[name] = operation, asyncio.get_running_loop().time()
        for order in answer.orders:
            await connection.send_order(order)
        await self.on_synced(connection)
        connection.items.clear()

    async def on_heartbeat(self, connection: AgentConnection) -> None:
        """Renew the lease of an agent, if it has one; if that fails, the agent must connect again."""
        if not await self.renew_lease(connection):
            raise Disconnected(SUPERSEDED)

    def on_answer(self, connection: AgentConnection, piece: AnswerPiece) -> None:
        """Give a piece of the answer to a request to its caller."""
        self.requests.on_answer(connection, piece)

    async def on_failure(self, connection: AgentConnection, why: Disconnected) -> None:
        """Log an agent's connection that ends with an error; count and record a violation of the protocol."""
        if connection.has_said_hello and why.reason not in self.unlogged:
            name = f"{connection.ns}/{connection.site_name}"
            log.info("agent of %s %s is disconnected: %s", self.site_noun, name, why)
        if why.reason in PROTOCOL_VIOLATIONS:
            self.rejected[why.reason] += 1
            with suppress(StoreError):
                await self.record_violation(connection, str(why))

    async def on_closed(self, connection: AgentConnection) -> None:
        """Forget a closed connection, and record its loss."""
        self.requests.on_closed(connection)
        others = [other for other in self.connections.get(connection.site, ()) if other is not connection]
        if others:
            self.connections[connection.site] = others
        else:
            self.connections.pop(connection.site, None)
        if connection.notify:
            await self.record_disconnects([connection.id])

    # --- connections -------------------------------------------------------------------------------------------------

    def serving_connection(self, site: Key) -> AgentConnection | None:
        """Return the newest connection of a site in this process that has sent its inventory."""
        synced = [connection for connection in self.connections.get(site, ()) if connection.is_synced]
        return max(synced, key=lambda connection: connection.notify, default=None)

    def supersede(self, site: Key) -> None:
        """Close the connections of a site, because a newer one takes over."""
        for connection in self.connections.pop(site, ()):
            self.start_task(connection.close(SUPERSEDED))

    async def disconnect(self, connection: AgentConnection, reason: str = "") -> None:
        """Close a connection; without a reason, the agent connects again."""
        with suppress(Disconnected):
            if reason:
                await connection.send(Goodbye(reason, final=True))
        await connection.close(reason or DIAL_AGAIN)

    def disconnect_site(self, site: Key) -> None:
        """Close the connections of a site; its agent connects again."""
        for connection in self.connections.get(site, ()):
            self.start_task(self.disconnect(connection))

    async def disconnect_all(self) -> None:
        """Close all connections; the agents reconnect to this or another controller, and send their inventories."""
        await asyncio.gather(*(self.disconnect(connection) for connection in self._all_connections()))

    async def record_disconnects(self, lost: Iterable[ConnectionId]) -> None:
        """Record lost connections of this or another controller; retried later if the store is not available."""
        given = list(lost)
        outcomes = await asyncio.gather(
            *(self.record_disconnect(connection_id) for connection_id in given), return_exceptions=True
        )
        for connection_id, outcome in zip(given, outcomes, strict=True):
            if isinstance(outcome, StoreError):
                self._unrecorded.add(connection_id)
            elif isinstance(outcome, BaseException):
                raise outcome

    def refuse_token(self, grant: Grant, site: Key) -> None:
        """Count and audit a token that does not name a site; nothing is written to the site's own journal."""
        self.rejected[self.wrong_site] += 1
        where = f"{self.site_noun}={site.ns}/{site.id}"
        audit.warning("refused: %s token=%s %s", self.wrong_site, grant.token, where)

    def reject(self, connection: AgentConnection, reason: str) -> None:
        """Count a message that a correct agent does not send; many of them slow its connection down."""
        self.rejected[reason] += 1
        connection.rate_limit.spend(REJECTION_COST)

    def _all_connections(self) -> list[AgentConnection]:
        return [connection for connections in self.connections.values() for connection in connections]

    # --- journal, timers and tasks -----------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self, after: int | None = None, on_page: OnPage | None = None) -> AsyncIterator[None]:
        """Serve agents while the body runs: follow the journal, resend orders, and close silent connections.

        `on_page` gets each page of the journal that follows the entry `after` and passes it to `on_journal`; by
        default, the hub itself follows the journal from now on.
        """
        self._last_seq = await self.engine.store.reader.last_journal_seq() if after is None else after
        loops = partial(self._follow_journal, on_page), self.resend_orders, self.close_silent
        name = f"hub of {self.site_noun} agents"
        try:
            async with background(*(supervise(name, loop, log, transient=StoreError) for loop in loops)):
                yield
        finally:
            await self.close()

    async def _follow_journal(self, on_page: OnPage | None) -> None:
        try:
            async with aclosing(watch_pages(self.engine.store, self._last_seq)) as pages:
                async for page in pages:
                    if on_page is None:
                        self.on_journal(page)
                    else:
                        await on_page(page)
                    self._last_seq = page[-1].seq
        except EntriesPruned as pruned:
            self._last_seq = pruned.horizon
            await self.disconnect_all()  # the inventories of agents that reconnect make up for them

    def on_journal(self, entries: Sequence[JournalEntry]) -> None:
        """Act on new journal entries; the connections of tokens that are no longer valid are closed."""
        for entry in entries:
            if entry.kind == TOKEN.kind and entry.target != TokenState.ACTIVE:
                for connection in self._all_connections():
                    if connection.token == entry.object.removeprefix("token-"):
                        self.start_task(self.disconnect(connection))
        self.on_entries(entries)

    async def close_silent(self) -> None:
        """Close connections whose agents are silent for too long, in a loop."""
        while True:
            await asyncio.sleep(self.silent_s / SILENCE_CHECKS)
            now = asyncio.get_running_loop().time()
            for connection in self._all_connections():
                if now - connection.last_message_at > self.silent_s:
                    self.start_task(self.disconnect(connection))

    async def resend_orders(self) -> None:
        """Repeat what has failed and send unanswered orders again, in a loop."""
        while True:
            await asyncio.sleep(self.resend_s)
            unrecorded, self._unrecorded = self._unrecorded, set()
            await self.record_disconnects(unrecorded)
            await self.resend()

    def start_task(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Start work that ends with the hub; an agent that does not read delays its own work only."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, StoreError | Disconnected):
            log.warning("agent hub task failed and is retried later: %s", error)
        elif error is not None:
            log.error("agent hub task failed unexpectedly and is retried later", exc_info=error)

    def batcher(
        self, run: Callable[[Tx, Sequence[Item]], Awaitable[list[Answer]]], max_size: int = 500
    ) -> TransactionBatcher[Item, Answer]:
        """Return a batcher that runs each batch in a transaction; the end of the hub waits for it."""
        made = transaction_batcher(self.engine.store, self._chance, run, max_size)
        self._batchers.append(made)
        return made

    async def close(self) -> None:
        """Close all connections, and end the tasks."""
        await self.disconnect_all()
        await cancel_tasks(self._tasks)
        for batcher in self._batchers:
            await batcher.drain()
