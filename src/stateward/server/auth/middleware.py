"""The authorization middleware: every request passes it, and a route without a guard denies everything.

A route declares the right that it needs as a guard of the framework. The middleware checks it instead of the framework,
which copies the whole route for each guard on every request. The middleware also checks the names in a request
(`stateward.server.http.request_names`), serves a call with an idempotency key once
(`stateward.server.http.keyed_calls`), serves the routes on the fast path (`stateward.server.http.fast_path`) and adds
the security headers, and `Idempotency-Replayed` if all requests of a call were accepted before. The framework turns
errors of both into problems.
"""

from collections.abc import Iterable, Sequence

from litestar.enums import ScopeType
from litestar.exceptions import ImproperlyConfiguredException
from litestar.handlers import BaseRouteHandler
from litestar.routes import ASGIRoute, BaseRoute, HTTPRoute, WebSocketRoute
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from stateward.access import Right
from stateward.engine.accept.idempotency import noted_replays
from stateward.engine.dry_run import MakePreview, dry_run
from stateward.errors import BadInput
from stateward.plugin.route_options import DRY_RUN, EVERYWHERE, OPEN, RIGHT, SHARED
from stateward.server.auth.authenticator import Authenticator
from stateward.server.auth.guards import Guard, OpenRoute, RequiresRight
from stateward.server.errors import Forbidden
from stateward.server.http.fast_path import REPLAYED, JsonReply, fast_route_of
from stateward.server.http.keyed_calls import KeyedCalls
from stateward.server.http.request_names import RequestNames
from stateward.server.http.security_headers import Headers, with_defaults
from stateward.server.service import ApiRequest

GUARD = "guard"
"""The option of a route that has its guard."""

DRY_RUN_HEADER = "X-Stateward-Dry-Run"
"""The header of a request that only asks what it would do; a route without dry runs refuses it."""

_DRY_RUN_HEADER = DRY_RUN_HEADER.lower().encode()


class AuthorizationMiddleware:
    """A layer around every route."""

    def __init__(
        self,
        app: ASGIApp,
        authenticator: Authenticator,
        names: RequestNames,
        headers: Headers,
        make_preview: MakePreview,
        keyed_calls: KeyedCalls,
    ) -> None:
        self._app = app
        self._keyed_calls = keyed_calls
        self._make_preview = make_preview
        self._authenticator = authenticator
        self._names = names
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request if the guard of its route allows it."""
        handler: BaseRouteHandler = scope["route_handler"]
        guard: Guard | None = handler.opt.get(GUARD)
        if isinstance(guard, RequiresRight):
            await guard.authorize(scope, self._authenticator)
        elif guard is None and scope.get("method") != "OPTIONS":
            raise Forbidden(Right.GOVERN, why="the route does not say who may use it")
        if scope["type"] == ScopeType.HTTP:
            await self._names.check(scope, handler)
        if _wants_dry_run(scope, handler):
            with dry_run(self._make_preview):
                await self._serve(scope, receive, send)
        elif isinstance(guard, RequiresRight) and guard.right is Right.READ:
            await self._respond((), scope, receive, send)
        elif scope["type"] == ScopeType.HTTP and isinstance(guard, RequiresRight):
            await self._keyed_calls.serve(self._serve, guard.right, scope, receive, send)
        else:
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        with noted_replays() as replays:
            await self._respond(replays, scope, receive, send)

    async def _respond(self, replays: Sequence[bool], scope: Scope, receive: Receive, send: Send) -> None:
        route = fast_route_of(scope["route_handler"])
        response = self._app if route is None else await route.respond(ApiRequest(scope, receive, send))
        if isinstance(response, JsonReply):
            response.add_headers(self._headers_after(replays))
            await response(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = with_defaults(message.get("headers", ()), self._headers_after(replays))
            await send(message)

        await response(scope, receive, send_with_headers)

    def _headers_after(self, replays: Sequence[bool]) -> Headers:
        return (*self._headers, REPLAYED) if replays and all(replays) else self._headers


def _wants_dry_run(scope: Scope, handler: BaseRouteHandler) -> bool:
    """Return whether a request only asks what it would do; raises if its route would do it all the same."""
    given = next((value for name, value in scope["headers"] if name == _DRY_RUN_HEADER), None)
    if given is None:
        return False
    if given != b"1":
        raise BadInput(DRY_RUN_HEADER, given.decode("latin-1"), "1, or left out")
    if not handler.opt.get(DRY_RUN):
        raise BadInput(DRY_RUN_HEADER, "1", "left out: this route has no dry run")
    return True


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
        everywhere, shared = handler.opt.get(EVERYWHERE, False), handler.opt.get(SHARED)
        return [RequiresRight(handler.opt[RIGHT], everywhere=everywhere, shared=shared)]
    return [OpenRoute(handler.opt[OPEN])] if OPEN in handler.opt else []


def guard_of(handler: BaseRouteHandler) -> Guard:
    """Return the guard of a route."""
    guard: Guard = handler.opt[GUARD]
    return guard


def _handlers(route: BaseRoute) -> Iterable[BaseRouteHandler]:
    """Return a route's handlers, without the framework's own handler of OPTIONS."""
    if isinstance(route, HTTPRoute):
        return [handler for handler in route.route_handlers if handler.http_methods != {"OPTIONS"}]
    return [route.route_handler] if isinstance(route, WebSocketRoute | ASGIRoute) else []
