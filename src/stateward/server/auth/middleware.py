"""The authorization middleware: every request passes it, and a route without a guard denies everything.

A route declares the right that it needs as a guard of the framework. The middleware checks it instead of the framework,
which copies the whole route for each guard on every request. The middleware also serves the routes on the fast path
(`stateward.server.http.fast_path`) and adds the security headers. The framework turns errors of both into problems.
"""

from collections.abc import Iterable

from litestar.exceptions import ImproperlyConfiguredException
from litestar.handlers import BaseRouteHandler
from litestar.routes import ASGIRoute, BaseRoute, HTTPRoute, WebSocketRoute
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from stateward.access import Right
from stateward.plugin.route_options import EVERYWHERE, OPEN, RIGHT
from stateward.server.auth.authenticator import Authenticator
from stateward.server.auth.guards import Guard, OpenRoute, RequiresRight
from stateward.server.errors import Forbidden
from stateward.server.http.fast_path import JsonReply, fast_route_of
from stateward.server.http.security_headers import Headers, with_defaults
from stateward.server.service import ApiRequest

GUARD = "guard"
"""The option of a route that has its guard."""


class AuthorizationMiddleware:
    """A layer around every route."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator, headers: Headers) -> None:
        self._app = app
        self._authenticator = authenticator
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request if the guard of its route allows it."""
        handler: BaseRouteHandler = scope["route_handler"]
        guard: Guard | None = handler.opt.get(GUARD)
        if isinstance(guard, RequiresRight):
            await guard.authorize(scope, self._authenticator)
        elif guard is None and scope.get("method") != "OPTIONS":
            raise Forbidden(Right.GOVERN, why="the route does not say who may use it")
        route = fast_route_of(handler)
        response = self._app if route is None else await route.respond(ApiRequest(scope, receive, send))
        if isinstance(response, JsonReply):
            response.add_headers(self._headers)
            await response(scope, receive, send)
        else:
            await response(scope, receive, self._adding_headers(send))

    def _adding_headers(self, send: Send) -> Send:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = with_defaults(message.get("headers", ()), self._headers)
            await send(message)

        return send_with_headers


def bind_guards(routes: Iterable[BaseRoute]) -> None:
    """Take the guards of all routes over from the framework; raises if a route does not have exactly one."""
    for route in routes:
        for handler in _handlers(route):
            guards = handler.resolve_guards()
            ours: list[Guard] = [guard for guard in guards if isinstance(guard, RequiresRight | OpenRoute)]
            guards[:] = [guard for guard in guards if guard not in ours]
            ours += _declared(handler)
            if len(ours) != 1:
                raise ImproperlyConfiguredException(f"{route.path}: {handler} does not declare the right that it needs")
            handler.opt[GUARD] = ours[0]


def _declared(handler: BaseRouteHandler) -> list[Guard]:
    """Return the guard that a route of a domain declares by its options; domains do not import the server's guards."""
    if RIGHT in handler.opt:
        return [RequiresRight(handler.opt[RIGHT], everywhere=handler.opt.get(EVERYWHERE, False))]
    return [OpenRoute(handler.opt[OPEN])] if OPEN in handler.opt else []


def guard_of(handler: BaseRouteHandler) -> Guard:
    """Return the guard of a route."""
    guard: Guard = handler.opt[GUARD]
    return guard


def _handlers(route: BaseRoute) -> Iterable[BaseRouteHandler]:
    """Return a route's handlers, without the framework's own handler of OPTIONS."""
    if isinstance(route, HTTPRoute):
        return [one for one in route.route_handlers if one.http_methods != {"OPTIONS"}]
    return [route.route_handler] if isinstance(route, WebSocketRoute | ASGIRoute) else []
