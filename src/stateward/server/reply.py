"""Answers as the hot routes give them: JSON, written at once.

The framework's own answer is for everybody: it merges headers, cookies and media types from several floors before it
writes, which takes it longer than the engine takes to read an object. Routes are described as if they gave that one.
"""

from typing import TypeVar

import msgspec
from litestar import Response
from litestar.types import Receive, Scope, Send

T = TypeVar("T")

_JSON = (b"content-type", b"application/json")
_encode = msgspec.json.Encoder().encode


class Reply(Response[T]):
    """An answer whose body is one value as JSON, or nothing."""

    def __init__(self, content: T | None, *, status: int = 200, headers: dict[str, str]) -> None:
        self.content = content  # type: ignore[assignment]
        self.status_code = status
        body = b"" if content is None else _encode(content)
        written = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        if content is not None:
            written += [_JSON, (b"content-length", b"%d" % len(body))]
        self._start = {"type": "http.response.start", "status": status, "headers": written}
        self._body = {"type": "http.response.body", "body": body, "more_body": False}

    def to_asgi_response(self, *_: object, **__: object) -> "Reply[T]":  # type: ignore[override]
        """Return what writes it: itself."""
        return self

    async def __call__(self, _: Scope, __: Receive, send: Send) -> None:
        """Write it."""
        await send(self._start)  # type: ignore[arg-type]
        await send(self._body)  # type: ignore[arg-type]
