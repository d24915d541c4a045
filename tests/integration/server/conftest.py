"""The application with sample kinds and a token for every role: in memory, on both stores, and on a real port."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from stateward.store.port import Store
from tests.integration.server.live_server import LiveServer, open_live_server
from tests.integration.server.server_harness import ServerHarness, open_server
from tests.servers import PostgresServer

STORES = ("sqlite", "postgres")


def _database(request: pytest.FixtureRequest) -> str:
    """Give a new database of each sort, for those who send anything: they differ in what they can hold."""
    if request.param == "sqlite":
        return ""
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.new_database()


database = pytest.fixture(_database, scope="module", params=STORES)
own_database = pytest.fixture(_database, params=STORES)


@pytest.fixture
async def harness() -> AsyncIterator[ServerHarness]:
    async with open_server() as opened:
        yield opened


@pytest.fixture
async def site(new_store: Callable[[], Store]) -> AsyncIterator[ServerHarness]:
    """The application, on both stores."""
    async with open_server(new_store()) as opened:
        yield opened


@pytest.fixture
async def live_server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    """The application on a real port."""
    async with open_live_server(tmp_path) as opened:
        yield opened
