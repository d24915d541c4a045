"""Loading the domains of a process: their runtimes, and checks that one plug-in cannot break the others.

A plug-in whose runtime cannot be created, that has actions without a handler, or whose routes have no right or are
taken, is left out with its reason.
"""

import logging
from collections.abc import Iterable, Sequence

from litestar import Litestar, Router
from litestar.handlers import BaseRouteHandler
from msgspec import Struct
from msgspec.structs import replace

from stateward.config import Config
from stateward.engine import MissingHandlers
from stateward.errors import BadInput
from stateward.lifecycle import check
from stateward.plugin.registry import LoadedDomain, Plugins, find_plugins
from stateward.plugin.runtime import DomainRuntime, ProcessContext
from stateward.server.app import BASE, MODULES
from stateward.server.auth.middleware import bind_guards
from stateward.server.routes import health_routes

log = logging.getLogger("stateward.server")

API = BASE + "/"
FILES = frozenset({"console", "docs", "metrics"})
"""The first parts of the paths of the server's pages and metrics; those of its routes are read from the routes."""


class LoadedDomains(Struct, frozen=True):
    """The domains of a process; `usable` are their plug-ins, with the faults of those that cannot be used."""

    usable: Plugins
    domains: Sequence[LoadedDomain]

    @property
    def runtimes(self) -> list[DomainRuntime]:
        """The runtimes of all domains."""
        return [domain.runtime for domain in self.domains]


def load_domains(config: Config, context: ProcessContext) -> LoadedDomains:
    """Create the runtimes of the domains that the configuration chooses; faults are logged."""
    plugins = find_plugins(config.domain, config.only)
    created, faults = plugins.create_runtimes(context)
    faults = [*plugins.faults, *faults]
    places = {installed.name: installed for installed in plugins.domains}
    usable = list[LoadedDomain]()
    roots = {root for domain in created if places[domain.name].part.is_own for root in _declared_roots(domain.runtime)}
    for domain in created:
        try:
            if not places[domain.name].part.is_own:  # the tests check ours, so that a start need not
                _require_handlers(domain.runtime)
                roots |= _check_routes(domain.runtime, roots)
        except Exception as error:
            fault = places[domain.name].part.fault(error)
            if places[domain.name].is_named:
                raise fault from error
            faults.append(fault)
        else:
            usable.append(domain)
    for fault in faults:
        log.error("%s", fault)
    _warn_of_tables(domain for domain in usable if not places[domain.name].part.is_own)
    names = {domain.name for domain in usable}
    kept = tuple(installed for installed in plugins.domains if installed.name in names)
    return LoadedDomains(replace(plugins, domains=kept, faults=tuple(faults)), usable)


def _require_handlers(runtime: DomainRuntime) -> None:
    """Refuse actions without a handler here: the engine would refuse to be entered, with the kinds of all others."""
    missing = {kind.name: names for kind in runtime.kinds if (names := kind.missing_handlers())}
    if missing:
        raise MissingHandlers(missing)


def _check_routes(runtime: DomainRuntime, taken: set[str]) -> set[str]:
    """Refuse routes without a right, and routes below paths of the server or of another domain; returns their roots."""
    if not runtime.routes:
        return set()
    app = Litestar(route_handlers=runtime.routes, openapi_config=None, logging_config=None)  # or it takes over the logs
    bind_guards(app.routes)
    roots = {_root(route.path) for route in app.routes}
    for root in sorted(roots):
        if "{" in root or root in taken | FILES | _own_roots():
            raise BadInput("routes", root or "/", "below a path of its own, such as /api/v1/NAME")
    return roots


def _declared_roots(runtime: DomainRuntime) -> set[str]:
    """Return the roots of a domain's routes as they are declared, without registering them."""
    routers = {route.path for route in runtime.routes if isinstance(route, Router)}
    handlers = {path for route in runtime.routes if isinstance(route, BaseRouteHandler) for path in route.paths}
    return set(map(_root, routers | handlers))


def _own_roots() -> set[str]:
    """Return the roots of the server's own routes."""
    paths = [path for module in MODULES for route in module.ROUTES for path in route.paths]
    health = [path for route in health_routes.ROUTES for path in route.paths]
    return {"", "api", *(_root(BASE + path) for path in paths), *map(_root, health)}


def _root(path: str) -> str:
    """Return the part of a path that belongs to one domain: `/api/v1/NAME`, or the first part."""
    if path.startswith(API):
        return API + path.removeprefix(API).partition("/")[0]
    return path.removeprefix("/").partition("/")[0]


def _warn_of_tables(domains: Iterable[LoadedDomain]) -> None:
    """Log what could get stuck: tables of other packages were not necessarily checked by a test."""
    for domain in domains:
        for kind in domain.runtime.kinds:
            for fault in check(kind.lifecycle):
                log.warning("plug-in %s: %s", domain.name, fault)
