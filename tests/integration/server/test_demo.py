import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from stateward.domains.registry import lifecycle_of, lifecycles
from stateward.engine import Engine
from stateward.lifecycle import TRANSITIONAL, Back
from stateward.server.demo import FLEET, HABITS, NS, Demo
from stateward.server.equipment import all_kinds
from stateward.server.simulated import SimulatedClouds, Temper, way
from stateward.store import open_store
from stateward.store.records import Key, Object
from stateward.store.selection import JournalFilter, Page, Selector
from tests.integration.server.processes import served

MOODY = Temper(shortest=0.0, longest=0.0, fails=0.1, stumbles=0.1)


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    clouds = SimulatedClouds(MOODY, Random(7))
    async with Engine(open_store(":memory:"), all_kinds(clouds), chance=Random(7)) as opened:
        clouds.engine = opened
        yield opened


async def fleet(engine: Engine) -> list[Object]:
    return await engine.store.reader.list_objects(Selector(NS), Page(limit=1000))


async def test_the_fleet_is_made_once_and_lives_on(engine: Engine) -> None:
    demo = Demo(engine, Random(1))
    await demo.make_fleet()
    made = {one.id: one.created for one in await fleet(engine)}
    assert set(made) == {member.id for member in FLEET}
    await demo.make_fleet()
    assert {one.id: one.created for one in await fleet(engine)} == made


async def test_all_five_domains_are_there() -> None:
    assert {member.kind.split(".")[0] for member in FLEET} == {one.kind.split(".")[0] for one in lifecycles()}


async def test_whatever_the_user_does_everything_ends_and_nothing_breaks(engine: Engine) -> None:
    demo = Demo(engine, Random(2))
    await demo.make_fleet()
    for _ in range(300):
        await demo.act_once()
        await asyncio.sleep(0)
    actions = {line.event for line in await engine.store.reader.lines(0, 10_000, JournalFilter(ns=NS))}
    assert {"suspend", "resume", "reboot"} <= actions
    async with asyncio.timeout(60):
        while any(load.running or load.waiting for load in (await engine.store.reader.lanes())[1]):
            await asyncio.sleep(0.01)
    for one in await fleet(engine):
        state = lifecycle_of(one.kind).state(one.state)
        waits_for_others = one.kind == "systems.service" or await engine.store.reader.queue_of(Key(NS, one.queue))
        assert state.state_class is not TRANSITIONAL or waits_for_others, one


async def test_the_user_keeps_its_pace_and_stops_when_told(engine: Engine) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    living = asyncio.create_task(Demo(engine, Random(3), pause=0.4, sleep=sleep).run())
    async with asyncio.timeout(60):
        while len(pauses) < 20:
            await asyncio.sleep(0.001)
    living.cancel()
    with pytest.raises(asyncio.CancelledError):
        await living
    assert all(0.2 <= pause <= 0.6 for pause in pauses)


@pytest.mark.parametrize("kind", sorted({member.kind for member in FLEET}))
def test_habits_are_about_states_and_events_that_exist(kind: str) -> None:
    lifecycle = lifecycle_of(kind)
    for habit in HABITS[kind]:
        for state in habit.states:
            allowed = lifecycle.allowed[lifecycle.state(state)]
            for event in habit.events:
                fitting = [one for one in allowed if one.event == event and habit.actor in one.actors]
                assert any(set(one.needs) <= habit.facts for one in fitting), (state, event)


def test_the_simulated_clouds_find_the_way_to_the_end_of_every_request() -> None:
    for lifecycle in lifecycles():
        for row in lifecycle.rows:
            for source in row.sources if row.via is not None else ():
                desired = source if isinstance(row.to, Back) else row.to
                assert row.via is not None
                reports = way(lifecycle, row.via.word, desired.word)
                if not isinstance(row.to, Back):  # some cannot say that they are back; the engine knows where that is
                    assert reports, (lifecycle.kind, row.event)
                assert all(move.target == desired for move in reports[-1:])


def test_a_server_with_the_demo_comes_to_life_and_stops_cleanly(tmp_path: Path) -> None:
    with served(tmp_path / "data", "--demo") as server:
        with server.client() as client:
            found: list[dict[str, str]] = []
            while len(found) < 5:
                found = client.get(f"/api/v1/ns/{NS}/objects").json()["items"]
        assert server.stop() == 0
        assert "Traceback" not in server.output
