"""The processes that are measured: a server of ours, a bare one, and an engine without a server.

Ours is all that `stateward serve` puts around an engine: it counts its calls and times what it accepts, and nothing is
traced, as long as no exporter is named. The engine alone holds requests to quotas too, as the server's does. All of
them have the garbage collector settled.

Each prints one line of JSON when it is ready, and then does what it is told on its standard input, one line each.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from litestar import Litestar, get, post
from litestar.types import ASGIApp

from bench import loops
from bench.engine.lamps import LAMP, NS, lamp, lamps, name_of
from stateward.access import Role, Tokens
from stateward.access.quotas import QuotaGuard, quota_kind
from stateward.access.tokens import ANY, token_kind
from stateward.config import Config
from stateward.engine import Accepted, Engine, Kind
from stateward.engine.kinds import Kinds
from stateward.schemas.objects import ObjectView
from stateward.schemas.operations import AcceptedView
from stateward.schemas.request_bodies import Ask
from stateward.server import run
from stateward.server.app import create_app
from stateward.server.live.feeds import LiveFeeds
from stateward.server.live.live_routes import ROUTES
from stateward.server.presenter import Presenter
from stateward.server.run import tune_garbage_collector
from stateward.server.telemetry.observed_engine import ObservedEngine
from stateward.server.telemetry.traces import NoTraces
from stateward.server.views import state_classes
from stateward.store import open_store

CALLERS = 64


def kinds() -> list[Kind]:
    """Return what the engines know."""
    return [lamps(), token_kind(), quota_kind()]


@asynccontextmanager
async def listening(app: ASGIApp, config: Config) -> AsyncIterator[str]:
    """Serve an application as ours is served, and yield where."""
    listener = run.listener_of(config)
    started = asyncio.Event()

    async def on_started() -> None:
        started.set()

    async def nothing() -> None:
        return

    server = run.Server(run.uvicorn_config(config, app), on_started, nothing, nothing)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await started.wait()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    await serving


async def ours(url: str) -> None:
    """Serve the API; on the word of the caller, change the state of so many lamps a second."""
    config = Config(port=0, rate=1_000_000_000, page_limit=1000)
    traces = NoTraces()
    engine = ObservedEngine(open_store(url), kinds(), traces, works=False, admission=QuotaGuard())
    async with engine:
        tokens = Tokens(engine)
        token, _ = await tokens.issue("bench", Role.ADMIN, [ANY])
        app = create_app(engine, tokens, config, api_routes=ROUTES)
        async with LiveFeeds(engine) as live_feeds:
            app.state.live_feeds, engine.metrics = live_feeds, live_feeds.metrics
            async with listening(run.with_telemetry(app, traces, live_feeds.metrics), config) as address:
                ready(address=address, token=token)
                async for word in words():
                    await make_lamps(engine, int(word["a_second"]), float(word["seconds"]))
                    tell(done=True)


NUMBERS = count(10_000_000)


async def make_lamps(engine: Engine, a_second: int, seconds: float) -> None:
    """Make lamps at a steady pace; each is one line of the journal."""
    clock = asyncio.get_running_loop().time
    begun, made = clock(), 0
    while (now := clock() - begun) < seconds:
        while made < now * a_second:
            await engine.create(NS, name_of(next(NUMBERS)), LAMP.kind, "make")
            made += 1
        await asyncio.sleep(0.005)


async def bare() -> None:
    """Serve the same answers from two handlers that do nothing."""
    kinds_known = [lamps()]
    presenter = Presenter(Kinds(kinds_known).disclosure(internal=True), state_classes(kinds_known))
    shown = presenter.object(lamp(1))
    async with Engine(open_store(":memory:"), [lamps()], works=False) as engine:
        await engine.create(NS, "lamp", LAMP.kind, "make")
        accepted: Accepted = await engine.act(NS, "lamp", "flash")

    @get("/api/v1/ns/{ns:str}/objects/{id_:str}")
    async def get_object(ns: str, id_: str) -> ObjectView:  # noqa: ARG001 - read as ours are
        return shown

    @post("/api/v1/ns/{ns:str}/objects/{id_:str}/actions/{action:str}", status_code=202)
    async def act(ns: str, id_: str, action: str, data: Ask) -> AcceptedView:  # noqa: ARG001 - read as ours are
        return presenter.accepted(accepted)

    app = Litestar([get_object, act], openapi_config=None, logging_config=None)
    async with listening(app, Config(port=0)) as address:
        ready(address=address, token="")
        async for _ in words():
            pass


async def accept(url: str) -> None:
    """Accept as many actions as told, without any server."""
    async with Engine(open_store(url), kinds(), works=False, admission=QuotaGuard()) as engine:
        ready(ready=True)
        async for word in words():
            numbers = iter(range(int(word["first"]), int(word["first"]) + int(word["actions"])))

            await asyncio.gather(*(flash(engine, numbers) for _ in range(CALLERS)))
            tell(done=True)


async def flash(engine: Engine, numbers: Iterator[int]) -> None:
    """Flash one lamp after the other, beside others who do the same."""
    for number in numbers:
        await engine.act(NS, name_of(number), "flash", args={"times": 3}, who="bench")


def ready(**what: object) -> None:
    """Say that all is there."""
    tune_garbage_collector()
    tell(**what)


def tell(**what: object) -> None:
    """Say something to the caller."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


async def words() -> AsyncIterator[dict[str, Any]]:
    """Yield what the caller says, until it has no more to say."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)


if __name__ == "__main__":
    programs: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {"ours": ours, "bare": bare, "accept": accept}
    loops.run(programs[sys.argv[1]](*sys.argv[2:]))
