"""Security headers of every response; by default a browser may do nothing with it."""

from collections.abc import Iterable

NO_CONTENT_POLICY = "default-src 'none'; frame-ancestors 'none'"
"""The content policy of responses that are not pages."""

PAGE_CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The content policy of our own pages: nothing from outside, and nothing inline."""

ALWAYS = {
    "content-security-policy": NO_CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
HSTS = {"strict-transport-security": "max-age=31536000"}

Header = tuple[bytes, bytes]
Headers = tuple[Header, ...]


def default_headers(*, tls: bool) -> Headers:
    """Return the default headers; a response may override them."""
    wanted = {**ALWAYS, **(HSTS if tls else {})}
    return tuple((name.encode(), value.encode()) for name, value in wanted.items())


def with_defaults(given: Iterable[Header], wanted: Headers) -> list[Header]:
    """Return a response's headers, with the default headers that it lacks."""
    headers = list(given)
    present = {name.lower() for name, _ in headers}
    return [*headers, *(header for header in wanted if header[0] not in present)]
