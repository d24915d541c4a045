"""The application: all routes of the API behind one authorization middleware.

    app = create_app(engine, tokens, config)

The caller opens and closes the engine. Further routes (live updates, metrics, the domains' own APIs) are arguments.
Each route has to declare the right that it needs; otherwise the application is not created."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from litestar import Litestar, Request, Response
from litestar.datastructures import State
from litestar.exceptions import ImproperlyConfiguredException
from litestar.middleware import DefineMiddleware
from litestar.types import ControllerRouterHandler
from msgspec import Struct

from stateward.access import Tokens
from stateward.access.lifecycle import TOKEN
from stateward.access.quotas import QUOTA, Quotas
from stateward.access.sessions import Sessions
from stateward.config import Config
from stateward.engine import Engine
from stateward.engine.dry_run import DryRunEnded
from stateward.plugin.owned_router import Application, OwnedRouter
from stateward.plugin.registry import Plugins, installed
from stateward.plugin.route_options import disclosure_of
from stateward.schemas.operations import AcceptedView
from stateward.schemas.preview import PreviewView
from stateward.server.auth.audit import AuditLog
from stateward.server.auth.authenticator import Authenticator
from stateward.server.auth.client_address import ClientAddresses, read_networks
from stateward.server.auth.middleware import AuthorizationMiddleware, bind_guards
from stateward.server.drawings import Drawings
from stateward.server.http.body_decoding import StrictJson
from stateward.server.http.cross_origin import CrossOrigin, read_origins
from stateward.server.http.fast_path import bind_fast_routes
from stateward.server.http.keyed_calls import KeyedCalls, bind_keys
from stateward.server.http.problem_details import respond_with_problem
from stateward.server.http.request_names import RequestNames, bind_query_names
from stateward.server.http.security_headers import default_headers
from stateward.server.openapi import openapi_config
from stateward.server.presenter import Presenter
from stateward.server.routes import (
    access_routes,
    action_routes,
    admin_routes,
    health_routes,
    journal_routes,
    kind_routes,
    object_details,
    object_routes,
    operation_routes,
    plugin_routes,
    preview_routes,
    retention_routes,
    search_routes,
    session_routes,
    stuck_routes,
    why_routes,
)
from stateward.server.routes.composite_actions import CompositeActions
from stateward.server.service import ApiRequest, Service, service_of
from stateward.server.transition_history import TransitionHistory
from stateward.server.views import state_classes

# The reply to a dry run: the objects as they would be stored, and the effects, for whatever route was asked.
#
# A refused dry run gets the problem that the call itself would get.


class DryRunView(Struct, frozen=True):
    """What a call would submit: each request with the object after it, and its effects. Nothing was written."""

    dry_run: list[AcceptedView]
    preview: PreviewView


def respond_with_plan(request: Request[Any, Any, Any], ended: DryRunEnded) -> Response[DryRunView]:
    """Return what a call would have submitted."""
    presenter = Presenter(disclosure_of(request), service_of(request).state_classes)
    planned = [presenter.accepted(accepted) for accepted in ended.accepted]
    return Response(DryRunView(planned, ended.preview), status_code=200)


BASE = "/api/v1"
NO_COMPOSITES = CompositeActions()
MODULES = (
    kind_routes,
    object_routes,
    search_routes,
    object_details,
    why_routes,
    action_routes,
    preview_routes,
    operation_routes,
    journal_routes,
    admin_routes,
    stuck_routes,
    retention_routes,
    access_routes,
    session_routes,
    plugin_routes,
)


def create_app(
    engine: Engine,
    tokens: Tokens,
    config: Config,
    *,
    routes: Sequence[ControllerRouterHandler] = (),
    api_routes: Sequence[ControllerRouterHandler] = (),
    clock: Callable[[], float] = time.monotonic,
    composite_actions: CompositeActions = NO_COMPOSITES,
    plugins: Plugins | None = None,
    fast_path: bool = True,
) -> Litestar:
    """Create the application; `routes` are added at the root, `api_routes` below the API's base path.

    `plugins` are those whose pages are in the console; all installed ones, if they are not given.
    `fast_path=False` serves every route by the framework, to measure what the fast path saves.
    """
    _check_kinds(engine)
    plugins = installed() if plugins is None else plugins
    service = _service(engine, tokens, config, clock, composite_actions, plugins)
    api = OwnedRouter(BASE, route_handlers=[*(route for module in MODULES for route in module.ROUTES), *api_routes])
    middleware = DefineMiddleware(
        AuthorizationMiddleware,
        authenticator=service.authenticator,
        names=RequestNames(engine, tokens),
        headers=service.headers,
        make_preview=partial(preview_routes.preview_planned, service),
        keyed_calls=KeyedCalls(engine),
    )
    app = Application(
        route_handlers=[*health_routes.ROUTES, *openapi_config.ROUTES, api, *routes],
        request_class=ApiRequest,
        dto=StrictJson,
        return_dto=None,
        exception_handlers={Exception: respond_with_problem, DryRunEnded: respond_with_plan},
        middleware=[middleware],
        on_shutdown=[service.audit.flush],
        request_max_body_size=config.body_limit,
        openapi_config=openapi_config.openapi_config(plugins),
        state=State({"service": service, "engine": engine, "client_addresses": service.authenticator.client_addresses}),
        logging_config=None,
        debug=False,
    )
    bind_guards(app.routes)
    bind_keys(app.routes)
    bind_query_names(app.routes, f"{BASE}/")
    if fast_path:
        bind_fast_routes(app.routes)
    for route in routes:
        if isinstance(route, OwnedRouter) and route.before_routing is not None:
            app.asgi_handler = route.before_routing(app.asgi_handler)
    if config.cors_origins:
        app.asgi_handler = CrossOrigin(app.asgi_handler, read_origins(config.cors_origins))
    return app


def _service(
    engine: Engine,
    tokens: Tokens,
    config: Config,
    clock: Callable[[], float],
    composite_actions: CompositeActions,
    plugins: Plugins,
) -> Service:
    client_addresses = ClientAddresses(read_networks(config.trusted_proxies))
    sessions = Sessions(engine, tokens)
    return Service(
        engine=engine,
        tokens=tokens,
        sessions=sessions,
        quotas=Quotas(engine),
        config=config,
        authenticator=Authenticator(tokens, sessions, config.rate, clock, config.wrong_tokens, client_addresses),
        audit=AuditLog(client_addresses),
        state_classes=state_classes(engine.kinds),
        drawings=Drawings(plugins),
        headers=default_headers(tls=bool(config.tls_cert)),
        composite_actions=composite_actions,
        plugins=plugins,
        history=TransitionHistory(lambda: engine.store.reader),
    )


def _check_kinds(engine: Engine) -> None:
    known = {kind.name for kind in engine.kinds}
    for kind in (TOKEN.kind, QUOTA.kind):
        if kind not in known:
            raise ImproperlyConfiguredException(f"the engine must know the kind {kind}")
