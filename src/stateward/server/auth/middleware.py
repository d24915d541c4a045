"""The entrance: every call passes here, and what a route does not allow is denied.

What a route needs is declared as a guard of the framework, and seen to here instead: the framework copies the whole
route for each guard that it asks, on every call. Plain routes are answered from here; what they raise is told by the
framework, as a problem. Answers get their headers on the way out.
"""

from collections.abc import Iterable

from litestar.exceptions import ImproperlyConfiguredException
from litestar.handlers import BaseRouteHandler
from litestar.routes import ASGIRoute, BaseRoute, HTTPRoute, WebSocketRoute
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from stateward.access import Right
from stateward.domains.plugin import EVERYWHERE, OPEN, RIGHT
from stateward.server.auth.authenticator import Authenticator
from stateward.server.auth.guards import Guard, OpenRoute, RequiresRight
from stateward.server.errors import Forbidden
from stateward.server.http.fast_path import FastRoute, JsonReply, is_fast_route
from stateward.server.http.security_headers import Headers, with_defaults
from stateward.server.service import ApiRequest

GUARD, PLAIN = "guard", "plain"
"""The options by which a route tells its guard, and how it is answered if it is a plain one."""


class AuthorizationMiddleware:
    """A layer around every route."""

    def __init__(self, app: ASGIApp, door: Authenticator, headers: Headers) -> None:
        self._app = app
        self._door = door
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a call pass if its route's guard does."""
        told = scope["route_handler"].opt
        guard: Guard | None = told.get(GUARD)
        if isinstance(guard, RequiresRight):
            await guard.authorize(scope, self._door)
        elif guard is None and scope.get("method") != "OPTIONS":
            raise Forbidden(Right.GOVERN, why="the route does not say who may use it")
        plain: FastRoute | None = told.get(PLAIN)
        answer = self._app if plain is None else await plain.respond(ApiRequest(scope, receive, send))
        if isinstance(answer, JsonReply):
            answer.add_headers(self._headers)
            await answer(scope, receive, send)
        else:
            await answer(scope, receive, self._securing(send))

    def _securing(self, send: Send) -> Send:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = with_defaults(message.get("headers", ()), self._headers)
            await send(message)

        return sent


def bind_guards(routes: Iterable[BaseRoute]) -> None:
    """Hand the guards of all routes over to the entrance; a route that has none is an error of whoever wrote it."""
    for route in routes:
        for handler in _handlers(route):
            guards = handler.resolve_guards()
            ours: list[Guard] = [guard for guard in guards if isinstance(guard, RequiresRight | OpenRoute)]
            guards[:] = [guard for guard in guards if guard not in ours]
            ours += _declared(handler)
            if len(ours) != 1:
                raise ImproperlyConfiguredException(f"{route.path}: {handler} does not declare the right that it needs")
            handler.opt[GUARD] = ours[0]


def settle_plain_routes(routes: Iterable[BaseRoute]) -> None:
    """Have all plain routes answered at the entrance."""
    for route in routes:
        for handler, takes in route.route_handler_map.values() if isinstance(route, HTTPRoute) else ():
            if is_fast_route(handler, takes):
                handler.opt[PLAIN] = FastRoute(handler, takes)


def _declared(handler: BaseRouteHandler) -> list[Guard]:
    """Return what a route of a domain declares: domains do not know the server's guards, and tell by options."""
    if RIGHT in handler.opt:
        return [RequiresRight(handler.opt[RIGHT], everywhere=handler.opt.get(EVERYWHERE, False))]
    return [OpenRoute(handler.opt[OPEN])] if OPEN in handler.opt else []


def guard_of(handler: BaseRouteHandler) -> Guard:
    """Return the guard of a route."""
    guard: Guard = handler.opt[GUARD]
    return guard


def _handlers(route: BaseRoute) -> Iterable[BaseRouteHandler]:
    """Return a route's handlers, without the one that the framework adds to tell of its methods."""
    if isinstance(route, HTTPRoute):
        return [one for one in route.route_handlers if one.http_methods != {"OPTIONS"}]
    return [route.route_handler] if isinstance(route, WebSocketRoute | ASGIRoute) else []
