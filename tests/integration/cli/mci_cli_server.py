"""A server with the mci domain on fast simulated clouds and real processes, and a command line that uses it."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any

from typer.testing import CliRunner, Result

from stateward.access import Role, Tokens
from stateward.access.quotas import quota_kind
from stateward.access.tokens import token_kind
from stateward.cli.main import app as command_line
from stateward.config import Config
from stateward.domains.mci.api import routes
from stateward.domains.mci.runtime import MciRuntime
from stateward.drivers.simulated import CALM, SimulatedCloud
from stateward.engine import Engine
from stateward.plugin.runtime import ProcessContext
from stateward.server.app import create_app
from stateward.server.live import live_routes
from stateward.server.live.feeds import LiveFeeds
from stateward.server.routes.composite_actions import CompositeActions
from stateward.store import open_store
from tests.integration.cli.cli_server import CliServer
from tests.integration.engine.pump_kinds import Plant


class MciServer(CliServer):
    """A server with the mci domain."""

    plugin: MciRuntime

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.cloud = SimulatedCloud(profile=CALM, chance=Random(1))

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.plant = Plant()
        config = Config(data=str(self.folder), rate=100_000)
        self.plugin = MciRuntime(
            ProcessContext(self.folder, random=Random(1)), cloud=self.cloud, tick=0.01, every=3600.0
        )
        engine = Engine(open_store(config.store_url), [token_kind(), quota_kind(), *self.plugin.kinds])
        self.plugin.bind_engine(engine)
        async with engine as self.engine, self.plugin.running(engine, works=True):
            self.tokens = Tokens(self.engine)
            self.token, _ = await self.tokens.issue("the test", Role.ADMIN, ["*"])
            app = create_app(
                self.engine,
                self.tokens,
                config,
                routes=self.plugin.routes or routes(self.plugin),
                api_routes=live_routes.ROUTES,
                composite_actions=CompositeActions([self.plugin]),
            )
            async with LiveFeeds(self.engine) as live_feeds:
                app.state["live_feeds"] = live_feeds
                await self._listen(app)

    def run(self, *words: str, token: str | None = None, stdin: str | None = None) -> Result:
        """Run a command against this server."""
        env = {**self.env, **({} if token is None else {"STATEWARD_TOKEN": token})}
        return CliRunner().invoke(command_line, words, env=env, input=stdin)

    def made(self, fleet: str) -> Any:
        """Make an MCI from a text, and see it made."""
        return self.json("mci", "create", "-f", "-", "--wait", stdin=fleet)
