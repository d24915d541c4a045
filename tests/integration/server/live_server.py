"""A live server: the whole application on a fresh store and a real port, in the test's own event loop."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import httpx
import msgspec
from websockets.asyncio.client import ClientConnection, connect

from stateward.access import Role, Tokens
from stateward.access.tokens import ANY
from stateward.config import Config
from stateward.engine import Engine
from stateward.server.app import create_app
from stateward.server.live import live_routes
from stateward.server.live.feeds import LiveFeeds
from stateward.server.run import Server, uvicorn_config
from stateward.server.telemetry import prometheus_metrics
from stateward.server.telemetry.prometheus_metrics import RequestCounter
from stateward.store import open_store
from tests.simulated_clouds import CloudFaults, SimulatedClouds, all_kinds

PATIENT = 120.0
AT_ONCE = CloudFaults(shortest=0.0, longest=0.0, fails=0.0, stumbles=0.0)


class LiveServer:
    """A server and ways to talk to it."""

    def __init__(self, engine: Engine, tokens: Tokens, live_feeds: LiveFeeds, url: str, admin: str) -> None:
        self.engine, self.tokens, self.live_feeds = engine, tokens, live_feeds
        self.url, self.admin = url, admin
        self.server: Server
        self.gate = asyncio.Event()
        self.gate.set()

    def hold(self) -> None:
        """Let the clouds begin their work, and not go on with it."""
        self.gate.clear()

    def release(self) -> None:
        """Let the clouds go on."""
        self.gate.set()

    async def token(self, *namespaces: str, role: Role = Role.OPERATOR) -> str:
        """Issue a token."""
        text, _ = await self.tokens.issue("test", role, list(namespaces))
        return text

    async def define(self, ns: str, *names: str, **how: Any) -> None:
        """Make objects that need no work: each is one line of the journal."""
        await asyncio.gather(*(self.engine.create(ns, name, "ovc.vm", "define", **how) for name in names))

    def client(self, token: str | None = None) -> httpx.AsyncClient:
        """Return a client that presents a token."""
        headers = {"Authorization": f"Bearer {token or self.admin}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=PATIENT, trust_env=False, verify=False)

    def stream(self, token: str | None = None, **how: Any) -> connect:
        """Return a connection to the stream, which has yet to say what it wants."""
        return self.page_stream({} if token == "" else {"Authorization": f"Bearer {token or self.admin}"}, **how)

    def page_stream(self, headers: dict[str, str], **how: Any) -> connect:
        """Return a connection to the stream with these headers."""
        url = self.url.replace("http", "ws") + "/api/v1/stream"
        return connect(url, additional_headers=headers, proxy=None, max_size=None, **how)


async def said(socket_: ClientConnection) -> Any:
    """Return what the server says next."""
    async with asyncio.timeout(PATIENT):
        return msgspec.json.decode(await socket_.recv())


async def lines_until(socket_: ClientConnection, count: int) -> list[dict[str, Any]]:
    """Read until so many lines have come."""
    lines: list[dict[str, Any]] = []
    while len(lines) < count:
        lines += (await said(socket_))["lines"]
    return lines


def _held(gate: Callable[[], asyncio.Event]) -> Callable[[float], Awaitable[None]]:
    async def sleep(_: float) -> None:
        await gate().wait()

    return sleep


@asynccontextmanager
async def open_live_server(folder: Path, faults: CloudFaults = AT_ONCE, **settings: Any) -> AsyncIterator[LiveServer]:
    """Open one, and close it gracefully."""
    config = Config(data=str(folder), **{"rate": 100_000, **settings})
    clouds = SimulatedClouds(faults, Random(1), _held(lambda: live_server.gate))
    async with Engine(open_store(config.store_url), all_kinds(clouds)) as engine:
        clouds.engine = engine
        tokens = Tokens(engine)
        admin, _ = await tokens.issue("admin", Role.ADMIN, [ANY])
        app = create_app(engine, tokens, config, routes=prometheus_metrics.ROUTES, api_routes=live_routes.ROUTES)
        async with LiveFeeds(engine) as live_feeds:
            app.state.live_feeds, app.state.metrics = live_feeds, live_feeds.metrics
            listener = socket.create_server(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            live_server = LiveServer(engine, tokens, live_feeds, url, admin)
            started = asyncio.Event()
            counting = RequestCounter(app, live_feeds.metrics)

            async def on_started() -> None:
                started.set()

            live_server.server = Server(uvicorn_config(config, counting), on_started, engine.drain, live_feeds.close)
            serving = asyncio.create_task(live_server.server.serve(sockets=[listener]))
            await started.wait()
            try:
                yield live_server
            finally:
                live_server.release()
                live_server.server.should_exit = True
                await serving
