"""The controller's end of a connection to an agent: what has been said over it, and what is out.

It is memory only. When the connection breaks, or this process dies, all of it is forgotten, and the next connection
begins with the agent's list again.
"""

import asyncio
import math
from collections.abc import Callable, Sized
from contextlib import suppress
from typing import Protocol

import msgspec

from stateward.agents.allowance import Allowance
from stateward.agents.messages import (
    AgentOrder,
    AgentReport,
    FromController,
    Goodbye,
    Heartbeat,
    Hello,
    InventoryEnd,
    InventoryItem,
    Load,
    ProgressMessage,
    Welcome,
    encode,
    read_agent,
)

HELLO_TIMEOUT_S = 10.0
"""How many seconds an agent may take for its first word."""

SEND_TIMEOUT_S = 10.0
"""How many seconds an agent may leave what it was sent unread."""

MAX_REASON_BYTES = 120
"""How many bytes of a reason fit into the frame that closes a connection."""

MAX_INVENTORY_ITEMS = 10_000
"""How many things an agent may list; who lists more than that does not end."""

DECODE_ERRORS = msgspec.MsgspecError, RecursionError
"""What reading a word raises that is none: what is nested too deeply is told by the second."""

NO_HELLO, UNREADABLE_MESSAGE, ENDLESS_INVENTORY, REPEATED_MESSAGE, NOT_READING, CONNECTION_LOST = (
    "its first word is no hello",
    "a word that cannot be read",
    "its list has no end",
    "it has said that before",
    "it does not read",
    "the connection is lost",
)
"""Why an agent is given up."""

DIAL_AGAIN = "dial again"
"""What an agent is told that is sent away for no fault of its own."""


class ControllerSocket(Protocol):
    """What is needed of a WebSocket."""

    async def receive_text(self) -> str:
        """Return what the agent says next; raises when it has gone."""

    async def send_text(self, data: bytes) -> None:
        """Send a message."""

    async def close(self, code: int, reason: str) -> None:
        """Close the connection."""


class Disconnected(Exception):
    """The connection is not to go on, and why. No other exception of a connection leaves this module."""

    def __init__(self, reason: str, detail: object = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, str(detail)

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class ConnectionHandler(Protocol):
    """Whoever agents are connected to."""

    async def on_hello(self, line: "AgentConnection", hello: Hello) -> Welcome | Goodbye:
        """Let an agent in, or not."""

    async def on_inventory(self, line: "AgentConnection") -> None:
        """Settle a list that is complete; from then on the line is `settled`, and orders may be sent over it."""

    async def on_message(
        self, line: "AgentConnection", message: AgentReport | ProgressMessage | InventoryItem | Load
    ) -> None:
        """Take any other word."""

    async def on_failure(self, line: "AgentConnection", why: Disconnected) -> None:
        """Take note that an agent is sent away for what it said."""

    async def on_closed(self, line: "AgentConnection") -> None:
        """Take note that a connection is gone; one that was never let in has the connection number 0."""


class AgentConnection:
    """One connection; `sent` are the orders that are out, by thing, with when they went."""

    def __init__(
        self, socket: ControllerSocket, ns: str, cloudlet: str, clock: Callable[[], float], token: str = ""
    ) -> None:
        self._socket, self._clock = socket, clock
        self.ns, self.cloudlet, self.token = ns, cloudlet, token
        self.version, self.installation, self.notify = "", "", 0
        self.items: dict[str, InventoryItem] = {}
        self.expected: int | None = None
        self.is_synced = False
        self._is_closed = False  # nothing can be sent any more; `serve` is about to end
        self.sent_orders: dict[str, tuple[int, float]] = {}
        self.last_message_at = clock()
        self.allowance = Allowance(clock)

    async def serve(self, handler: ConnectionHandler) -> None:
        """Serve an agent until its connection is lost, or it is sent away; raises the `Gone` that says why."""
        try:
            hello = await self._receive_hello()
            self.version, self.installation = hello.version, hello.installation
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
            if late := self.allowance.spend():
                await asyncio.sleep(late)
            match message:
                case Heartbeat():
                    await self.send(Heartbeat(self.notify))
                case InventoryItem() | InventoryEnd() if not self.is_synced:
                    await self._add_to_inventory(handler, message)
                case InventoryItem() | AgentReport() | ProgressMessage() | Load():
                    await handler.on_message(self, message)
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
        """Send a message; raises `Gone` if the agent does not read it. A lost connection is not tried again."""
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
        """Send an order over a settled connection, and again only when it went out more than so many seconds ago."""
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
        with suppress(Exception):  # the peer may be lost at the same moment
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self._socket.close(1008, reason.encode("ascii", "replace")[:MAX_REASON_BYTES].decode())


class ReceivedInventory(Protocol):
    """What has arrived so far over a connection."""

    @property
    def notify(self) -> int:
        """The connection's notify id."""

    @property
    def items(self) -> Sized:
        """The lines so far."""

    @property
    def expected(self) -> int | None:
        """How many there are to be; None while the end has not come."""


def belongs_to_connection(listing: ReceivedInventory, line: InventoryItem | InventoryEnd) -> bool:
    """Tell whether a line counts: a list is about the connection on which it was sent."""
    return line.notify == listing.notify


def is_inventory_complete(listing: ReceivedInventory) -> bool:
    """Tell whether the agent's list is complete."""
    return len(listing.items) == listing.expected
