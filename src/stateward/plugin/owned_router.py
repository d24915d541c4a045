"""A router that belongs to one application."""

from collections.abc import Callable
from typing import Any, Self

from litestar import Router
from litestar.types import ASGIApp


class OwnedRouter(Router):
    """A router that is registered once, with the application or router that owns it.

    Litestar registers a deep copy of a router, so that it can be registered in several places. The copy takes half of
    the time in which an application is made.

    `before_routing` is a middleware that gets the requests below the router's path before a route is chosen, so that it
    can serve other paths by the same routes. A route of the framework costs milliseconds at the start of a server.
    """

    __slots__ = ("before_routing",)

    def __init__(self, path: str, *, before_routing: Callable[[ASGIApp], ASGIApp] | None = None, **named: Any) -> None:  # noqa: ANN401 - the arguments of a router
        super().__init__(path, **named)
        self.before_routing = before_routing

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Return the router itself."""
        return self
