"""All paths by which something about an object can be read over HTTP, with all ids filled in; and clients that read."""

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import product

import httpx
from litestar import Litestar
from litestar.routes import HTTPRoute

from stateward.access import Role, Tokens
from stateward.access.quotas import QuotaGuard, quota_kind
from stateward.access.sessions import session_kind
from stateward.access.tokens import token_kind
from stateward.config import Config
from stateward.engine import Engine
from stateward.plugin.runtime import DomainRuntime
from stateward.server.app import create_app
from stateward.server.live import live_routes
from stateward.server.live.feeds import LiveFeeds
from stateward.server.routes import console_routes
from stateward.store.filters import JournalFilter, Page, Selector
from stateward.store.port import Reader, Store

NOT_ABOUT_OBJECTS = (
    "/docs",
    "/schema",
    "/metrics",
    "/console",
    "/kinds",
    "/namespaces",
    "/me",
    "/tokens",
    "/workers",
    "/lanes",
    "/quotas",
)
"""Routes that show no object, operation or journal entry; they have tests of their own."""


READERS = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)


class ReadableApp:
    """An application with one domain, and a client for each role that reads."""

    def __init__(self, engine: Engine, app: Litestar, clients: dict[Role, httpx.AsyncClient]) -> None:
        self.engine, self.app, self.clients = engine, app, clients


@asynccontextmanager
async def open_to_readers(store: Store, plugin: DomainRuntime, ns: str) -> AsyncIterator[ReadableApp]:
    """Open an engine with one domain at work, its application, and clients that read a namespace."""
    engine = Engine(store, [*plugin.kinds, token_kind(), session_kind(), quota_kind()], admission=QuotaGuard())
    plugin.bind_engine(engine)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(engine)
        await stack.enter_async_context(plugin.running(engine, works=True))
        tokens = Tokens(engine)
        routes = {"routes": plugin.routes, "api_routes": [*console_routes.API_ROUTES, *live_routes.ROUTES]}
        app = create_app(engine, tokens, Config(rate=1_000_000), **routes)  # type: ignore[arg-type]
        app.state["live_feeds"] = await stack.enter_async_context(LiveFeeds(engine))
        served = ReadableApp(engine, app, {})
        for role in READERS:
            headers = {"Authorization": f"Bearer {(await tokens.issue(str(role), role, [ns]))[0]}"}
            client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test", headers=headers)  # type: ignore[arg-type]
            served.clients[role] = await stack.enter_async_context(client)
        yield served


async def readable_paths(app: Litestar, reader: Reader, ns: str, **more: Sequence[str]) -> list[str]:
    """Return the paths of all routes that show something of a namespace; raises for an unknown route."""
    objects = [one.id for one in await reader.list_objects(Selector(ns), Page(None, 1000))]
    lines = await reader.journal(0, 10_000, JournalFilter(ns=ns))
    operations = sorted({line.op for line in lines if line.op is not None})
    named = {"ns": [ns], "id": objects, "op": operations, "tree": objects[:1], **more}
    return [*_filled(app, named), *(f"/api/v1/ns/{ns}/operations?object={one}" for one in objects)]


def _filled(app: Litestar, named: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for route in app.routes:
        about = isinstance(route, HTTPRoute) and "GET" in route.methods
        if not about or any(part in route.path for part in NOT_ABOUT_OBJECTS):
            continue
        names = re.findall(r"{(\w+):\w+}", route.path)
        assert set(names) <= named.keys(), f"{route.path} shows something that this test does not know"
        for values in product(*(named[name] for name in names)):
            path = route.path
            for name, value in zip(names, values, strict=True):
                path = re.sub(rf"{{{name}:\w+}}", value, path)
            yield path
