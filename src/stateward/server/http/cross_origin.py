"""Requests of pages from other origins (CORS): allowed for the exact origins of the setting `cors_origins` only.

A browser lets a page read a response of another origin only if the response names that origin. Cookies never count in
such a request (there is no `Access-Control-Allow-Credentials`): the page has to send a token itself.
"""

from collections.abc import Collection
from urllib.parse import urlsplit

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from stateward.errors import BadInput

METHODS = b"GET, POST, PUT, PATCH, DELETE, HEAD"
HEADERS = (
    b"Authorization, Content-Type, X-Request-Id, X-Credential-Holder, Idempotency-Key, If-Match, X-Stateward-Dry-Run"
)
EXPOSED = b"X-Request-Id, ETag, Location, Retry-After, Idempotency-Replayed"
MAX_AGE_S = b"600"


def read_origins(text: str) -> frozenset[str]:
    """Read exact origins such as `https://map.example:1324`; raises for anything else, also for `*`."""
    origins = [origin.strip() for origin in text.split(",") if origin.strip()]
    for origin in origins:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or not parts.netloc or origin != f"{parts.scheme}://{parts.netloc}":
            raise BadInput(
                "cors_origins", origin, "exact origins, as https://map.example:1324, with commas between them"
            )
    return frozenset(origins)


class CrossOrigin:
    """ASGI middleware around the application: answers preflights, and adds the headers for allowed origins."""

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self._app, self._origins = app, frozenset(origin.encode() for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        headers = dict(scope.get("headers", ()))
        origin = headers.get(b"origin")
        if scope["type"] != ScopeType.HTTP or origin not in self._origins:
            await self._app(scope, receive, send)
            return
        allowed = [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]
        if scope.get("method") == "OPTIONS" and b"access-control-request-method" in headers:
            await _answer_preflight(send, allowed)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                exposed = (b"access-control-expose-headers", EXPOSED)
                message["headers"] = [*message.get("headers", ()), *allowed, exposed]
            await send(message)

        await self._app(scope, receive, sent)


async def _answer_preflight(send: Send, allowed: list[tuple[bytes, bytes]]) -> None:
    headers = [
        *allowed,
        (b"access-control-allow-methods", METHODS),
        (b"access-control-allow-headers", HEADERS),
        (b"access-control-max-age", MAX_AGE_S),
        (b"content-length", b"0"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
