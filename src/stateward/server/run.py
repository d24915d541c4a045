"""The processes: `serve` (the API, and a worker beside it) and `work` (a worker alone).

A process stops gracefully when it is told to (SIGTERM, SIGINT): it accepts nothing more, answers what it has begun to
answer, lets the streams go, ends what its handlers can end in time, and gives the rest back to whoever works next. A
second signal ends the waiting. Nothing that was accepted is lost either way: that is the store's business, not ours.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import uvicorn
from litestar import Litestar
from msgspec import Struct
from msgspec.structs import replace

from stateward.access import Tokens
from stateward.access.quotas import QuotaGuard, quota_kind
from stateward.access.tokens import token_kind
from stateward.aio.supervise import cancel_tasks
from stateward.config import Config, masked
from stateward.domains.plugin import DomainPlugin, ProcessContext
from stateward.domains.registry import load_plugins
from stateward.drivers.confinement import Confinement
from stateward.engine import Kind
from stateward.engine.maintenance.retention import history_kind
from stateward.errors import BadInput, StatewardError
from stateward.server.app import create_app
from stateward.server.connection_limits import MAX_HEAD_BYTES, LimitedWebSocketProtocol, limited_http_protocol
from stateward.server.data_dir import DataDir, create_private
from stateward.server.live import live_routes
from stateward.server.live.feeds import LiveFeeds
from stateward.server.routes import console_routes
from stateward.server.routes.composite_actions import CompositeActions
from stateward.server.routes.retention_routes import prune_hourly
from stateward.server.runtime_tuning import tune_garbage_collector
from stateward.server.telemetry import prometheus_metrics
from stateward.server.telemetry.observed_engine import ObservedEngine
from stateward.server.telemetry.prometheus_metrics import Metrics, ProviderCalls, RequestCounter
from stateward.server.telemetry.traces import NoTraces, RequestTracer, Traces, start_traces
from stateward.store import open_store
from stateward.store.port import Store

log = logging.getLogger("stateward.server")

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SHUTDOWN_TIMEOUT_S = 15
"""How many seconds calls have to be answered when the server stops."""

STREAM_CLOSE_TIMEOUT_S = 2.0
"""How many seconds the readers of streams have to take their leave."""

MAX_FIRST_MESSAGE_BYTES = 64 * 1024


class CannotListen(StatewardError):
    """The address is in use, or does not belong to this host."""

    host: str
    port: int
    why: str
    text = "cannot listen on {host}:{port}: {why}"


class ServerApplication(Struct, frozen=True):
    """An application with all that it needs, at work."""

    app: Litestar
    engine: ObservedEngine
    plugins: Sequence[DomainPlugin]
    tokens: Tokens
    live_feeds: LiveFeeds


class ServerInfo(Struct, frozen=True):
    """A server that answers: where, and where its administrator's token is, if that is known here."""

    url: str
    token_file: str | None


# --- the parts -------------------------------------------------------------------------------------------------------


def store_of(config: Config) -> Store:
    """Return the store that a configuration names; an embedded one that is not there yet is for its owner alone."""
    if not config.database:
        create_private(Path(config.store_url))
    try:
        return open_store(config.store_url, pooled=config.pooler, direct=config.direct_url or None)
    except BadInput as error:
        raise BadInput("database", masked(config.store_url), error.allowed) from None


def plugins_of(config: Config, calls: ProviderCalls) -> list[DomainPlugin]:
    """Furnish the domains; the programs that they start are told of a folder that does not depend on where we are."""
    folder = Path(config.data).resolve()
    chance = Random()  # noqa: S311 - not for secrets
    site = ProcessContext(
        folder, config.demo, config.local, chance, calls.count_call, calls.count_saved, settings=config.domains
    )
    return load_plugins(replace(site, confinement=confinement_of(config)))


def confinement_of(config: Config) -> Confinement:
    """Return how programs of tenants on this host are kept from what is ours."""
    hidden = [Path(name).resolve() for name in (config.data, config.tls_key) if name]
    readable = [Path(name).resolve() for name in config.machine_paths.split(":") if name]
    return Confinement(hidden, readable, config.machine_uids, required=config.confinement == "required")


@asynccontextmanager
async def engine_of(config: Config, traces: Traces, plugins: Sequence[DomainPlugin]) -> AsyncIterator[ObservedEngine]:
    """Run an engine with all domains beside it, with a worker if the configuration says so."""
    engine = ObservedEngine(
        store_of(config),
        kinds_of(plugins),
        traces,
        works=config.worker,
        slots=config.slots,
        lease_s=config.lease,
        admission=QuotaGuard(),
    )
    for plugin in plugins:
        plugin.bind_engine(engine)
    async with AsyncExitStack() as stack:
        if config.worker and not config.database.startswith("postgres"):
            stack.enter_context(DataDir(config).worker_lock())
        await stack.enter_async_context(engine)
        for plugin in plugins:
            await stack.enter_async_context(plugin.running(engine, works=config.worker))
        await stack.enter_async_context(prune_hourly(engine.store, config.history if config.worker else 0))
        yield engine


@asynccontextmanager
async def open_application(config: Config, traces: Traces | None = None) -> AsyncIterator[ServerApplication]:
    """Run the whole application on a configuration, but listen nowhere."""
    DataDir(config).create()
    traces = traces or NoTraces()
    calls = ProviderCalls(traces.provider_call)
    plugins = plugins_of(config, calls)
    async with engine_of(config, traces, plugins) as engine:
        tokens = Tokens(engine)
        domains = [route for plugin in plugins for route in plugin.routes]
        app = create_app(
            engine,
            tokens,
            config,
            routes=(*prometheus_metrics.ROUTES, *console_routes.ROUTES, *domains),
            api_routes=(*live_routes.ROUTES, *console_routes.API_ROUTES),
            composite_actions=CompositeActions(plugins),
        )
        async with LiveFeeds(engine) as live_feeds:
            app.state.live_feeds, app.state.metrics = live_feeds, live_feeds.metrics
            engine.metrics = live_feeds.metrics
            calls.bind_metrics(live_feeds.metrics)
            yield ServerApplication(app, engine, plugins, tokens, live_feeds)


@asynccontextmanager
async def _demo_running(parts: ServerApplication, config: Config) -> AsyncIterator[None]:
    """Keep the demo's users at it, if the configuration says so."""
    shows = [plugin.demo(parts.engine) for plugin in parts.plugins] if config.demo else []
    users = [asyncio.create_task(show) for show in shows]
    for user in users:
        user.add_done_callback(_log_demo_failure)
    try:
        yield
    finally:
        await cancel_tasks(users)


def _log_demo_failure(user: "asyncio.Task[None]") -> None:
    """Tell of a part of the demo that has ended by an error: nobody waits for it."""
    error = None if user.cancelled() else user.exception()
    if error is not None:
        log.error("a part of the demo has ended", exc_info=error)


# --- serving ---------------------------------------------------------------------------------------------------------


async def serve(config: Config, started: Callable[[ServerInfo], None]) -> None:
    """Serve until told to stop; `started` is called when calls are answered."""
    traces = start_traces(os.environ)
    folder = DataDir(config)
    folder.create()
    listener = listener_of(config)
    try:
        async with open_application(config, traces) as parts:
            complaint = await folder.ensure_admin_token(parts.tokens)
            if complaint is not None:
                log.warning(complaint)
            async with _demo_running(parts, config):
                await _listen(config, parts, traces, listener, folder, started)
    finally:
        listener.close()
        folder.remove_address()
        traces.stop()


async def _listen(
    config: Config,
    parts: ServerApplication,
    traces: Traces,
    listener: socket.socket,
    folder: DataDir,
    started: Callable[[ServerInfo], None],
) -> None:
    def tell() -> None:
        tune_garbage_collector()
        folder.write_address(_url(config, listener, local=True))
        token = str(folder.token_file) if folder.token_file.exists() else None
        started(ServerInfo(_url(config, listener), token))

    async def let_go() -> None:
        await parts.live_feeds.close()
        await _wait_until(STREAM_CLOSE_TIMEOUT_S, lambda: not parts.live_feeds.feed.readers)

    app = with_telemetry(parts.app, traces, parts.live_feeds.metrics)
    await Server(_load_certificate(uvicorn_config(config, app), config), tell, let_go).serve(sockets=[listener])


def _load_certificate(settings: uvicorn.Config, config: Config) -> uvicorn.Config:
    """Read what the settings name, which is a certificate if anything."""
    try:
        settings.load()
    except OSError as error:  # one of TLS is one of these, too
        allowed = f"a certificate that can be used with the key {config.tls_key!r} ({error.strerror or error})"
        raise BadInput("tls_cert", config.tls_cert, allowed) from error
    return settings


def with_telemetry(app: Any, traces: Traces, metrics: Metrics) -> Any:  # noqa: ANN401 - an ASGI application
    """Return an application whose calls are counted, and traced if anything is."""
    return RequestCounter(app if isinstance(traces, NoTraces) else RequestTracer(app, traces), metrics)


def uvicorn_config(config: Config, app: Any) -> uvicorn.Config:  # noqa: ANN401 - an ASGI application
    """Return how an application is served."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=config.log_level == "debug",
        http=limited_http_protocol(config.body_time, config.body_limit),
        ws=LimitedWebSocketProtocol,
        ws_max_size=MAX_FIRST_MESSAGE_BYTES,
        ws_per_message_deflate=False,  # it costs each connection more memory than all else together
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
        ssl_certfile=config.tls_cert or None,
        ssl_keyfile=config.tls_key or None,
        lifespan="on",
    )


SAME_SIGNAL_S = 1.0
"""Within how many seconds two signals are one wish: a whole group of processes is told, and some pass it on."""


class Server(uvicorn.Server):
    """A server that says when it answers, and lets those go who would stay for ever before it stops."""

    def __init__(self, config: uvicorn.Config, tell: Callable[[], None], let_go: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._tell, self._let_go = tell, let_go
        self._told_at = 0.0

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal: gracefully on the first, at once on a second one that comes later."""
        with _on_signals(self._told):
            yield

    def _told(self) -> None:
        if not self.should_exit:
            self.should_exit, self._told_at = True, monotonic()
        elif monotonic() - self._told_at > SAME_SIGNAL_S:
            self.force_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        self._tell()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nothing more, let the streams go, answer what was begun."""
        for server in self.servers:
            server.close()
        await self._let_go()
        await super().shutdown(sockets)


def listener_of(config: Config) -> socket.socket:
    """Take the address first: whoever cannot have it is to know at once."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise CannotListen(config.host, config.port, error.strerror or str(error)) from error
    return listener


def _url(config: Config, listener: socket.socket, *, local: bool = False) -> str:
    """Return where the server is: as it was named, or as this machine reaches it."""
    bound, port = listener.getsockname()[:2]
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - to be told from others, not to be bound to
    host = everywhere.get(bound, bound) if local or config.host in ("", *everywhere) else config.host
    return f"{'https' if config.tls_cert else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


# --- working ---------------------------------------------------------------------------------------------------------


async def work(config: Config, started: Callable[[str], None]) -> None:
    """Work until told to stop; `started` is called with the worker's name when it is at work."""
    traces, stop = start_traces(os.environ), asyncio.Event()
    try:
        with _on_signals(stop.set):
            async with engine_of(config, traces, plugins_of(config, ProviderCalls(traces.provider_call))) as engine:
                tune_garbage_collector()
                started(engine.worker.name if engine.worker is not None else "")
                await stop.wait()
    finally:
        traces.stop()


@contextmanager
def _on_signals(told: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for one in SIGNALS:
        loop.add_signal_handler(one, told)
    try:
        yield
    finally:
        for one in SIGNALS:
            loop.remove_signal_handler(one)


async def _wait_until(seconds: float, condition: Callable[[], bool]) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        return


def run_on_best_loop(program: Awaitable[None]) -> None:
    """Run a program on uvloop where there is one."""

    async def run() -> None:
        await program

    try:
        from uvloop import new_event_loop
    except ImportError:
        asyncio.run(run())
        return
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run())


def kinds_of(plugins: Sequence[DomainPlugin]) -> list[Kind]:
    """Return every kind that a server knows: those of the domains, and the deployment's own."""
    return [*(kind for plugin in plugins for kind in plugin.kinds), token_kind(), quota_kind(), history_kind()]
