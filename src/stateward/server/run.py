"""The processes: `serve` (the API, usually with a worker) and `work` (a worker alone).

SIGTERM or SIGINT stops a process gracefully: its worker claims nothing more and lets handlers end in time, while the
server still serves clients and agents; then it accepts no new requests, completes open responses, closes streams, and
requeues the remaining operations. A second signal ends the waiting. No accepted operation is lost either way, because
the store has it.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
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
from stateward.access.sessions import session_kind
from stateward.access.tokens import token_kind
from stateward.aio.open_files import raise_open_file_limit
from stateward.aio.supervise import cancel_tasks
from stateward.config import Config, hidden_paths, masked
from stateward.engine import Kind
from stateward.engine.maintenance.retention import history_kind
from stateward.engine.protection import protection_kind
from stateward.errors import BadInput, StatewardError
from stateward.plugin.runtime import DomainRuntime, ProcessContext
from stateward.server.app import create_app
from stateward.server.connection_limits import MAX_HEAD_BYTES, LimitedWebSocketProtocol, limited_http_protocol
from stateward.server.data_dir import DataDir, create_private
from stateward.server.database_wait import wait_for_database
from stateward.server.domain_loading import LoadedDomains, load_domains
from stateward.server.live import live_routes
from stateward.server.live.feeds import LiveFeeds
from stateward.server.routes import console_routes
from stateward.server.routes.composite_actions import CompositeActions
from stateward.server.routes.retention_routes import prune_hourly
from stateward.server.telemetry import prometheus_metrics
from stateward.server.telemetry.observed_engine import ObservedEngine
from stateward.server.telemetry.prometheus_metrics import Metrics, ProviderCalls, RequestCounter
from stateward.server.telemetry.traces import NoTraces, RequestTracer, Traces, start_traces
from stateward.store import open_store
from stateward.store.port import Store
from stateward.workloads.confinement import confinement_of

log = logging.getLogger("stateward.server")

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SHUTDOWN_TIMEOUT_S = 15
"""How many seconds open responses have to complete when the server stops."""

STREAM_CLOSE_TIMEOUT_S = 2.0
"""How many seconds the readers of streams have to disconnect when the server stops."""

MAX_FIRST_MESSAGE_BYTES = 64 * 1024


class CannotListen(StatewardError):
    """The address is in use, or does not belong to this host."""

    host: str
    port: int
    why: str
    text = "cannot listen on {host}:{port}: {why}"


class ServerApplication(Struct, frozen=True):
    """A running application with its parts."""

    app: Litestar
    engine: ObservedEngine
    domains: LoadedDomains
    tokens: Tokens
    live_feeds: LiveFeeds


class ServerInfo(Struct, frozen=True):
    """The URL of a started server, and the file with the administrator's token, if there is one."""

    url: str
    token_file: str | None


# --- the parts -------------------------------------------------------------------------------------------------------


def store_of(config: Config) -> Store:
    """Return the configured store; the file of a new embedded database is readable by its owner only."""
    if not config.database:
        create_private(Path(config.store_url))
    try:
        return open_store(config.store_url, pooled=config.pooler, direct=config.direct_url or None)
    except BadInput as error:
        raise BadInput("database", masked(config.store_url), error.allowed) from None


def domains_of(config: Config, calls: ProviderCalls) -> LoadedDomains:
    """Load the domains; they get an absolute data folder, because they pass it to programs that they start."""
    folder = Path(config.data).resolve()
    random = Random()  # noqa: S311 - not for secrets
    context = ProcessContext(
        folder, config.demo, config.local, random, calls.count_call, calls.count_saved, settings=config.domains
    )
    own = replace(
        context,
        confinement=confinement_of(config, hidden_paths(config)),
        is_embedded=not config.database,
        server_url=config.server_url,
        server_port=config.port,
    )
    return load_domains(config, own)


@asynccontextmanager
async def engine_of(config: Config, traces: Traces, runtimes: Sequence[DomainRuntime]) -> AsyncIterator[ObservedEngine]:
    """Run an engine and the background tasks of all domains; its worker, if configured, is yet to be started.

    The worker runs within this context (`running_worker`), because its handlers use the clients of the domains.
    """
    engine = ObservedEngine(
        store_of(config),
        kinds_of(runtimes),
        traces,
        works=config.worker,
        slots=config.slots,
        lease_s=config.lease,
        admission=QuotaGuard(),
    )
    for runtime in runtimes:
        runtime.bind_engine(engine)
    async with AsyncExitStack() as stack:
        if config.worker and not config.database.startswith("postgres"):
            stack.enter_context(DataDir(config).worker_lock())
        await engine.open()
        stack.push_async_callback(engine.close)
        for runtime in runtimes:
            await stack.enter_async_context(runtime.running(engine, works=config.worker))
        days = config.history if config.worker else 0
        await stack.enter_async_context(prune_hourly(engine.store, days, Tokens(engine).remove_ended))
        yield engine


@asynccontextmanager
async def running_worker(engine: ObservedEngine) -> AsyncIterator[None]:
    """Run the worker of an engine, if it has one."""
    await engine.start_worker()
    try:
        yield
    finally:
        await engine.stop_worker()


@asynccontextmanager
async def open_application(config: Config) -> AsyncIterator[ServerApplication]:
    """Run the whole application with its worker, without listening on a port."""
    async with prepare_application(config) as parts, running_worker(parts.engine):
        yield parts


@asynccontextmanager
async def prepare_application(config: Config, traces: Traces | None = None) -> AsyncIterator[ServerApplication]:
    """Run the whole application, without its worker and without listening on a port."""
    DataDir(config).create()
    traces = traces or NoTraces()
    calls = ProviderCalls(traces.provider_call)
    domains = domains_of(config, calls)
    async with engine_of(config, traces, domains.runtimes) as engine:
        tokens = Tokens(engine)
        of_domains = [route for runtime in domains.runtimes for route in runtime.routes]
        app = create_app(
            engine,
            tokens,
            config,
            routes=(*prometheus_metrics.ROUTES, *console_routes.ROUTES, *of_domains),
            api_routes=(*live_routes.ROUTES, *console_routes.API_ROUTES),
            composite_actions=CompositeActions(domains.runtimes),
            plugins=domains.usable,
        )
        async with LiveFeeds(engine) as live_feeds:
            app.state.live_feeds, app.state.metrics = live_feeds, live_feeds.metrics
            engine.metrics = live_feeds.metrics
            calls.bind_metrics(live_feeds.metrics)
            yield ServerApplication(app, engine, domains, tokens, live_feeds)


def _log_demo_failure(task: "asyncio.Task[None]") -> None:
    """Log a demo that failed: nobody awaits its task."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.error("demo of a domain failed and is not restarted", exc_info=error)


# --- serving ---------------------------------------------------------------------------------------------------------


async def serve(config: Config, started: Callable[[ServerInfo], None]) -> None:
    """Serve until a signal stops the process; `started` is called when the server accepts requests."""
    traces = start_traces(os.environ)
    folder = DataDir(config)
    folder.create()
    listener = listener_of(config)
    config = replace(config, port=listener.getsockname()[1])
    try:
        async with AsyncExitStack() as application, AsyncExitStack() as worker:

            async def start() -> tuple[ServerApplication, str | None]:
                async with AsyncExitStack() as started:
                    parts = await started.enter_async_context(prepare_application(config, traces))
                    complaint = await folder.ensure_admin_token(parts.tokens)
                    application.push_async_exit(started.pop_all())
                return parts, complaint

            parts, complaint = await wait_for_database(config, store_of, start)
            if complaint is not None:
                log.warning(complaint)
            runtimes = parts.domains.runtimes if config.demo else ()
            demos = [asyncio.create_task(runtime.demo(parts.engine)) for runtime in runtimes]
            for task in demos:
                task.add_done_callback(_log_demo_failure)
            try:
                await _listen(config, parts, worker, traces, listener, folder, started, demos)
            finally:
                await cancel_tasks(demos)
    finally:
        listener.close()
        folder.remove_address()
        traces.stop()


async def _listen(
    config: Config,
    parts: ServerApplication,
    worker: AsyncExitStack,
    traces: Traces,
    listener: socket.socket,
    folder: DataDir,
    started: Callable[[ServerInfo], None],
    demos: "Sequence[asyncio.Task[None]]",
) -> None:
    async def on_started() -> None:
        # Only now: an operation that occupies this process must not keep it from answering, say, its cancellation.
        await worker.enter_async_context(running_worker(parts.engine))
        tune_garbage_collector()
        folder.write_address(_url(config, listener, local=True))
        log.info("server answers on %s; its database is %s", _url(config, listener), masked(config.store_url))
        token = str(folder.token_file) if folder.token_file.exists() else None
        started(ServerInfo(_url(config, listener), token))

    async def drain() -> None:
        await cancel_tasks(demos)  # a demo terminates its machines, for which it needs the worker
        await parts.engine.drain()

    async def close_streams() -> None:
        await parts.live_feeds.close()
        await _wait_until(STREAM_CLOSE_TIMEOUT_S, lambda: not parts.live_feeds.feed.readers)

    app = with_telemetry(parts.app, traces, parts.live_feeds.metrics)
    settings = _load_certificate(uvicorn_config(config, app), config)
    await Server(settings, on_started, drain, close_streams).serve(sockets=[listener])


def _load_certificate(settings: uvicorn.Config, config: Config) -> uvicorn.Config:
    """Load the certificate, if one is configured."""
    try:
        settings.load()
    except OSError as error:  # ssl.SSLError is an OSError
        allowed = f"a certificate that can be used with the key {config.tls_key!r} ({error.strerror or error})"
        raise BadInput("tls_cert", config.tls_cert, allowed) from error
    return settings


def with_telemetry(app: Any, traces: Traces, metrics: Metrics) -> Any:  # noqa: ANN401 - an ASGI application
    """Return an application whose requests are counted, and traced if tracing is on."""
    return RequestCounter(app if isinstance(traces, NoTraces) else RequestTracer(app, traces), metrics)


def uvicorn_config(config: Config, app: Any) -> uvicorn.Config:  # noqa: ANN401 - an ASGI application
    """Return the uvicorn configuration for an application."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=config.log_level == "debug",
        http=limited_http_protocol(config.body_time, config.body_limit),
        ws=LimitedWebSocketProtocol,
        ws_max_size=MAX_FIRST_MESSAGE_BYTES,
        ws_per_message_deflate=False,  # compression needs more memory per connection than the rest
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
        ssl_certfile=config.tls_cert or None,
        ssl_keyfile=config.tls_key or None,
        lifespan="on",
    )


SAME_SIGNAL_S = 1.0
"""Within how many seconds two signals count as one: a parent may pass on a signal that the whole group gets."""


class Server(uvicorn.Server):
    """A uvicorn server that calls back when it accepts requests, when it is to stop, and to close endless streams."""

    def __init__(
        self,
        config: uvicorn.Config,
        on_started: Callable[[], Awaitable[None]],
        drain: Callable[[], Coroutine[None, None, None]],
        close_streams: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(config)
        self._on_started, self._drain, self._close_streams = on_started, drain, close_streams
        self._stopped_at = 0.0

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal: gracefully on the first, at once on a second one that comes later."""
        with _on_signals(self._stop):
            yield

    def _stop(self) -> None:
        if not self.should_exit:
            self.should_exit, self._stopped_at = True, monotonic()
        elif monotonic() - self._stopped_at > SAME_SIGNAL_S:
            self.force_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept requests, and call back."""
        await super().startup(sockets)
        await self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, accept no more connections, close streams, complete open responses.

        Agents are served until the worker is drained: operations that they work on can end, and they are alone for no
        longer than a restart takes.
        """
        draining = asyncio.create_task(self._drain())
        while not draining.done() and not self.force_exit:
            await asyncio.wait([draining], timeout=0.05)
        await cancel_tasks([draining])
        for server in self.servers:
            server.close()
        await self._close_streams()
        await super().shutdown(sockets)


def listener_of(config: Config) -> socket.socket:
    """Bind the configured address, before anything else starts, so that a conflict is reported at once."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise CannotListen(config.host, config.port, error.strerror or str(error)) from error
    return listener


def _url(config: Config, listener: socket.socket, *, local: bool = False) -> str:
    """Return the URL of the server: with the configured host, or (`local`) as this machine reaches it."""
    bound, port = listener.getsockname()[:2]
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with, not bound to
    host = everywhere.get(bound, bound) if local or config.host in ("", *everywhere) else config.host
    return f"{'https' if config.tls_cert else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


# --- working ---------------------------------------------------------------------------------------------------------


async def work(config: Config, started: Callable[[str], None]) -> None:
    """Run a worker until a signal stops the process; `started` is called with the worker's name."""
    traces, stop = start_traces(os.environ), asyncio.Event()
    try:
        with ExitStack() as signals:
            async with AsyncExitStack() as parts:

                async def start() -> ObservedEngine:
                    domains = domains_of(config, ProviderCalls(traces.provider_call))
                    return await parts.enter_async_context(engine_of(config, traces, domains.runtimes))

                engine = await wait_for_database(config, store_of, start)
                signals.enter_context(_on_signals(stop.set))
                await parts.enter_async_context(running_worker(engine))
                tune_garbage_collector()
                started(engine.worker.name if engine.worker is not None else "")
                await stop.wait()
                await engine.drain()  # as long as the domains run, whose handlers these are
    finally:
        traces.stop()


@contextmanager
def _on_signals(callback: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for signum in SIGNALS:
        loop.add_signal_handler(signum, callback)
    try:
        yield
    finally:
        for signum in SIGNALS:
            loop.remove_signal_handler(signum)


async def _wait_until(seconds: float, condition: Callable[[], bool]) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        return


def run_on_best_loop(program: Awaitable[None]) -> None:
    """Run a coroutine on uvloop, if that is installed, with as many open files as the system permits."""
    raise_open_file_limit()

    async def run() -> None:
        await program

    try:
        from uvloop import new_event_loop
    except ImportError:
        asyncio.run(run())
        return
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run())


def kinds_of(runtimes: Sequence[DomainRuntime]) -> list[Kind]:
    """Return the kinds of all domains, and the deployment's own kinds."""
    own = (token_kind(), session_kind(), quota_kind(), history_kind(), protection_kind())
    return [*(kind for runtime in runtimes for kind in runtime.kinds), *own]


GC_THRESHOLD = 10_000
"""How many more objects must exist before the collector scans the youngest generation; Python's default is 700."""


def tune_garbage_collector() -> None:
    """Exempt all present objects from collection, and collect new ones less often.

    Modules, routes and tables live until the process ends. Without tuning, the collector scans them repeatedly, and
    the process serves no request meanwhile. Objects of open requests are no garbage either.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    gc.enable()  # the commands that start a process turn it off: what is loaded at the start is no garbage
