"""In-process connections between agents and a controller, for the demo and tests."""

import asyncio
from contextlib import suppress

from stateward.agents.connection import AgentConnection, ConnectionHandler, Disconnected


class PipeClosed(ConnectionError):
    """The other end is closed."""


class Pipe:
    """One end of a connection in memory; closing one end closes the other."""

    def __init__(self) -> None:
        self._inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.other: Pipe = self

    def put(self, message: bytes | None) -> None:
        """Deliver a message; None closes this end."""
        self._inbox.put_nowait(message)

    async def take(self) -> bytes:
        """Return the next message."""
        message = await self._inbox.get()
        if message is None:
            self.put(None)
            raise PipeClosed("the other end is closed")
        return message

    def close_both(self) -> None:
        """End the connection."""
        self.put(None)
        self.other.put(None)


class AgentEnd(Pipe):
    """The agent's end."""

    async def send(self, message: bytes, *, text: bool | None = None) -> None:  # noqa: ARG002 - the signature of a WebSocket
        """Send a message."""
        self.other.put(message)

    async def recv(self) -> bytes:
        """Return the next message."""
        return await self.take()

    async def close(self) -> None:
        """End the connection."""
        self.close_both()


class ControllerEnd(Pipe):
    """The controller's end."""

    async def receive_text(self) -> str:
        """Return the next message."""
        return (await self.take()).decode()

    async def send_text(self, data: bytes) -> None:
        """Send a message."""
        self.other.put(data)

    async def close(self, code: int, reason: str) -> None:  # noqa: ARG002 - the signature of a WebSocket
        """End the connection."""
        self.close_both()


class InProcessDialer:
    """Connects an agent to a handler in this process; without a handler, `dial` raises."""

    def __init__(self, handler: ConnectionHandler | None, ns: str, site_name: str, retry_delay_s: float = 0.01) -> None:
        self.handler, self.ns, self.site_name = handler, ns, site_name
        self._retry_delay_s = retry_delay_s
        self._open: set[AgentEnd] = set()
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def retry_delay_s(self) -> float:
        """Seconds to wait before the next attempt."""
        return self._retry_delay_s

    async def dial(self) -> AgentEnd:
        """Connect to the handler."""
        if self.handler is None:
            raise PipeClosed("no controller is there")
        ours, theirs = AgentEnd(), ControllerEnd()
        ours.other, theirs.other = theirs, ours
        connection = AgentConnection(theirs, self.ns, self.site_name, asyncio.get_running_loop().time)
        task = asyncio.create_task(self._serve(connection, self.handler, theirs))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        self._open.add(ours)
        return ours

    async def _serve(self, connection: AgentConnection, handler: ConnectionHandler, end: ControllerEnd) -> None:
        with suppress(Disconnected):
            await connection.serve(handler)
        end.close_both()
        self._open.discard(end.other)

    def break_connections(self) -> None:
        """Break all connections."""
        for end in list(self._open):
            end.close_both()

    def reset_backoff(self) -> None:
        """Do nothing: the delay is constant."""
