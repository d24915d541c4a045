"""Clouds on both stores: one engine for all tests of a module, and for each test a namespace of its own.

In it are two simulated nodes, an account, a cloudspace and an image.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from stateward.store import open_store
from tests.integration.domains.ovc.machine_processes import nodes_in
from tests.integration.domains.ovc.ovc_harness import Cloud, open_cloud
from tests.integration.drivers.local.host_machines import kill_all_in
from tests.servers import PostgresServer


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite", "postgres"])
async def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cloud]:
    """An ovc domain with a worker, without objects."""
    folder: Path = tmp_path_factory.mktemp("ovc")
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        store = open_store(server.new_database(), migrate=True)
    else:
        store = open_store(str(folder / "stateward.db"))
    async with open_cloud(store, folder) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def cloud(world: Cloud) -> AsyncIterator[Cloud]:
    """A namespace with the base objects."""
    yield await world.in_new_namespace().create_base_objects()
    world.gates.reset()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A data folder, of which no machine is left."""
    yield tmp_path
    for node in nodes_in(tmp_path):
        kill_all_in(node)
