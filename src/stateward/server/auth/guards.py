"""Guards: every route declares the right that it needs, and an application with a route that does not is not created.

A route declares `guards=[requires(Right.READ)]`. If its path names a namespace, the token must be for that namespace.
Otherwise the token may be for any namespace, and the handler shows only the token's namespaces. A route that concerns
the whole deployment needs a token for all namespaces: `requires_everywhere`, or `Right.GOVERN`. A route without
authentication declares `open_to_all`, with the reason. Routes of domains declare the same by options
(`plugin.route_options`), where `Right.GOVERN` is for administrators of the namespace unless it says `everywhere`.

A caller presents a token, or the cookie of a session (`session_cookie`); a token counts first.
"""

from collections.abc import Awaitable

from litestar.connection import ASGIConnection
from litestar.enums import ScopeType
from litestar.exceptions import WebSocketException
from litestar.handlers import BaseRouteHandler
from litestar.types import Scope

from stateward.access import Grant, Right
from stateward.access.roles import RIGHTS
from stateward.access.tokens import ANY
from stateward.server.auth.authenticator import Authenticator
from stateward.server.auth.credentials import presented_token, token_text
from stateward.server.auth.session_cookie import require_own_page, session_text
from stateward.server.errors import Forbidden, NotAuthenticated, PriorityForbidden, TooMany
from stateward.server.service import AnyConnection, service_of

HTTP_STATUSES = {NotAuthenticated: 401, Forbidden: 403, TooMany: 429}
"""The HTTP status of each error; a WebSocket is closed with 4000 plus the status."""


class OpenRoute:
    """The guard of a route without authentication."""

    def __init__(self, why: str) -> None:
        self.why = why

    async def __call__(self, connection: AnyConnection, _: BaseRouteHandler) -> None:
        """Allow every request."""


class RequiresRight:
    """The guard of a route that needs a right: in the path's namespace, if it names one, or in all of them.

    The namespace `shared` is open to who has the right in any.
    """

    def __init__(self, right: Right, *, everywhere: bool, shared: str | None = None) -> None:
        self.right = right
        self.everywhere = everywhere
        self.shared = shared

    async def __call__(self, connection: AnyConnection, _: BaseRouteHandler) -> None:
        """Allow a request whose token has the right."""
        await self.authorize(connection.scope, service_of(connection).authenticator)

    async def authorize(self, scope: Scope, authenticator: Authenticator) -> None:
        """Allow a request whose token has the right, and keep the grant in the scope."""
        try:
            grant = scope["auth"] = await _authenticate(scope, authenticator, self.right)
            ns = scope["path_params"].get("ns")
            require(grant, self.right, ANY if self.everywhere else None if ns == self.shared else ns)
        except (NotAuthenticated, Forbidden, TooMany) as refusal:
            if scope["type"] == ScopeType.WEBSOCKET:
                status = HTTP_STATUSES[type(refusal)]
                service_of(ASGIConnection(scope)).audit.refused(scope, status, str(refusal))
                raise WebSocketException(detail=str(refusal), code=4000 + status) from refusal
            raise


Guard = OpenRoute | RequiresRight


def requires(right: Right) -> RequiresRight:
    """Return the guard of a route that needs a right, in the namespace that its path names, or in any."""
    return RequiresRight(right, everywhere=right is Right.GOVERN)


def requires_everywhere(right: Right) -> RequiresRight:
    """Return the guard of a route that needs a right in all namespaces."""
    return RequiresRight(right, everywhere=True)


def open_to_all(why: str) -> OpenRoute:
    """Return the guard of a route that needs no token."""
    return OpenRoute(why)


def grant_of(connection: AnyConnection) -> Grant:
    """Return the caller's grant, which the guard has put into the scope."""
    grant: Grant = connection.scope["auth"]
    return grant


async def authenticate_connection(connection: AnyConnection, text: str | None = None) -> Grant:
    """Return the grant of a WebSocket's token or session, or of the token `text`, and keep it in the scope."""
    scope, authenticator = connection.scope, service_of(connection).authenticator
    if text is None:
        grant = await _authenticate(scope, authenticator, Right.READ)
    else:
        grant = await authenticator.authenticate(token_text(text), scope)
    scope["auth"] = grant
    return grant


def _authenticate(scope: Scope, authenticator: Authenticator, right: Right) -> Awaitable[Grant]:
    """Return the grant of a request's token, or of the session of the browser that sends it."""
    token = presented_token(scope["headers"])
    if token is None and (session := session_text(scope)) is not None:
        require_own_page(scope, right)
        token = session
    return authenticator.authenticate(token, scope)


def require(grant: Grant, right: Right, ns: str | None = None) -> None:
    """Raise if the grant lacks a right: in a namespace, in all namespaces (`*`), or in any (None)."""
    if right not in RIGHTS[grant.role]:
        raise Forbidden(right, None if ns == ANY else ns)
    if ns == ANY and ANY not in grant.namespaces:
        raise Forbidden(right, why=f"the right to {right} is needed in all namespaces")
    if ns is not None and not grant.opens(ns):
        raise Forbidden(right, ns)


def require_priority(grant: Grant, priority: int, field: str = "priority") -> None:
    """Raise if a priority is above 0 and the token does not administer all namespaces, which share the lanes."""
    if priority > 0 and not grant.governs_all:
        raise PriorityForbidden(field, priority)
