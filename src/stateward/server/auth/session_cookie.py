"""The cookie of a browser's session, and the check that a request with it comes from our own page.

A browser sends the cookie by itself, whichever page makes the request. `SameSite=Strict` keeps it from other sites, but
another port of the same host, or a sibling domain, is the same site. A request that changes something therefore needs a
header that only our own script can set, and every request must be of the same origin: the browser says so in
`Sec-Fetch-Site`, which no page can forge, or, over plain HTTP, in `Origin`. What a request may change is known from its
method and from the right of its route; Tumblebug's API acts on GET, too.
"""

from collections.abc import Iterator

from litestar.types import Scope

from stateward.access import Right
from stateward.access.sessions import PREFIX
from stateward.server.auth.credentials import MAX_TOKEN_LENGTH
from stateward.server.errors import Forbidden

COOKIE = "stateward-session"
SECURE_PREFIX = "__Host-"
"""Browsers accept a cookie of this prefix only over TLS, and from this very host."""

OWN_HEADER = b"x-stateward-request"
"""The header of the console's own requests; a page of another origin may not set it."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
TYPED_ADDRESS = ((None, None), (b"none", None))
"""`Sec-Fetch-Site` and `Origin` of a request that no page has made."""

FLAGS = "Path=/; HttpOnly; SameSite=Strict"


def session_text(scope: Scope) -> str | None:
    """Return the text of the session that a request presents, or None if it presents none.

    Over TLS only a cookie that this very host has set counts, so that a sibling domain cannot plant one.
    """
    cookies = dict(_cookies(scope))
    plain = None if _is_tls(scope) else cookies.get(cookie_name(scope, secure=False))
    text = cookies.get(cookie_name(scope, secure=True), plain)
    return text if text is not None and text.startswith(f"{PREFIX}_") and len(text) <= MAX_TOKEN_LENGTH else None


def set_cookie(scope: Scope, text: str, seconds: int) -> str:
    """Return the header that gives a browser its session; of 0 seconds, that takes it away."""
    origin = _header(scope, b"origin") or b""
    secure = _is_tls(scope) or origin.startswith(b"https://")  # a proxy may have ended TLS
    return f"{cookie_name(scope, secure=secure)}={text}; Max-Age={seconds}; {FLAGS}{'; Secure' if secure else ''}"


def cookie_name(scope: Scope, *, secure: bool) -> str:
    """Return the name of the cookie; it has the port, because servers on other ports of a host share its cookies."""
    port = (_header(scope, b"host") or b"").rpartition(b":")[2].decode("latin-1")
    name = f"{COOKIE}-{port}" if port.isdecimal() else COOKIE
    return f"{SECURE_PREFIX}{name}" if secure else name


def require_own_page(scope: Scope, right: Right) -> None:
    """Raise if a request with the cookie comes from another page than ours, or changes something without our header."""
    site, origin = _header(scope, b"sec-fetch-site"), _header(scope, b"origin")
    method = scope.get("method")  # a WebSocket has none, and its script can set no header
    only_reads = method in SAFE_METHODS and right is Right.READ
    if site == b"same-origin" or (site is None and _is_host(scope, origin)):
        if method is not None and not only_reads and _header(scope, OWN_HEADER) != b"1":
            raise Forbidden(right, why="a request with a session that changes something needs X-Stateward-Request: 1")
    elif not only_reads or (site, origin) not in TYPED_ADDRESS:
        raise Forbidden(
            right, why="a session is for the console's own page, and this request comes from another origin"
        )


def _is_host(scope: Scope, origin: bytes | None) -> bool:
    host = _header(scope, b"host")
    return origin is not None and host is not None and origin.partition(b"://")[2].lower() == host.lower()


def _is_tls(scope: Scope) -> bool:
    return scope["scheme"] in ("https", "wss")


def _header(scope: Scope, wanted: bytes) -> bytes | None:
    return next((value for name, value in scope["headers"] if name == wanted), None)


def _cookies(scope: Scope) -> Iterator[tuple[str, str]]:
    for header, value in scope["headers"]:
        if header == b"cookie":
            for pair in value.decode("latin-1").split(";"):
                name, _, text = pair.strip().partition("=")
                yield name, text
