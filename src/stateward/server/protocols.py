"""How connections are kept: with limits on what they may send before they are known, and an end for those who hang.

A head (the request line and its headers) has a size and a time limit. A WebSocket whose client does not read is cut
soon after it was told to close: the closing frame stands behind what the client has not read, and may stay there.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

HEAD_LIMIT = 32 * 1024
"""How many bytes the head of a request may have."""

HEAD_WITHIN = 30.0
"""How many seconds a client may take to send the head of its first request."""

CUT_AFTER = 5.0
"""How many seconds a client has to read what is left when its WebSocket was closed."""

TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class HeadTooLarge(Exception):
    """The head of a request is larger than the limit."""


class Http(HttpToolsProtocol):
    """HTTP with limits on the head."""

    _head = 0
    _in_head = True
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_WITHIN, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the limit."""
        self._on_time()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, unless a head has grown too large without an end."""
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._head += len(data)
            if self._head > HEAD_LIMIT:
                self.send_400_response("")

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._in_head, self._head = True, 0

    def on_headers_complete(self) -> None:
        """End a head; one that is too large is not even looked at."""
        self._in_head = False
        self._on_time()
        self._head = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if self._head > HEAD_LIMIT:
            raise HeadTooLarge
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be read, or is too large."""
        if self._head > HEAD_LIMIT:
            self.transport.write(TOO_LARGE)
            self.transport.close()
        else:
            super().send_400_response(msg)

    def _on_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class WebSockets(WebSocketsSansIOProtocol):
    """WebSockets that end when they are closed, whatever the client does."""

    async def send(self, message: Any) -> None:  # noqa: ANN401 - as ASGI has it
        """Send; what closes the connection does not wait for the client to read."""
        if message["type"] == "websocket.close":
            self.writable.set()
            self.loop.call_later(CUT_AFTER, self._cut)
        await super().send(message)

    def keepalive_timeout(self) -> None:
        """Give up a client that does not answer."""
        super().keepalive_timeout()
        self.loop.call_later(CUT_AFTER, self._cut)

    def shutdown(self) -> None:
        """Close because the server stops."""
        super().shutdown()
        self.loop.call_later(CUT_AFTER, self._cut)

    def _cut(self) -> None:
        if not self.disconnected:
            self.transport.abort()
