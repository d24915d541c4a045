"""A stage for the console: the real application on a real store, and a fleet with something to show in every view.

    python -m tests.console.stage --data FOLDER [--port 0] [--cells 50000] [--rate 200] [--empty]

The work is done by simulated clouds. A stage that is started again on its folder goes on where it was.
"""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from random import Random

from litestar import Litestar

from stateward.access import Tokens
from stateward.access.quotas import Quota, QuotaGuard, Quotas, quota_kind
from stateward.access.tokens import token_kind
from stateward.config import Config
from stateward.domains.registry import lifecycles
from stateward.engine import Denied, Engine, Kind, LockRequest
from stateward.server.app import create_app
from stateward.server.data_dir import DataDir
from stateward.server.live import live_routes
from stateward.server.live.feeds import LiveFeeds
from stateward.server.routes import console_routes
from stateward.server.run import Server, listener_of, uvicorn_config
from stateward.server.telemetry import prometheus_metrics
from stateward.store import open_store
from stateward.store.changes import Changes
from stateward.store.filters import Page, Selector
from stateward.store.port import Tx
from stateward.store.records import Key, Lane, LaneGroup, Timer
from tests.console.cast import CROWD, DAY, GROUPS, HOUR, LANES, NS, WHO, Part, cast, crowd, line_of, object_of
from tests.simulated_clouds import CloudFaults, SimulatedClouds

QUICK, SLOW, CROWDED = CloudFaults(0.3, 1.0, 0, 0), CloudFaults(1_500, 1_600, 0, 0), CloudFaults(0.05, 0.2, 0.02, 0)
HABITS = {"Running": "suspend", "Suspended": "resume", "Failed": "terminate"}


class Stage:
    """The fleet, and the one who keeps it in motion."""

    def __init__(self, engine: Engine, chance: Random) -> None:
        self.engine, self._chance = engine, chance

    async def set_up(self, cells: int) -> None:
        """Make all that is there at first."""
        now = time.time()
        groups = [LaneGroup(*one) for one in GROUPS]
        lanes = [Lane(lane, lane.partition("/")[0], capacity, 0.0, 0.0, 0) for lane, capacity in LANES]
        await self.engine.set_limits(groups, lanes)
        await self._enter(NS, cast(now), now - HOUR)
        await self._enter(CROWD, crowd(cells, self._chance), now - HOUR)
        for name, days in (("old-web", 6.2), ("old-data", 0.4)):
            timer = Timer(NS, f"purge {name}", now + days * DAY, 0, name, "destroy", "[]", "{}")
            await self.engine.set_timer(timer)
        await Quotas(self.engine).set(Quota(NS, {"mci.vm": 500}, 100), WHO)

    async def _enter(self, ns: str, parts: Iterable[Part], at: float) -> None:
        rows = [(object_of(ns, part, at), line_of(ns, part, at)) for part in parts]

        async def program(tx: Tx) -> None:
            journal = [line for _, line in rows] if ns == NS else []
            await tx.apply(Changes(objects=[row for row, _ in rows], journal=journal))

        await self.engine.store.transact(program)

    async def hold_locks(self) -> None:
        """Let changes of a system stand in each other's way: the first takes long."""
        for name, path in (("deploy-1", "/api"), ("deploy-2", "/api/auth"), ("deploy-3", "/web")):
            wishes = [LockRequest("/", "IX"), LockRequest(path, "X")]
            with suppress(Denied):
                await self.engine.create(
                    NS, name, "systems.deploy", "deploy", parent="billing", spec={"path": path},
                    tree="billing", locks=wishes, wait=True, who="ann",
                )  # fmt: skip

    async def move(self, rate: float) -> None:
        """Move VMs of the crowd back and forth: each action is two transitions."""
        found = await self.engine.store.reader.list_objects(Selector(CROWD, "mci.vm"), Page(None, 1_000_000))
        names, begun, done = [one.id for one in found], time.monotonic(), 0
        while names and rate:
            due = min(int((time.monotonic() - begun) * rate / 2), done + 100)
            await asyncio.gather(*(self._poke(self._chance.choice(names)) for _ in range(due - done)))
            done = due
            await asyncio.sleep(0.02)

    async def _poke(self, name: str) -> None:
        found = await self.engine.store.reader.object(Key(CROWD, name))
        action = HABITS.get(found.state) if found is not None else None
        if action is not None:
            with suppress(Denied):
                await self.engine.act(CROWD, name, action, who=WHO)


def kinds() -> list[Kind]:
    """Return all kinds, with simulated work: that of deploys takes long, that of a crowd is quick."""
    quick, slow = SimulatedClouds(QUICK, Random(1)), SimulatedClouds(SLOW, Random(1))
    made = [(slow if one.kind == "systems.deploy" else quick).kind(one) for one in lifecycles()]
    return [*made, token_kind(), quota_kind()]


@asynccontextmanager
async def open_stage(
    config: Config, *, cells: int = 0, empty: bool = False, locks: bool = True
) -> AsyncIterator[tuple[Litestar, Stage]]:
    """Run the application on a folder; what is not there yet is made. Where locks are held, closing takes its time."""
    folder = DataDir(config)
    folder.create()
    fresh = not folder.token_file.exists()
    async with Engine(open_store(config.store_url), kinds(), slots=2_000, admission=QuotaGuard()) as engine:
        tokens, stage = Tokens(engine), Stage(engine, Random(7))
        await folder.ensure_admin_token(tokens)
        if fresh and not empty:
            await stage.set_up(cells)
            await stage.hold_locks() if locks else None
        app = create_app(
            engine,
            tokens,
            config,
            routes=(*prometheus_metrics.ROUTES, *console_routes.ROUTES),
            api_routes=(*live_routes.ROUTES, *console_routes.API_ROUTES),
        )
        async with LiveFeeds(engine) as live_feeds:
            app.state.live_feeds, app.state.metrics = live_feeds, live_feeds.metrics
            yield app, stage


async def play(config: Config, cells: int, rate: float, *, empty: bool) -> None:
    """Serve until told to stop."""
    folder, listener = DataDir(config), listener_of(config)
    url = f"http://{config.host}:{listener.getsockname()[1]}"
    async with open_stage(config, cells=cells, empty=empty) as (app, stage):
        live_feeds: LiveFeeds = app.state.live_feeds
        mover = asyncio.create_task(stage.move(rate))
        server = Server(uvicorn_config(config, app), lambda: folder.write_address(url), live_feeds.close)
        await server.serve(sockets=[listener])
        mover.cancel()
        await asyncio.gather(mover, return_exceptions=True)
    folder.remove_address()


def main() -> None:
    """Serve a stage."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--cells", type=int, default=400)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--empty", action="store_true")
    asked = parser.parse_args()
    config = Config(data=asked.data, port=asked.port, demo=not asked.empty, rate=100_000)
    asyncio.run(play(config, asked.cells, asked.rate, empty=asked.empty))


if __name__ == "__main__":
    main()
