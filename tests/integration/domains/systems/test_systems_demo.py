"""The demo of systems: it creates its system, and keeps it in motion."""

import asyncio

import pytest

from stateward.domains.systems import demo
from stateward.domains.systems.backends.simulated_backend import SimulatedBackend
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.engine import Engine
from stateward.store import open_store
from stateward.store.filters import JournalFilter


async def test_the_demo_deploys_scales_and_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "MEAN_PAUSE_S", 0.02)
    plugin = SystemsRuntime({"simulated": SimulatedBackend()})
    engine = Engine(open_store(":memory:"), plugin.kinds)
    plugin.bind_engine(engine)
    async with engine, plugin.running(engine, works=True):
        show = asyncio.create_task(plugin.demo(engine))
        wanted = {"updating", "scaling", "degraded", "stable"}
        async with asyncio.timeout(60):
            async for line in engine.watch(0, JournalFilter(ns=demo.NS, kind="systems.service")):
                wanted.discard(line.target or "")
                if not wanted:
                    break
        show.cancel()
        await asyncio.gather(show, return_exceptions=True)
