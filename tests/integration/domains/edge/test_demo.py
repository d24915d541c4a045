"""The demo creates its cloudlets and deploys apps."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from stateward.domains.edge import demo
from stateward.store.port import Store
from tests.integration.domains.edge.conftest import open_harness
from tests.stores import fresh_store
from tests.waiting import until


@pytest.fixture
def new_store(request: pytest.FixtureRequest) -> Callable[[], Store]:
    return fresh_store("sqlite", request)


async def test_the_demo_keeps_clusters_and_apps_in_motion(
    new_store: Callable[[], Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "PAUSE_S", 0.02)
    monkeypatch.setattr(demo, "MAX_STEP_S", 0.01)
    async with open_harness(new_store(), tmp_path) as harness:
        running = asyncio.create_task(demo.run_demo(harness.service, harness.hub, Random(1)))
        await until(
            lambda: harness.service.list_all(demo.NS, "edge.appinst"),
            lambda objects: any(one.state == "Ready" for one in objects),
        )
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
