"""The fixture `harness`: the application on an engine in memory, with sample kinds and a token for every role."""

from collections.abc import AsyncIterator

import pytest

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
