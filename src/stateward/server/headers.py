"""Headers that every answer carries: what a browser may do with it, which by default is nothing."""

from collections.abc import Iterable

from litestar.types import BeforeMessageSendHookHandler, Message, Scope

NOTHING = "default-src 'none'; frame-ancestors 'none'"
"""The content policy of answers that are not pages."""

PAGE = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The content policy of our own pages: nothing from outside, and nothing inline."""

ALWAYS = {
    "content-security-policy": NOTHING,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
HSTS = {"strict-transport-security": "max-age=31536000"}

Raw = tuple[bytes, bytes]


def securing(*, tls: bool) -> BeforeMessageSendHookHandler:
    """Return a hook that adds the headers to every answer, unless the answer has said otherwise itself."""
    wanted = _raw({**ALWAYS, **(HSTS if tls else {})}.items())

    async def hook(message: Message, _: Scope) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = secured(message.get("headers", ()), wanted)

    return hook


def secured(given: Iterable[Raw], wanted: tuple[Raw, ...]) -> list[Raw]:
    """Return an answer's headers with those that are wanted and missing."""
    headers = list(given)
    present = {name.lower() for name, _ in headers}
    return [*headers, *(one for one in wanted if one[0] not in present)]


def _raw(headers: Iterable[tuple[str, str]]) -> tuple[Raw, ...]:
    return tuple((name.encode(), value.encode()) for name, value in headers)
