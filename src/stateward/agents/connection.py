"""The controller's end of a connection to an agent: the inventory received, and the orders sent.

A connection is memory only. When it breaks, or the process dies, the next one starts with the agent's inventory again.
Absence of a thing is known only when the inventory is complete.
"""

import asyncio
import math
from collections.abc import Callable, Sized
from contextlib import suppress
from typing import Protocol, TypeAlias

import msgspec
from msgspec import Struct

from stateward.agents.measure_messages import Measures
from stateward.agents.messages import (
    AgentOrder,
    AgentReport,
    AnswerPiece,
    FromController,
    Goodbye,
    Heartbeat,
    Hello,
    InventoryEnd,
    InventoryItem,
    ProgressMessage,
    StatusMessage,
    Welcome,
    encode,
    read_agent,
)
from stateward.agents.node_messages import SecretRequest
from stateward.aio.token_bucket import TokenBucket
from stateward.store.records import Key

MESSAGES_PER_S, MESSAGE_BURST = 500.0, 20_000.0
"""Messages per second, and messages at once: more than a correct agent needs, even for a long inventory."""

REJECTION_COST = 100.0
"""The number of messages that a rejected one counts for, since it costs a journal entry."""

PROGRESS_COST = 10.0
"""The number of messages that a line of progress counts for in addition, since it is stored."""


class MessageRateLimit:
    """A limit on an agent's messages. An agent above it is read more slowly, which delays no other agent."""

    def __init__(self, clock: Callable[[], float], rate: float = MESSAGES_PER_S, burst: float = MESSAGE_BURST) -> None:
        self._clock, self._bucket = clock, TokenBucket(rate, burst, clock())

    def spend(self, messages: float = 1.0) -> float:
        """Count messages; returns the seconds to wait before the agent is read again."""
        now = self._clock()
        self._bucket.overdraw(now, messages)
        return self._bucket.delay_s(now, 0.0)


HELLO_TIMEOUT_S = 10.0
"""Seconds within which an agent must send its hello."""

SEND_TIMEOUT_S = 10.0
"""Seconds within which an agent must read a message."""

MAX_REASON_BYTES = 120
"""The bytes of a reason that fit into a WebSocket close frame."""

MAX_INVENTORY_ITEMS = 10_000
"""The size limit of an inventory."""

DECODE_ERRORS = msgspec.MsgspecError, RecursionError
"""Errors of decoding a message; JSON that is nested too deeply raises the second."""

NO_HELLO, UNREADABLE_MESSAGE, ENDLESS_INVENTORY, REPEATED_MESSAGE, NOT_READING, CONNECTION_LOST = (
    "the first message is not a hello",
    "the message cannot be read",
    "its list has no end",
    "it has said that before",
    "it does not read",
    "the connection is lost",
)
"""Reasons why an agent is disconnected."""

DIAL_AGAIN = "dial again"
"""The close reason for an agent that should reconnect."""

SUPERSEDED = "a newer connection serves this node, or its lease has ended"
"""The close reason for a connection that another one of the same site has replaced."""


class ControllerSocket(Protocol):
    """The server side of a WebSocket."""

    async def receive_text(self) -> str:
        """Return the agent's next message; raises when the connection is lost."""

    async def send_text(self, data: bytes) -> None:
        """Send a message."""

    async def close(self, code: int, reason: str) -> None:
        """Close the connection."""


class Disconnected(Exception):
    """The connection has ended, and why. No other exception of a connection leaves this module."""

    def __init__(self, reason: str, detail: object = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, str(detail)

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


OtherMessage: TypeAlias = AgentReport | ProgressMessage | InventoryItem | Measures | StatusMessage | SecretRequest


class ConnectionHandler(Protocol):
    """Handles the events of connections."""

    async def on_hello(self, connection: "AgentConnection", hello: Hello) -> Welcome | Goodbye:
        """Accept an agent, or refuse it."""

    async def on_inventory(self, connection: "AgentConnection") -> None:
        """Reconcile a complete inventory, and set `is_synced`: from then on orders may be sent."""

    async def on_heartbeat(self, connection: "AgentConnection") -> None:
        """Note a heartbeat before it is answered; raises `Disconnected` if it must not be."""

    async def on_message(self, connection: "AgentConnection", message: OtherMessage) -> None:
        """Process any other message."""

    def on_answer(self, connection: "AgentConnection", piece: AnswerPiece) -> None:
        """Pass on a piece of the answer to a request for logs or a command; nobody may wait for it any more."""

    async def on_failure(self, connection: "AgentConnection", why: Disconnected) -> None:
        """Note that the connection ends with an error, before it is closed."""

    async def on_closed(self, connection: "AgentConnection") -> None:
        """Note that a connection is closed; one that was never accepted has the notify id 0."""


class ConnectionId(Struct, frozen=True):
    """A connection to the agent of a site, which a newer one of the site has replaced if its notify id is higher."""

    site: Key
    notify: int


class AgentConnection:
    """One connection, to the agent of the site that `site_name` names.

    `sent_orders` has, by thing, the number and the time of the last order sent.
    """

    def __init__(
        self, socket: ControllerSocket, ns: str, site_name: str, clock: Callable[[], float], token: str = ""
    ) -> None:
        self._socket, self._clock = socket, clock
        self.ns, self.site_name, self.token = ns, site_name, token
        self.site = Key(ns, site_name)
        self.version, self.installation, self.notify = "", "", 0
        self.has_said_hello = False  # whether its hello was read
        self.answers = False  # whether the agent knows requests for logs and commands
        self.peer = ""  # the agent's address, empty if it is in this process
        self.is_private = False  # whether nobody on the network can read it
        self.backend = ""  # the site's, when the agent was accepted
        self.items: dict[str, InventoryItem] = {}  # bounded by: MAX_INVENTORY_ITEMS
        self.expected: int | None = None
        self.is_synced = False
        self._is_closed = False  # nothing can be sent any more, and `serve` is about to end
        # bounded by: the things of the site: the hubs remove those that are gone
        self.sent_orders: dict[str, tuple[int, float]] = {}
        self.last_message_at = clock()
        self.rate_limit = MessageRateLimit(clock)

    @property
    def id(self) -> ConnectionId:
        """The connection in the records."""
        return ConnectionId(self.site, self.notify)

    async def serve(self, handler: ConnectionHandler) -> None:
        """Serve an agent until its connection ends; raises `Disconnected` with the reason."""
        try:
            hello = await self._receive_hello()
            self.has_said_hello = True
            self.version, self.installation, self.answers = hello.version, hello.installation, hello.answers
            answer = await handler.on_hello(self, hello)
            await self.send(answer)
            if isinstance(answer, Goodbye):
                raise Disconnected(answer.reason)
            await self._receive_messages(handler)
        except Disconnected as gone:
            await handler.on_failure(self, gone)
            await self.close(str(gone))
            raise
        finally:
            await self.close(DIAL_AGAIN)
            await handler.on_closed(self)

    async def _receive_hello(self) -> Hello:
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                hello = read_agent(await self._receive())
        except (TimeoutError, *DECODE_ERRORS):
            hello = None
        if not isinstance(hello, Hello):
            raise Disconnected(NO_HELLO)
        return hello

    async def _receive(self) -> str:
        try:
            return await self._socket.receive_text()
        except Exception as error:  # each WebSocket server has exceptions of its own for a lost peer
            self._is_closed = True
            raise Disconnected(CONNECTION_LOST, type(error).__name__) from error

    async def _receive_messages(self, handler: ConnectionHandler) -> None:
        while True:
            try:
                message = read_agent(await self._receive())
            except DECODE_ERRORS as error:
                raise Disconnected(UNREADABLE_MESSAGE, error) from error
            self.last_message_at = self._clock()
            if delay_s := self.rate_limit.spend():
                await asyncio.sleep(delay_s)
            match message:
                case Heartbeat():
                    await handler.on_heartbeat(self)
                    await self.send(Heartbeat(self.notify, message.number))
                case InventoryItem() | InventoryEnd() if not self.is_synced:
                    await self._add_to_inventory(handler, message)
                case (
                    InventoryItem() | AgentReport() | ProgressMessage() | Measures() | StatusMessage() | SecretRequest()
                ):
                    await handler.on_message(self, message)
                case AnswerPiece():
                    handler.on_answer(self, message)
                case Hello() | InventoryEnd():
                    raise Disconnected(REPEATED_MESSAGE)

    async def _add_to_inventory(self, handler: ConnectionHandler, entry: InventoryItem | InventoryEnd) -> None:
        if not belongs_to_connection(self, entry):
            return
        if isinstance(entry, InventoryEnd):
            self.expected = entry.count
        else:
            self.items[entry.name] = entry
        if len(self.items) > MAX_INVENTORY_ITEMS:
            raise Disconnected(ENDLESS_INVENTORY)
        if is_inventory_complete(self):
            await handler.on_inventory(self)

    async def send(self, message: FromController) -> None:
        """Send a message; raises `Disconnected` if the agent does not read it, or is gone."""
        if self._is_closed:
            raise Disconnected(CONNECTION_LOST)
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self._socket.send_text(encode(message))
        except TimeoutError:
            await self.close(NOT_READING)
            raise Disconnected(NOT_READING) from None
        except Exception as error:
            self._is_closed = True
            raise Disconnected(CONNECTION_LOST, type(error).__name__) from error

    async def send_order(self, order: AgentOrder, patience: float = math.inf) -> None:
        """Send an order over a synced connection, unless it was sent less than `patience` seconds ago."""
        number, at = self.sent_orders.get(order.name, (0, 0.0))
        is_out = number >= order.operation and self._clock() - at <= patience
        if not self.is_synced or order.notify != self.notify or is_out:
            return
        self.sent_orders[order.name] = order.operation, self._clock()
        await self.send(order)

    async def close(self, reason: str) -> None:
        """Close the connection, if it is still open."""
        if self._is_closed:
            return
        self._is_closed = True
        with suppress(Exception):  # the peer may disconnect at the same moment
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self._socket.close(1008, reason.encode("ascii", "replace")[:MAX_REASON_BYTES].decode())


class ReceivedInventory(Protocol):
    """The part of an inventory that has arrived."""

    @property
    def notify(self) -> int:
        """The connection's notify id."""

    @property
    def items(self) -> Sized:
        """The items so far."""

    @property
    def expected(self) -> int | None:
        """The number of items in all; None until the end message has arrived."""


def belongs_to_connection(inventory: ReceivedInventory, message: InventoryItem | InventoryEnd) -> bool:
    """Tell whether an item or end message was sent for this connection."""
    return message.notify == inventory.notify


def is_inventory_complete(inventory: ReceivedInventory) -> bool:
    """Tell whether all items have arrived."""
    return len(inventory.items) == inventory.expected
