"""A router that belongs to one application, and an application that is made fast.

Litestar does for each new route what it has done for the others before, and reads of each handler what only a request
to it needs. Of an application of some hundred routes, most of which a process never serves, that is most of the time.
"""

import sys
from collections.abc import Callable, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, Self, cast

from litestar import Litestar, Router
from litestar.exceptions import ImproperlyConfiguredException
from litestar.handlers import HTTPRouteHandler
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from litestar.routes import ASGIRoute, BaseRoute, HTTPRoute, WebSocketRoute
from litestar.types import ASGIApp, ControllerRouterHandler
from litestar.types.internal_types import PathParameterDefinition, RouteHandlerMapItem

if TYPE_CHECKING:
    from litestar._kwargs import KwargsModel


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
    """An application whose routes are registered in linear time, with the models of arguments that requests ask for.

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

    def register(self, value: ControllerRouterHandler) -> None:  # type: ignore[override]
        """Register routes."""
        for route in Router.register(self, value):
            if isinstance(route, HTTPRoute):
                _register_http_route(route, self)
            elif isinstance(route, ASGIRoute | WebSocketRoute):
                route.route_handler.on_registration(self)
            if isinstance(route, WebSocketRoute):
                parameters = route.path_parameters
                route.handler_parameter_model = route.route_handler.create_kwargs_model(path_parameters=parameters)
            for plugin in self.plugins.receive_route:
                plugin.receive_route(route)
        self.asgi_router.construct_routing_trie()

    @classmethod
    def _get_default_plugins(cls, plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        """Return the plug-ins with those of the framework that are needed."""
        if sys.modules.keys() & {"attrs", "pydantic"}:
            return super()._get_default_plugins(plugins)
        return [*plugins, MsgspecDIPlugin()]


class ArgumentsModel:
    """The framework's model of a handler's arguments, which is made when it is first asked for anything."""

    def __init__(self, handler: HTTPRouteHandler, path_parameters: dict[str, PathParameterDefinition]) -> None:
        self._handler, self._path_parameters = handler, path_parameters

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the model has
        """Return an attribute of the model, which is asked for what this has not."""
        if "_model" not in self.__dict__:
            _drop_described_parameters(self._handler)
            self._model = self._handler.create_kwargs_model(self._path_parameters)
        return getattr(self._model, name)


def _drop_described_parameters(handler: HTTPRouteHandler) -> None:
    """Drop the parameters that the framework's description adds for parts of the path that a handler does not take.

    Without this, the first call of a route fails if the description of the API was read before.
    """
    taken, described = signature(handler.fn).parameters, handler.parsed_fn_signature.parameters
    for name in described.keys() - taken.keys():
        del described[name]


def _register_http_route(route: HTTPRoute, app: Litestar) -> None:
    """Register the handlers of a route; the framework's own handler of OPTIONS needs no check."""
    for handler in route.route_handlers:
        if handler.http_methods == {"OPTIONS"} and not handler.include_in_schema:
            handler.resolve_opts()
            handler.has_sync_callable = True
        else:
            handler.on_registration(app)
        arguments = ArgumentsModel(handler, route.path_parameters)
        for method in handler.http_methods:
            if method in route.route_handler_map:
                raise ImproperlyConfiguredException(f"{route.path} has two handlers of {method}")
            route.route_handler_map[method] = handler, cast("KwargsModel", arguments)


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
