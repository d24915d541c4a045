"""Answers as the hot routes give them: JSON, written at once.

The framework's own answer is for everybody: it merges headers, cookies and media types from several floors before it
writes, which takes it longer than the engine takes to read an object. Routes are described as if they gave that one.
"""

from typing import TypeVar

import msgspec
from litestar import Response
from litestar.types import HTTPResponseStartEvent, Receive, Scope, Send

from stateward.server.etags import etag_of
from stateward.server.headers import Header, Headers

T = TypeVar("T")

REPLAYED = (b"idempotency-replayed", b"true")
"""Tells that the answer is to an earlier request with the same key."""

_JSON = (b"content-type", b"application/json")
_encode = msgspec.json.Encoder().encode


class Reply(Response[T]):
    """An answer whose body is one value as JSON, or nothing; it carries the version of the object that it is about."""

    def __init__(self, content: T | None, version: int, *headers: Header, status: int = 200) -> None:
        self.content = content  # type: ignore[assignment]
        self.status_code = self._status = status
        self._body = b"" if content is None else _encode(content)
        self._headers = [(b"etag", etag_of(version).encode()), *headers]
        if content is not None:
            self._headers += (_JSON, (b"content-length", b"%d" % len(self._body)))

    def carry(self, headers: Headers) -> None:
        """Carry further headers: those of every answer, none of which it has."""
        self._headers += headers

    def to_asgi_response(self, *_: object, **__: object) -> "Reply[T]":  # type: ignore[override]
        """Return what writes it: itself."""
        return self

    async def __call__(self, _: Scope, __: Receive, send: Send) -> None:
        """Write it."""
        start: HTTPResponseStartEvent = {
            "type": "http.response.start",
            "status": self._status,
            "headers": self._headers,
        }
        await send(start)
        await send({"type": "http.response.body", "body": self._body, "more_body": False})
