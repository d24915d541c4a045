"""Limits of connections: the HTTP and WebSocket protocols of uvicorn, with limits on size and time.

The head of a request (request line and headers) has a size and a time limit. The body has a time limit that grows with
the bytes received: otherwise a client that sends a byte a minute could hold a connection and a handler for ever. A
WebSocket whose client does not read is aborted soon after its close: the close frame waits behind unread data.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

MAX_HEAD_BYTES = 32 * 1024
"""The largest head of a request."""

BODY_HEADERS = frozenset({b"content-length", b"transfer-encoding"})

HEAD_TIMEOUT_S = 30.0
"""How many seconds a client may take to send the head of its first request."""

ABORT_AFTER_S = 5.0
"""How many seconds a client has to read the remaining data after its WebSocket was closed."""

LINGER_S = 2.0
"""For how many seconds the server still reads and drops the data of a refused client.

The kernel resets a connection that is closed with unread data, and the reset may overtake the response.
"""

TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


BODY_BYTES_PER_S = 16 * 1024
"""How many received bytes give a body one more second."""

TOO_LATE_BODY = (
    b'{"type":"urn:stateward:too_slow","title":"Request Timeout","status":408,"code":"too_slow",'
    b'"detail":"the body took too long to arrive","retry":true}'
)
TOO_LATE = (
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: application/problem+json\r\n"
    b"content-length: %d\r\n\r\n%s"
) % (len(TOO_LATE_BODY), TOO_LATE_BODY)


class HeadTooLarge(Exception):
    """The head of a request is larger than the limit."""


class LimitedHttpProtocol(HttpToolsProtocol):
    """HTTP with limits on the head, and on the time that a body takes."""

    body_time = 30.0
    body_limit = 1_000_000

    _head = 0
    _in_head = True
    _late: asyncio.TimerHandle | None = None
    _body = 0
    _body_began = 0.0
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the first head."""
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_TIMEOUT_S, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the time limit."""
        self._on_time()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read data, unless the client was refused; refuse a head that is too large and has not ended."""
        if self._refused:
            return
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._head += len(data)
            if self._head > MAX_HEAD_BYTES:
                self.send_400_response("")

    def on_message_begin(self) -> None:
        """Start to count the size of a head."""
        super().on_message_begin()
        self._in_head, self._head = True, 0

    def on_headers_complete(self) -> None:
        """Check the size of a head, and start the time limit of its body."""
        self._in_head = False
        self._on_time()
        self._head = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if self._head > MAX_HEAD_BYTES:
            raise HeadTooLarge
        super().on_headers_complete()
        if any(name in BODY_HEADERS for name, _ in self.headers):
            self._body, self._body_began = 0, self.loop.time()
            self._late = self.loop.call_later(self.body_time, self._check_body)

    def handle_websocket_upgrade(self) -> None:
        """Cancel the time limit, and hand the connection over."""
        self._on_time()
        super().handle_websocket_upgrade()

    def on_body(self, body: bytes) -> None:
        """Count the received bytes."""
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Cancel the time limit of the body."""
        self._on_time()
        super().on_message_complete()

    def _check_body(self) -> None:
        """Extend the time limit by the bytes received, or refuse a body that is too slow."""
        deadline = self._body_began + self.body_time + min(self._body, self.body_limit) / BODY_BYTES_PER_S
        if self.loop.time() < deadline or self.flow.read_paused:  # while reading is paused, the client is not late
            self._late = self.loop.call_at(max(deadline, self.loop.time() + 1.0), self._check_body)
            return
        self._late = None
        self._refuse(b"" if self.cycle.response_started else TOO_LATE)
        self.cycle.disconnected = True  # so that the handler stops waiting for the body
        self.cycle.message_event.set()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that cannot be parsed, or whose head is too large."""
        if self._head > MAX_HEAD_BYTES:
            self._refuse(TOO_LARGE)
        else:
            super().send_400_response(msg)

    def _refuse(self, answer: bytes) -> None:
        """Send a response, and close the connection when the client has had time to read it."""
        self._refused, self._in_head = True, False
        self.transport.write(answer)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._on_time()
        self._late = self.loop.call_later(LINGER_S, self.transport.close)

    def _on_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def limited_http_protocol(body_time: float, body_limit: int) -> type[LimitedHttpProtocol]:
    """Return the HTTP protocol with configured limits."""
    return type("LimitedHttp", (LimitedHttpProtocol,), {"body_time": body_time, "body_limit": body_limit})


class LimitedWebSocketProtocol(WebSocketsSansIOProtocol):
    """The WebSocket protocol, which aborts a closed connection even if the client does not read."""

    async def send(self, message: Any) -> None:  # noqa: ANN401 - as ASGI has it
        """Send a message; a close does not wait for the client to read."""
        if message["type"] == "websocket.close":
            self.writable.set()
            self.loop.call_later(ABORT_AFTER_S, self._cut)
        await super().send(message)

    def keepalive_timeout(self) -> None:
        """Close the connection of a client that does not answer pings."""
        super().keepalive_timeout()
        self.loop.call_later(ABORT_AFTER_S, self._cut)

    def shutdown(self) -> None:
        """Close the connection because the server stops."""
        super().shutdown()
        self.loop.call_later(ABORT_AFTER_S, self._cut)

    def _cut(self) -> None:
        if not self.disconnected:
            self.transport.abort()
