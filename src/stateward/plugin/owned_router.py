"""A router that belongs to one application, and the map of routes that both make once."""

import sys
from collections.abc import Callable, Sequence
from typing import Any, Self

from litestar import Litestar, Router
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from litestar.routes import ASGIRoute, BaseRoute, HTTPRoute, WebSocketRoute
from litestar.types import ASGIApp
from litestar.types.internal_types import RouteHandlerMapItem


class OwnedRouter(Router):
    """A router that is registered once, with the application or router that owns it.

    Litestar registers a deep copy of a router, so that it can be registered in several places. The copy takes half of
    the time in which an application is made.

    `before_routing` is a middleware that gets the requests below the router's path before a route is chosen, so that it
    can serve other paths by the same routes. A route of the framework costs milliseconds at the start of a server.
    """

    __slots__ = ("_handlers_by_path", "before_routing")

    def __init__(self, path: str, *, before_routing: Callable[[ASGIApp], ASGIApp] | None = None, **named: Any) -> None:  # noqa: ANN401 - the arguments of a router
        self._handlers_by_path = HandlersByPath()
        super().__init__(path, **named)
        self.before_routing = before_routing

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Return the router itself."""
        return self

    @property
    def route_handler_method_map(self) -> dict[str, RouteHandlerMapItem]:
        """Return the handlers of the routes, by path and method."""
        return self._handlers_by_path.of(self.routes)


class Application(Litestar):
    """An application whose routes are registered in linear time.

    The plug-ins of the framework for Pydantic and attrs are left out unless a domain has imported such a library: no
    route of ours uses them, and to load them takes a tenth of a second.
    """

    __slots__ = ("_handlers_by_path",)

    def __init__(self, **named: Any) -> None:  # noqa: ANN401 - the arguments of an application
        self._handlers_by_path = HandlersByPath()
        super().__init__(**named)

    @property
    def route_handler_method_map(self) -> dict[str, RouteHandlerMapItem]:
        """Return the handlers of the routes, by path and method."""
        return self._handlers_by_path.of(self.routes)

    @classmethod
    def _get_default_plugins(cls, plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        """Return the plug-ins with those of the framework that are needed."""
        if sys.modules.keys() & {"attrs", "pydantic"}:
            return super()._get_default_plugins(plugins)
        return [*plugins, MsgspecDIPlugin()]


class HandlersByPath:
    """The handlers of routes, by path and method; the framework would map all routes again for each new one."""

    def __init__(self) -> None:
        self._mapped: list[BaseRoute] = []
        self._handlers: dict[str, RouteHandlerMapItem] = {}

    def of(self, routes: Sequence[BaseRoute]) -> dict[str, RouteHandlerMapItem]:
        """Return the handlers of the routes; those that were added since the last call are mapped."""
        if any(one is not other for one, other in zip(self._mapped, routes, strict=False)):  # one was replaced
            self._mapped, self._handlers = [], {}
        for route in routes[len(self._mapped) :]:
            self._mapped.append(route)
            self._handlers.setdefault(route.path, {}).update(_by_method(route))
        return self._handlers


def _by_method(route: BaseRoute) -> RouteHandlerMapItem:
    if isinstance(route, HTTPRoute):
        return {method: one for one in route.route_handlers for method in one.http_methods}
    if isinstance(route, WebSocketRoute):
        return {"websocket": route.route_handler}
    return {"asgi": route.route_handler} if isinstance(route, ASGIRoute) else {}
