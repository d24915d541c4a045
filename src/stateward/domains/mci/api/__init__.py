"""The mci domain over HTTP: the Tumblebug API under `/tumblebug`, and the native API under `/api/v1/mci`.

lenient_json, tumblebug_params, *_bodies   parsing of requests
schemas, views, *_views, target_status     responses
live_status                                states from the providers, for readers
routes/                                    the route handlers
context, request_log, request_log_store    the context of a request, and the log of requests
"""

from collections.abc import Callable, Sequence

from litestar import Router
from litestar.types import ASGIApp, ControllerRouterHandler

from stateward.domains.mci.api.context import ApiContext, MciDomain, RequestLogMiddleware, TumblebugRequest
from stateward.domains.mci.api.live_status import FRESH_LISTING_S, LiveStatus
from stateward.domains.mci.api.request_log import RequestLog
from stateward.domains.mci.api.routes import (
    catalogue_routes,
    control_routes,
    mci_routes,
    namespace_routes,
    native_routes,
    resource_routes,
    review_routes,
    subnet_routes,
    system_routes,
    vm_routes,
)

BASE = "/tumblebug"
MODULES = (
    system_routes,
    namespace_routes,
    mci_routes,
    vm_routes,
    control_routes,
    review_routes,
    resource_routes,
    subnet_routes,
    catalogue_routes,
)


def routes(
    domain: MciDomain,
    saved: Callable[[str, int], None] = lambda _provider, _calls: None,
    *,
    fresh_for: float = FRESH_LISTING_S,
) -> list[ControllerRouterHandler]:
    """Return the routes of the domain; `saved` counts the provider calls that were not needed."""
    context = ApiContext(domain, LiveStatus(domain.clients, saved, serves=fresh_for), RequestLog())
    tumblebug = [one for module in MODULES for one in module.ROUTES]
    return [_router(BASE, tumblebug, context), _router(native_routes.BASE, native_routes.ROUTES, context)]


def _router(path: str, handlers: Sequence[ControllerRouterHandler], context: ApiContext) -> Router:
    def logged(app: ASGIApp) -> ASGIApp:  # a function, because Litestar copies any other middleware of a router
        return RequestLogMiddleware(app, context)

    return Router(path, route_handlers=handlers, request_class=TumblebugRequest, middleware=[logged], tags=["mci"])


__all__ = ["routes"]
