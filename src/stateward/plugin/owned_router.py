"""A router that belongs to one application, and an application that is made fast.

Litestar does for each new route what it has done for the others before, and reads of each handler what only a request
to it needs. Of an application of some hundred routes, most of which a process never serves, that is most of the time.
"""

import sys
from collections.abc import Callable, Iterator
from inspect import signature
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast

from litestar import Litestar, Router
from litestar.exceptions import ImproperlyConfiguredException
from litestar.handlers import ASGIRouteHandler, HTTPRouteHandler, WebsocketRouteHandler
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from litestar.routes import ASGIRoute, BaseRoute, HTTPRoute, WebSocketRoute
from litestar.types import ASGIApp, ControllerRouterHandler
from litestar.types.internal_types import PathParameterDefinition, RouteHandlerMapItem
from litestar.utils import join_paths

if TYPE_CHECKING:
    from litestar._kwargs import KwargsModel

HandlersByPath: TypeAlias = dict[str, RouteHandlerMapItem]


class OwnedRouter(Router):
    """A router that is registered once, with the application or router that owns it.

    Litestar makes routes of a router's handlers, and of a deep copy of the router when it's registered, so that it can
    be registered in several places. This one only maps its handlers; the application makes the routes.

    `before_routing` is a middleware that gets the requests below the router's path before a route is chosen, so that it
    can serve other paths by the same routes. A route of the framework costs milliseconds at the start of a server.
    """

    __slots__ = ("before_routing", "handlers_by_path")

    def __init__(self, path: str, *, before_routing: Callable[[ASGIApp], ASGIApp] | None = None, **named: Any) -> None:  # noqa: ANN401 - the arguments of a router
        self.handlers_by_path: HandlersByPath = {}  # bounded by: the routes that the program has
        super().__init__(path, **named)
        self.before_routing = before_routing

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Return the router itself."""
        return self

    @property
    def route_handler_method_map(self) -> HandlersByPath:
        """Return the handlers by path and method."""
        return self.handlers_by_path

    def register(self, value: ControllerRouterHandler) -> list[BaseRoute]:
        """Map handlers."""
        _map_handlers(self, value)
        return []


class Application(Litestar):
    """An application whose routes are registered in linear time, with the models of arguments that requests ask for.

    The plug-ins of the framework for Pydantic and attrs are left out unless a domain has imported such a library: no
    route of ours uses them, and to load them takes a tenth of a second.
    """

    __slots__ = ("handlers_by_path",)

    def __init__(self, **named: Any) -> None:  # noqa: ANN401 - the arguments of an application
        self.handlers_by_path: HandlersByPath = {}  # bounded by: the routes that the program has
        super().__init__(**named)

    def register(self, value: ControllerRouterHandler) -> None:  # type: ignore[override]
        """Make routes of handlers. A path that has a route gets a new one, for its earlier handlers, too."""
        before = set(self.handlers_by_path)
        paths = _map_handlers(self, value)
        if replaced := before.intersection(paths):
            self.routes[:] = [route for route in self.routes if route.path not in replaced]
        for route in (route for path in paths for route in _routes_of(path, self.handlers_by_path[path])):
            self.routes.append(route)
            self._register_route(route)
        self.asgi_router.construct_routing_trie()

    def _register_route(self, route: HTTPRoute | ASGIRoute | WebSocketRoute) -> None:
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                if handler.http_methods == {"OPTIONS"} and not handler.include_in_schema:
                    handler.resolve_opts()
                    handler.has_sync_callable = True
                else:
                    handler.on_registration(self)
                arguments = ArgumentsModel(handler, route.path_parameters)
                for method in handler.http_methods:
                    route.route_handler_map[method] = handler, cast("KwargsModel", arguments)
        else:
            route.route_handler.on_registration(self)
        if isinstance(route, WebSocketRoute):
            parameters = route.path_parameters
            route.handler_parameter_model = route.route_handler.create_kwargs_model(path_parameters=parameters)
        for plugin in self.plugins.receive_route:
            plugin.receive_route(route)

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
        """Return an attribute of the model, and keep it: the next request does not come here."""
        if "_model" not in self.__dict__:
            _drop_described_parameters(self._handler)
            self._model = self._handler.create_kwargs_model(self._path_parameters)
        value = self.__dict__[name] = getattr(self._model, name)
        return value


def _drop_described_parameters(handler: HTTPRouteHandler) -> None:
    """Drop the parameters that the framework's description adds for parts of the path that a handler does not take.

    Without this, the first call of a route fails if the description of the API was read before.
    """
    taken, described = signature(handler.fn).parameters, handler.parsed_fn_signature.parameters
    for name in described.keys() - taken.keys():
        del described[name]


def _map_handlers(router: OwnedRouter | Application, value: ControllerRouterHandler) -> list[str]:
    """Add handlers to those of a router, by path and method; return their paths."""
    paths = []
    for path, handlers in router.get_route_handler_map(router._validate_registration_value(value)).items():  # noqa: SLF001
        paths.append(join_paths([router.path, path]))
        registered = router.handlers_by_path.setdefault(paths[-1], {})
        if twice := registered.keys() & handlers.keys():
            raise ImproperlyConfiguredException(f"{paths[-1]} has two handlers of {', '.join(sorted(twice))}")
        registered.update(handlers)
    return paths


def _routes_of(path: str, handlers: RouteHandlerMapItem) -> Iterator[HTTPRoute | ASGIRoute | WebSocketRoute]:
    """Make the routes of a path."""
    by_id = {id(handler): handler for handler in handlers.values()}
    if of_http := [handler for handler in by_id.values() if isinstance(handler, HTTPRouteHandler)]:
        yield HTTPRoute(path=path, route_handlers=of_http)
    for handler in by_id.values():
        if isinstance(handler, WebsocketRouteHandler):
            yield WebSocketRoute(path=path, route_handler=handler)
        elif isinstance(handler, ASGIRouteHandler):
            yield ASGIRoute(path=path, route_handler=handler)
