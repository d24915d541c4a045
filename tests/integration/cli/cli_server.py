"""A server on a socket, in a thread of its own, and a command line that uses it."""

import asyncio
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import uvicorn
from typer.testing import CliRunner, Result

from stateward.access import Role, Tokens
from stateward.access.quotas import Quota, Quotas, quota_kind
from stateward.access.tokens import token_kind
from stateward.cli.main import app as command_line
from stateward.config import Config
from stateward.engine import Engine, Route
from stateward.plugin.runtime import DomainRuntime
from stateward.server.app import create_app
from stateward.server.live import live_routes
from stateward.server.live.feeds import LiveFeeds
from stateward.server.routes import console_routes
from stateward.server.routes.composite_actions import CompositeActions
from stateward.store import open_store
from tests.integration.engine.pump_kinds import PUMP, Plant
from tests.integration.engine.record_kinds import RecordWork
from tests.waiting import until

T = TypeVar("T")

WIDE = {"COLUMNS": "250", "NO_COLOR": "1"}


class CliServer:
    """A server with an engine and the kinds of the test plant."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ns = "default"
        self.url = ""
        self.token = ""
        self.plant: Plant
        self.engine: Engine
        self.tokens: Tokens
        self._loop: asyncio.AbstractEventLoop
        self._server: uvicorn.Server
        self._ready = threading.Event()

    @contextmanager
    def opened(self) -> "Iterator[CliServer]":
        """Serve in a thread until the block ends."""
        thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        thread.start()
        assert self._ready.wait(120)
        try:
            yield self
        finally:
            self.do(self._stop)
            thread.join(30)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.plant = Plant()
        config = Config(data=str(self.folder), rate=100_000)
        kinds = [token_kind(), quota_kind(), self.plant.pump(), self.plant.station(), RecordWork().kind()]
        async with Engine(open_store(config.store_url), kinds) as self.engine:
            self.tokens = Tokens(self.engine)
            self.token, _ = await self.tokens.issue("the test", Role.ADMIN, ["*"])
            app = create_app(self.engine, self.tokens, config, api_routes=(*live_routes.ROUTES, console_routes.get_me))
            async with LiveFeeds(self.engine) as live_feeds:
                app.state["live_feeds"] = live_feeds
                await self._listen(app)

    async def _listen(self, app: Any) -> None:
        self._server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", ws="websockets-sansio"))
        serving = asyncio.create_task(self._server.serve())
        await until(lambda: self._server.started)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._ready.set()
        await serving

    def _stop(self) -> None:
        self.plant.release()
        self._server.should_exit = True

    def do(self, what: Callable[[], object]) -> None:
        """Call a function on the server's loop, and wait for it."""

        async def doing() -> None:
            what()

        self.ask(doing())

    def ask(self, what: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the server's loop."""
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(30)

    def use_namespace(self, ns: str) -> None:
        """Go on in a namespace that exists by its quota, which limits nothing."""
        self.ns = ns
        self.ask(Quotas(self.engine).set(Quota(ns, {}, None)))

    # --- the command line --------------------------------------------------------------------------------------------

    @property
    def env(self) -> dict[str, str]:
        """How the environment tells a command about this server."""
        return {
            **WIDE,
            "STATEWARD_SERVER": self.url,
            "STATEWARD_TOKEN": self.token,
            "STATEWARD_NAMESPACE": self.ns,
        }

    def run(self, *words: str, token: str | None = None, stdin: str | None = None) -> Result:
        """Run a command against this server."""
        env = {**self.env, **({} if token is None else {"STATEWARD_TOKEN": token})}
        return CliRunner().invoke(command_line, words, env=env, input=stdin)

    def json(self, *words: str, code: int = 0, **how: Any) -> Any:
        """Run a command with --json and return what it says."""
        done = self.run(*words, "--json", **how)
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)

    def routed(self, name: str, capacity: int) -> str:
        """Send the work on an object through a lane of its own, and return the lane."""
        lane = f"{self.ns}/{name}"
        self.plant.lanes[name] = Route(self.ns, lane)
        assert self.run("lanes", "set", lane, "--capacity", str(capacity)).exit_code == 0
        return lane

    def built(self, name: str, parent: str | None = None, **labels: str) -> None:
        """Build a pump and see it built."""
        self.ask(self._built(name, parent, labels))

    async def _built(self, name: str, parent: str | None, labels: dict[str, str]) -> None:
        made = await self.engine.create(self.ns, name, PUMP.kind, "build", parent=parent, labels=labels)
        await self.engine.wait_record(self.ns, made.op.id, 120)


class DomainCliServer(CliServer, ABC):
    """A server with one domain and its background tasks."""

    command: ClassVar[str]

    @abstractmethod
    def make_runtime(self) -> DomainRuntime:
        """Return the runtime of the domain."""

    async def stop_users(self) -> None:
        """End what uses the server besides the command line."""

    async def _serve(self) -> None:
        self._loop, self.plant = asyncio.get_running_loop(), Plant()
        config = Config(data=str(self.folder), rate=100_000)
        runtime = self.make_runtime()
        engine = Engine(open_store(config.store_url), [token_kind(), quota_kind(), *runtime.kinds], lease_s=30.0)
        runtime.bind_engine(engine)
        async with engine as self.engine, runtime.running(engine, works=True):
            self.tokens = Tokens(self.engine)
            self.token, _ = await self.tokens.issue("the test", Role.ADMIN, ["*"])
            app = create_app(
                self.engine,
                self.tokens,
                config,
                routes=runtime.routes,
                api_routes=live_routes.ROUTES,
                composite_actions=CompositeActions([runtime]),
            )
            async with LiveFeeds(self.engine) as live_feeds:
                app.state["live_feeds"] = live_feeds
                await self._listen(app)
            await self.stop_users()

    def done(self, *words: str) -> str:
        """Run a command of the domain that succeeds, and return what it prints."""
        result = self.run(self.command, *words)
        assert result.exit_code == 0, result.output
        return result.stdout

    def refused(self, *words: str) -> str:
        """Run a command of the domain that fails, and return why."""
        result = self.run(self.command, *words)
        assert result.exit_code != 0, result.output
        return result.output

    def seen(self, *words: str) -> Any:
        """Run a command of the domain with --json, and return what it says."""
        return self.json(self.command, *words)
