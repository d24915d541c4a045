"""Headers that every answer carries: what a browser may do with it, which by default is nothing."""

from collections.abc import Iterable

NO_CONTENT_POLICY = "default-src 'none'; frame-ancestors 'none'"
"""The content policy of answers that are not pages."""

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
    """Return the headers that every answer is to carry, unless it says otherwise itself."""
    wanted = {**ALWAYS, **(HSTS if tls else {})}
    return tuple((name.encode(), value.encode()) for name, value in wanted.items())


def with_defaults(given: Iterable[Header], wanted: Headers) -> list[Header]:
    """Return an answer's headers with those that are wanted and missing."""
    headers = list(given)
    present = {name.lower() for name, _ in headers}
    return [*headers, *(one for one in wanted if one[0] not in present)]
