"""The mci domain over HTTP: the Tumblebug API under `/tumblebug`, and the native API under `/api/v1/mci`.

Tumblebug's clients also look below `/spider` whether its drivers are ready.

lenient_json, tumblebug_params, *_bodies   parsing of requests
schemas, views, *_views, target_status     responses
live_status                                states from the providers, for readers
routes/                                    the route handlers
before_routing, release_names              paths without a route: newer names, and what is not offered
context, request_log, request_log_store    the context of a request, and the log of requests
"""

import re
from collections.abc import Callable, Sequence

from litestar.types import ASGIApp, ControllerRouterHandler

from stateward.domains.mci.api.before_routing import BeforeRouting
from stateward.domains.mci.api.context import ApiContext, MciDomain, RequestLogMiddleware, TumblebugRequest
from stateward.domains.mci.api.live_status import FRESH_LISTING_S, LiveStatus
from stateward.domains.mci.api.request_log import RequestLog
from stateward.domains.mci.api.routes import (
    adoption_routes,
    catalogue_routes,
    check_routes,
    choice_routes,
    command_routes,
    command_stream_routes,
    config_routes,
    control_routes,
    history_routes,
    inspection_routes,
    label_routes,
    mci_routes,
    namespace_routes,
    native_routes,
    not_offered,
    resource_routes,
    review_routes,
    rule_routes,
    spider_routes,
    stored_object_routes,
    subnet_routes,
    system_routes,
    vm_routes,
)
from stateward.plugin.owned_router import OwnedRouter

BASE = "/tumblebug"
MODULES = (
    system_routes,
    namespace_routes,
    mci_routes,
    vm_routes,
    control_routes,
    command_routes,
    command_stream_routes,
    review_routes,
    resource_routes,
    subnet_routes,
    rule_routes,
    catalogue_routes,
    choice_routes,
    check_routes,
    history_routes,
    label_routes,
    inspection_routes,
    adoption_routes,
    stored_object_routes,
    config_routes,
    not_offered,
)


def routes(
    domain: MciDomain,
    saved: Callable[[str, int], None] = lambda _provider, _calls: None,
    *,
    fresh_for: float = FRESH_LISTING_S,
) -> list[ControllerRouterHandler]:
    """Return the routes of the domain; `saved` counts the provider calls that were not needed."""
    context = ApiContext(domain, LiveStatus(domain.clients, saved, serves=fresh_for), RequestLog())
    tumblebug = [route for module in MODULES for route in module.ROUTES]
    served = {re.sub(r":\w+}", "}", path) for route in tumblebug for path in route.paths}

    def before_routing(app: ASGIApp) -> ASGIApp:
        return BeforeRouting(app, BASE, served, not_offered.REASONS, not_offered.PATH)

    return [
        _router(BASE, tumblebug, context, before_routing),
        _router(native_routes.BASE, (*native_routes.ROUTES, *adoption_routes.NATIVE_ROUTES), context),
        _router(spider_routes.BASE, spider_routes.ROUTES, context),
    ]


def _router(
    path: str,
    handlers: Sequence[ControllerRouterHandler],
    context: ApiContext,
    before_routing: Callable[[ASGIApp], ASGIApp] | None = None,
) -> OwnedRouter:
    def logged(app: ASGIApp) -> ASGIApp:  # a function, because Litestar copies any other middleware of a router
        return RequestLogMiddleware(app, context)

    return OwnedRouter(
        path,
        before_routing=before_routing,
        route_handlers=handlers,
        request_class=TumblebugRequest,
        middleware=[logged],
        tags=["mci"],
    )


__all__ = ["routes"]
