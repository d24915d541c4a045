"""How connections are kept: with limits on what they may send before they are known, and an end for those who hang.

A head (the request line and its headers) has a size and a time limit. A body has a time limit, which grows with what
has arrived: a client that sends a byte a minute would hold a connection and a handler for ever. A WebSocket whose
client does not read is cut soon after it was told to close: the closing frame stands behind what the client has not
read, and may stay there.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

MAX_HEAD_BYTES = 32 * 1024
"""How many bytes the head of a request may have."""

BODY_HEADERS = frozenset({b"content-length", b"transfer-encoding"})

HEAD_TIMEOUT_S = 30.0
"""How many seconds a client may take to send the head of its first request."""

ABORT_AFTER_S = 5.0
"""How many seconds a client has to read what is left when its WebSocket was closed."""

LINGER_S = 2.0
"""For how many seconds the bytes of a refused client are still read and dropped: a connection that is closed with bytes
unread is reset, and the reset may overtake the answer."""

TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


BODY_BYTES_PER_S = 16 * 1024
"""For how many bytes that have arrived a body gets one more second."""

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
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_TIMEOUT_S, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the limit."""
        self._on_time()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, unless the client was refused or a head has grown too large without an end."""
        if self._refused:
            return
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._head += len(data)
            if self._head > MAX_HEAD_BYTES:
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
        if self._head > MAX_HEAD_BYTES:
            raise HeadTooLarge
        super().on_headers_complete()
        if any(name in BODY_HEADERS for name, _ in self.headers):
            self._body, self._body_began = 0, self.loop.time()
            self._late = self.loop.call_later(self.body_time, self._check_body)

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over; what was to come within a time is no longer our business."""
        self._on_time()
        super().handle_websocket_upgrade()

    def on_body(self, body: bytes) -> None:
        """Count what has arrived."""
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a body."""
        self._on_time()
        super().on_message_complete()

    def _check_body(self) -> None:
        """Give a body the time that it has earned by what has arrived; one that is too slow is refused."""
        deadline = self._body_began + self.body_time + min(self._body, self.body_limit) / BODY_BYTES_PER_S
        if self.loop.time() < deadline or self.flow.read_paused:  # what we do not read is not late
            self._late = self.loop.call_at(max(deadline, self.loop.time() + 1.0), self._check_body)
            return
        self._late = None
        self._refuse(b"" if self.cycle.response_started else TOO_LATE)
        self.cycle.disconnected = True  # nobody waits for the rest of this body any more
        self.cycle.message_event.set()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be read, or is too large."""
        if self._head > MAX_HEAD_BYTES:
            self._refuse(TOO_LARGE)
        else:
            super().send_400_response(msg)

    def _refuse(self, answer: bytes) -> None:
        """Answer, and close the connection when the client has had the time to read the answer."""
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
    """Return the protocol with the limits of a configuration."""
    return type("LimitedHttp", (LimitedHttpProtocol,), {"body_time": body_time, "body_limit": body_limit})


class LimitedWebSocketProtocol(WebSocketsSansIOProtocol):
    """WebSockets that end when they are closed, whatever the client does."""

    async def send(self, message: Any) -> None:  # noqa: ANN401 - as ASGI has it
        """Send; what closes the connection does not wait for the client to read."""
        if message["type"] == "websocket.close":
            self.writable.set()
            self.loop.call_later(ABORT_AFTER_S, self._cut)
        await super().send(message)

    def keepalive_timeout(self) -> None:
        """Give up a client that does not answer."""
        super().keepalive_timeout()
        self.loop.call_later(ABORT_AFTER_S, self._cut)

    def shutdown(self) -> None:
        """Close because the server stops."""
        super().shutdown()
        self.loop.call_later(ABORT_AFTER_S, self._cut)

    def _cut(self) -> None:
        if not self.disconnected:
            self.transport.abort()
