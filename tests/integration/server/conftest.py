"""A house: the server's application on an engine in memory, with a small plant behind it and a key for every role."""

from collections.abc import AsyncIterator

import pytest

from tests.integration.server.house import House, open_house


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with open_house() as opened:
        yield opened
