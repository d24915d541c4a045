"""Hints come at the moments at which machines change, in virtual time."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from stateward.drivers import MachineAction
from tests.unit.drivers.simulated.world import SEOUL, World


@pytest.fixture
async def heard(world: World) -> AsyncIterator[list[tuple[float, str]]]:
    """Give what has been hinted at so far, with the times."""
    heard: list[tuple[float, str]] = []
    loop = asyncio.get_running_loop()

    async def listen() -> None:
        async for key in world.driver.watch():
            heard.append((loop.time(), key))  # noqa: PERF401 - it is looked at while it grows

    listening = asyncio.create_task(listen())
    await asyncio.sleep(0)
    yield heard
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def test_a_machine_hints_when_a_change_begins_and_when_it_ends(
    world: World, heard: list[tuple[float, str]]
) -> None:
    world.behave(pending=3.0, suspending=2.0)
    await world.create("a")
    await asyncio.sleep(10.0)
    await world.act(MachineAction.SUSPEND, "a")
    await asyncio.sleep(10.0)
    assert heard == [(0.0, "a"), (3.0, "a"), (10.0, "a"), (12.0, "a")]


async def test_lost_hints_are_not_heard(world: World, heard: list[tuple[float, str]]) -> None:
    world.behave(hint_lost=1.0)
    await world.create("a")
    await asyncio.sleep(10.0)
    assert heard == []


async def test_who_no_longer_listens_is_told_nothing(world: World) -> None:
    hints = world.driver.watch()
    next_hint = asyncio.ensure_future(anext(hints))
    await asyncio.sleep(0)
    await world.create("a")
    assert await next_hint == "a"
    await hints.aclose()
    await world.create("b")
    assert world.cloud.region(SEOUL).listeners == []
