"""A server with sample objects for the console: the real application on a real store, with objects for every view.

    python -m tests.console.sample_server --data FOLDER [--port 0] [--cells 50000] [--vms 4100] [--rate 200] [--empty]

Simulated clouds do the work. A server that is started again on its folder continues where it was.
"""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import ClassVar

from litestar import Litestar

from stateward.access import Tokens
from stateward.access.quotas import Quota, QuotaGuard, Quotas, quota_kind
from stateward.access.sessions import session_kind
from stateward.access.tokens import token_kind
from stateward.config import Config
from stateward.domains.mci.service import GROUP_ACTIONS
from stateward.engine import Denied, Engine, Kind, LockRequest
from stateward.plugin.registry import installed
from stateward.plugin.runtime import CompositeParts, DomainRuntime
from stateward.server.app import create_app
from stateward.server.data_dir import DataDir
from stateward.server.live import live_routes
from stateward.server.live.feeds import LiveFeeds
from stateward.server.routes import console_routes
from stateward.server.routes.composite_actions import CompositeActions
from stateward.server.run import Server, listener_of, uvicorn_config
from stateward.server.telemetry import prometheus_metrics
from stateward.store import open_store
from stateward.store.changes import Changes
from stateward.store.filters import Page, Selector
from stateward.store.port import Tx
from stateward.store.records import Key, Lane, LaneGroup, Timer
from tests.console.sample_objects import (
    DAY,
    FLEET_NS,
    GROUPS,
    HOUR,
    LANES,
    NS,
    WHO,
    SampleObject,
    entry_of,
    large_fleet,
    large_mci,
    object_of,
    sample_objects,
)
from tests.simulated_clouds import CloudFaults, SimulatedClouds

QUICK, SLOW, FLEET_FAULTS = (
    CloudFaults(0.3, 1.0, 0, 0),
    CloudFaults(1_500, 1_600, 0, 0),
    CloudFaults(0.05, 0.2, 0.02, 0),
)
NEXT_ACTIONS = {"Running": "suspend", "Suspended": "resume", "Failed": "terminate"}


class SampleComposites(DomainRuntime):
    """Actions on an MCI are actions on its VMs."""

    composite_parts: ClassVar[CompositeParts] = {("mci.mci", action): "mci.vm" for action in GROUP_ACTIONS}


class SampleFleet:
    """The sample objects, and a task that keeps their states changing."""

    def __init__(self, engine: Engine, chance: Random) -> None:
        self.engine, self._chance = engine, chance

    async def set_up(self, cells: int, vms: int) -> None:
        """Store all sample objects."""
        now = time.time()
        groups = [LaneGroup(*one) for one in GROUPS]
        lanes = [Lane(lane, lane.partition("/")[0], capacity, 0.0, 0.0, 0) for lane, capacity in LANES]
        await self.engine.set_limits(groups, lanes)
        await self._enter(NS, sample_objects(now), now - HOUR)
        await self._enter(FLEET_NS, large_fleet(cells, self._chance), now - HOUR)
        if vms:
            await self._enter(FLEET_NS, large_mci(vms, self._chance), now - HOUR)
        for name, days in (("old-web", 6.2), ("old-data", 0.4)):
            timer = Timer(NS, f"purge {name}", now + days * DAY, 0, name, "destroy", "[]", "{}")
            await self.engine.set_timer(timer)
        await Quotas(self.engine).set(Quota(NS, {"mci.vm": 500}, 100), WHO)

    async def _enter(self, ns: str, parts: Iterable[SampleObject], at: float) -> None:
        rows = [(object_of(ns, part, at), entry_of(ns, part, at)) for part in parts]

        async def program(tx: Tx) -> None:
            journal = [line for _, line in rows] if ns == NS else []
            await tx.apply(Changes(objects=[row for row, _ in rows], journal=journal))

        await self.engine.store.transact(program)

    async def hold_locks(self) -> None:
        """Start changes of a system that block each other: the first takes long."""
        for name, path in (("deploy-1", "/api"), ("deploy-2", "/api/auth"), ("deploy-3", "/web")):
            requests = [LockRequest("/", "IX"), LockRequest(path, "X")]
            with suppress(Denied):
                await self.engine.create(
                    NS, name, "systems.deploy", "deploy", parent="billing", spec={"path": path},
                    tree="billing", locks=requests, wait=True, who="ann",
                )  # fmt: skip

    async def move(self, rate: float) -> None:
        """Act on VMs of the fleet: each action is two transitions."""
        found = await self.engine.store.reader.list_objects(Selector(FLEET_NS, "mci.vm"), Page(None, 1_000_000))
        names, begun, done = [one.id for one in found], time.monotonic(), 0
        while names and rate:
            due = min(int((time.monotonic() - begun) * rate / 2), done + 100)
            await asyncio.gather(*(self._act_once(self._chance.choice(names)) for _ in range(due - done)))
            done = due
            await asyncio.sleep(0.02)

    async def _act_once(self, name: str) -> None:
        found = await self.engine.store.reader.object(Key(FLEET_NS, name))
        action = NEXT_ACTIONS.get(found.state) if found is not None else None
        if action is not None:
            with suppress(Denied):
                await self.engine.act(FLEET_NS, name, action, who=WHO)


def kinds() -> list[Kind]:
    """Return all kinds, with simulated work: deploys take long, all others are quick."""
    quick, slow = SimulatedClouds(QUICK, Random(1)), SimulatedClouds(SLOW, Random(1))
    made = [(slow if one.kind == "systems.deploy" else quick).kind(one) for one in installed().lifecycles]
    for one in made:
        one.spec_actions = frozenset({"start", "stop"} if one.name == "ovc.vm" else ())  # so that specs can change
    return [*made, token_kind(), session_kind(), quota_kind()]


@asynccontextmanager
async def open_sample_app(
    config: Config, *, cells: int = 0, vms: int = 0, empty: bool = False, locks: bool = True
) -> AsyncIterator[tuple[Litestar, SampleFleet]]:
    """Run the application on a folder, which is filled if it is new. With held locks, closing takes long."""
    folder = DataDir(config)
    folder.create()
    fresh = not folder.token_file.exists()
    async with Engine(open_store(config.store_url), kinds(), slots=2_000, admission=QuotaGuard()) as engine:
        tokens, fleet = Tokens(engine), SampleFleet(engine, Random(7))
        await folder.ensure_admin_token(tokens)
        if fresh and not empty:
            await fleet.set_up(cells, vms)
            await fleet.hold_locks() if locks else None
        app = create_app(
            engine,
            tokens,
            config,
            composite_actions=CompositeActions([SampleComposites([])]),
            routes=(*prometheus_metrics.ROUTES, *console_routes.ROUTES),
            api_routes=(*live_routes.ROUTES, *console_routes.API_ROUTES),
        )
        async with LiveFeeds(engine) as live_feeds:
            app.state.live_feeds, app.state.metrics = live_feeds, live_feeds.metrics
            yield app, fleet


async def serve(config: Config, cells: int, vms: int, rate: float, *, empty: bool) -> None:
    """Serve until SIGTERM."""
    folder, listener = DataDir(config), listener_of(config)
    url = f"http://{config.host}:{listener.getsockname()[1]}"
    async with open_sample_app(config, cells=cells, vms=vms, empty=empty) as (app, fleet):
        live_feeds: LiveFeeds = app.state.live_feeds
        moving = asyncio.create_task(fleet.move(rate))
        settings = uvicorn_config(config, app)

        async def on_started() -> None:
            folder.write_address(url)

        server = Server(settings, on_started, fleet.engine.drain, live_feeds.close)
        await server.serve(sockets=[listener])
        moving.cancel()
        await asyncio.gather(moving, return_exceptions=True)
    folder.remove_address()


def main() -> None:
    """Serve the sample fleet."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--cells", type=int, default=400)
    parser.add_argument("--vms", type=int, default=0, help="of one large MCI")
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--empty", action="store_true")
    asked = parser.parse_args()
    config = Config(data=asked.data, port=asked.port, demo=not asked.empty, rate=100_000)
    asyncio.run(serve(config, asked.cells, asked.vms, asked.rate, empty=asked.empty))


if __name__ == "__main__":
    main()
