"""Who may do what: every route declares a right, and an application with a route that does not is never made.

A route says `guards=[needs(Right.READ)]`. If its path names a namespace, the token must open that one; if it does not,
any namespace will do, and the handler shows no more than the token opens. What concerns the deployment as a whole needs
a token for all namespaces: `guards=[needs_all(Right.GOVERN)]`. A route that is for everybody says so, and why.
"""

from litestar.connection import ASGIConnection
from litestar.enums import ScopeType
from litestar.exceptions import WebSocketException
from litestar.handlers import BaseRouteHandler
from litestar.types import Scope

from stateward.access import Grant, Right, allows
from stateward.access.tokens import ANY
from stateward.errors import StatewardError
from stateward.server.auth.authenticator import Authenticator
from stateward.server.auth.credentials import presented_token
from stateward.server.errors import Forbidden, NotAuthenticated, PriorityForbidden, TooMany
from stateward.server.service import AnyConnection, service_of

HTTP_STATUSES = {NotAuthenticated: 401, Forbidden: 403, TooMany: 429}
"""What each refusal is in HTTP; a WebSocket is closed with 4000 more."""


class OpenRoute:
    """The guard of a route that is for everybody."""

    def __init__(self, why: str) -> None:
        self.why = why

    async def __call__(self, connection: AnyConnection, _: BaseRouteHandler) -> None:
        """Let everybody pass."""


class RequiresRight:
    """The guard of a route that needs a right: in the path's namespace, if it names one, or in all of them."""

    def __init__(self, right: Right, *, everywhere: bool) -> None:
        self.right = right
        self.everywhere = everywhere

    async def __call__(self, connection: AnyConnection, _: BaseRouteHandler) -> None:
        """Let the holder of a fitting token pass."""
        await self.authorize(connection.scope, service_of(connection).authenticator)

    async def authorize(self, scope: Scope, door: Authenticator) -> None:
        """Let the holder of a fitting token pass, and remember who it is."""
        try:
            grant = scope["auth"] = await door.authenticate(presented_token(scope["headers"]), scope)
            require(grant, self.right, ANY if self.everywhere else scope["path_params"].get("ns"))
        except (NotAuthenticated, Forbidden, TooMany) as refusal:
            if scope["type"] == ScopeType.WEBSOCKET:
                raise closing_exception(scope, refusal) from refusal
            raise


Guard = OpenRoute | RequiresRight


def needs(right: Right) -> RequiresRight:
    """Return the guard of a route that needs a right, in the namespace that its path names, or in any."""
    return RequiresRight(right, everywhere=right is Right.GOVERN)


def needs_all(right: Right) -> RequiresRight:
    """Return the guard of a route that needs a right in all namespaces."""
    return RequiresRight(right, everywhere=True)


def open_to_all(why: str) -> OpenRoute:
    """Return the guard of a route that needs no token."""
    return OpenRoute(why)


def grant_of(connection: AnyConnection) -> Grant:
    """Return what the caller may do; the guard has seen to it that this is known."""
    grant: Grant = connection.scope["auth"]
    return grant


async def authenticate_connection(connection: AnyConnection, text: str | None = None) -> Grant:
    """Return what the token opens that a connection presents, or that came another way; remembers it."""
    token = presented_token(connection.scope["headers"]) if text is None else text
    grant = await service_of(connection).authenticator.authenticate(token, connection.scope)
    connection.scope["auth"] = grant
    return grant


def require(grant: Grant, right: Right, ns: str | None = None) -> None:
    """Refuse whoever does not have a right: in a namespace, in all of them (`*`), or at all (None)."""
    if not allows(grant.role, right):
        raise Forbidden(right, None if ns == ANY else ns)
    if ns == ANY and ANY not in grant.namespaces:
        raise Forbidden(right, why=f"the right to {right} is needed in all namespaces")
    if ns is not None and not grant.opens(ns):
        raise Forbidden(right, ns)


def require_priority(grant: Grant, priority: int, field: str = "priority") -> None:
    """Refuse a priority above 0 unless the token administers all namespaces: lanes are shared by namespaces."""
    if priority > 0 and not grant.governs_all:
        raise PriorityForbidden(field, priority)


def closing_exception(scope: Scope, refusal: StatewardError) -> WebSocketException:
    """Return how a refused WebSocket is closed; the refusal is audited."""
    status = HTTP_STATUSES[type(refusal)]
    service_of(ASGIConnection(scope)).audit.refused(scope, status, str(refusal))
    return WebSocketException(detail=str(refusal), code=4000 + status)
