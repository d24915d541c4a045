"""A simulated world in virtual time."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from stateward.testing.virtual_loop import VirtualLoop
from tests.unit.drivers.simulated.world import World


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Let all tests here run in virtual time."""
    return {"virtual": VirtualLoop}


@pytest.fixture
async def world() -> World:
    """Give a calm world with one region."""
    return World()
