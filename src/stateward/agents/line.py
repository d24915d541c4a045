"""The controller's end of a connection to an agent: what has been said over it, and what is out.

It is memory only. When the connection breaks, or this process dies, all of it is forgotten, and the next connection
begins with the agent's list again.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Protocol

import msgspec

from stateward.agents.allowance import Allowance
from stateward.agents.listing import all_listed, of_this_connection
from stateward.agents.messages import (
    Beat,
    End,
    FromController,
    Goodbye,
    Hello,
    Item,
    Load,
    Order,
    Progress,
    Report,
    Welcome,
    encode,
    read_agent,
)

HELLO_WITHIN = 10.0
"""How many seconds an agent may take for its first word."""

SEND_WITHIN = 10.0
"""How many seconds an agent may leave what it was sent unread."""


MOST_LISTED = 10_000
"""How many things an agent may list; who lists more than that does not end."""

UNREADABLE = msgspec.MsgspecError, RecursionError
"""What reading a word raises that is none: what is nested too deeply is told by the second."""

NO_HELLO, NO_WORD, NO_END, TWICE, NO_READER = (
    "its first word is no hello",
    "a word that cannot be read",
    "its list has no end",
    "it has said that before",
    "it does not read",
)
"""Why an agent is given up."""


class Socket(Protocol):
    """What is needed of a WebSocket."""

    async def receive_text(self) -> str:
        """Return what the agent says next; raises when it has gone."""

    async def send_text(self, data: bytes) -> None:
        """Send a message."""

    async def close(self, code: int, reason: str) -> None:
        """Close the connection."""


class Gone(Exception):
    """The connection is not to go on, and why."""

    def __init__(self, reason: str, detail: object = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, str(detail)

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class Host(Protocol):
    """Whoever agents are connected to."""

    async def greet(self, line: "Line", hello: Hello) -> Welcome | Goodbye:
        """Let an agent in, or not."""

    async def listed(self, line: "Line") -> None:
        """Settle a list that is complete; from then on the line is `settled`, and orders may be sent over it."""

    async def heard(self, line: "Line", word: Report | Progress | Item | Load) -> None:
        """Take any other word."""

    async def gave_up(self, line: "Line", why: Gone) -> None:
        """Take note that an agent is sent away for what it said."""

    async def left(self, line: "Line") -> None:
        """Take note that a connection is gone."""


class Line:
    """One connection; `sent` are the orders that are out, by thing, with when they went."""

    def __init__(self, socket: Socket, ns: str, cloudlet: str, clock: Callable[[], float], token: str = "") -> None:
        self._socket, self._clock = socket, clock
        self.ns, self.cloudlet, self.token = ns, cloudlet, token
        self.version, self.connection = "", 0
        self.items: dict[str, Item] = {}
        self.expected: int | None = None
        self.settled = False
        self.sent: dict[str, tuple[int, float]] = {}
        self.heard_at = clock()
        self.allowance = Allowance(clock)

    async def serve(self, host: Host) -> None:
        """Serve an agent until it has gone, or is sent away."""
        try:
            async with asyncio.timeout(HELLO_WITHIN):
                hello = read_agent(await self._socket.receive_text())
        except (TimeoutError, *UNREADABLE):
            hello = None
        if not isinstance(hello, Hello):
            await host.gave_up(self, Gone(NO_HELLO))
            raise Gone(NO_HELLO)
        self.version = hello.version
        answer = await host.greet(self, hello)
        await self.say(answer)
        if isinstance(answer, Goodbye):
            raise Gone(answer.reason)
        try:
            await self._listen(host)
        except Gone as gone:
            await host.gave_up(self, gone)
            raise
        finally:
            await host.left(self)

    async def _listen(self, host: Host) -> None:
        while True:
            try:
                word = read_agent(await self._socket.receive_text())
            except UNREADABLE as error:
                raise Gone(NO_WORD, error) from error
            self.heard_at = self._clock()
            if late := self.allowance.spend():
                await asyncio.sleep(late)
            match word:
                case Beat():
                    await self.say(Beat(self.connection))
                case Item() | End() if not self.settled:
                    await self._note(host, word)
                case Item() | Report() | Progress() | Load():
                    await host.heard(self, word)
                case Hello() | End():
                    raise Gone(TWICE)

    async def _note(self, host: Host, line: Item | End) -> None:
        if not of_this_connection(self, line):
            return
        if isinstance(line, End):
            self.expected = line.count
        else:
            self.items[line.name] = line
        if len(self.items) > MOST_LISTED:
            raise Gone(NO_END)
        if all_listed(self):
            await host.listed(self)

    async def say(self, word: FromController) -> None:
        """Say something to the agent; one that does not read is given up."""
        try:
            async with asyncio.timeout(SEND_WITHIN):
                await self._socket.send_text(encode(word))
        except TimeoutError:
            raise Gone(NO_READER) from None

    async def order(self, order: Order, patience: float = math.inf) -> None:
        """Send an order over a settled connection, and again only when it went out more than so many seconds ago."""
        number, at = self.sent.get(order.name, (0, 0.0))
        is_out = number >= order.operation and self._clock() - at <= patience
        if not self.settled or order.notify != self.connection or is_out:
            return
        self.sent[order.name] = order.operation, self._clock()
        await self.say(order)

    async def hang_up(self, reason: str) -> None:
        """Close the connection."""
        await self._socket.close(1008, reason[:120])
