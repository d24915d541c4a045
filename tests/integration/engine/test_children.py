"""Composite actions whose steps are done by other operations, and work that waits to be moved on."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from stateward.engine import Ending, Engine, Handler, Job, Kind, Permanent, Request
from stateward.engine.recovery import release_worker_claims
from stateward.engine.requests import Creation
from stateward.engine.work_errors import Parked
from stateward.lifecycle import (
    CLOCK,
    CONTROLLER,
    DAY,
    MINUTE,
    NEW,
    STABLE,
    TRANSITIONAL,
    USER,
    State,
    declare,
    failure,
    request,
    step,
    success,
    timeout,
)
from stateward.store.filters import Page, Selector
from stateward.store.port import Store
from stateward.store.records import Status
from tests.integration.engine.conftest import Site
from tests.integration.engine.pump_kinds import PUMP, Plant
from tests.waiting import until

MANY = 20


class Works(State):
    PLANNED = "planned", TRANSITIONAL
    BUILDING = "building", TRANSITIONAL
    OPEN = "open", STABLE
    RUINED = "ruined", STABLE


W = Works

WORKS = declare(
    "test.works",
    Works,
    (
        request(NEW,                    "raise",   USER,       W.PLANNED, W.OPEN, W.RUINED, 1 * MINUTE),
        step(   W.PLANNED,              "drawn",   CONTROLLER, W.PLANNED, within=7 * DAY),
        step(   W.PLANNED,              "go",      USER,       W.BUILDING, within=1 * MINUTE),
        success(W.BUILDING,             "opened",  CONTROLLER, W.OPEN),
        failure(W.PLANNED | W.BUILDING, "failed",  CONTROLLER, W.RUINED),
        timeout(W.PLANNED | W.BUILDING, W.RUINED),
    ),
    USER | CONTROLLER | CLOCK,
)  # fmt: skip


def pump(name: str) -> Request:
    """Ask for a new pump."""
    return Request("ns", name, "build", "", creates=Creation(PUMP.kind, "works"))


class Yard:
    """Raises works of many pumps; counts how often its handler was called."""

    def __init__(self) -> None:
        self.calls = 0
        self.denied: dict[str, str] = {}
        self.names = [f"p{number}" for number in range(MANY)]
        self.more = 0
        self.waits_for_go = False
        self.about_to_park, self.may_park = asyncio.Event(), asyncio.Event()
        self.may_park.set()

    async def raise_works(self, job: Job) -> Any:
        self.calls += 1
        if job.state == W.PLANNED:
            await job.phase("drawn")
            if self.waits_for_go:
                self.about_to_park.set()
                await self.may_park.wait()
                raise Parked
            await job.phase("go", USER)
        self.denied = await job.spawn("pumps", [pump(name) for name in self.names])
        await job.spawn("more pumps", [pump(f"more{number}") for number in range(self.more)])
        return Ending("opened", CONTROLLER, seen='{"pumps": 20}')

    def kind(self) -> Kind:
        return Kind(WORKS, {"raise": Handler(self.raise_works)})


@pytest.fixture
def yard() -> Yard:
    return Yard()


@pytest.fixture
async def works(new_store: Callable[[], Store], yard: Yard) -> AsyncIterator[Site]:
    plant = Plant()
    async with Engine(new_store(), [plant.pump(), yard.kind()], slots=5) as engine:
        yield Site(engine, plant)
        plant.release()


async def pumps(site: Site) -> int:
    """Return how many pumps there are."""
    return len(await site.engine.store.reader.list_objects(Selector("ns", PUMP.kind), Page(None, 100)))


async def test_a_step_is_done_by_children_and_the_work_goes_on_behind_it(works: Site, yard: Yard) -> None:
    accepted = await works.engine.create("ns", "works", WORKS.kind, "raise")
    assert (await works.ended(accepted)).status is Status.SUCCEEDED
    assert (await works.state("works"), await pumps(works)) == ("open", MANY)
    children = await works.engine.store.reader.children_of(accepted.op.key)
    assert {one.status for one in children} == {Status.SUCCEEDED}
    assert len(children) == MANY
    assert (yard.calls, yard.denied) == (2, {})


async def test_each_step_has_children_of_its_own_and_is_done_once(works: Site, yard: Yard) -> None:
    yard.more = 3
    accepted = await works.engine.create("ns", "works", WORKS.kind, "raise")
    assert (await works.ended(accepted)).status is Status.SUCCEEDED
    assert (await pumps(works), yard.calls, yard.denied) == (MANY + 3, 3, {})
    assert len(await works.engine.store.reader.children_of(accepted.op.key)) == MANY + 3


async def test_whoever_waits_for_children_takes_no_slot(works: Site, yard: Yard) -> None:
    works.plant.hold()
    accepted = await works.engine.create("ns", "works", WORKS.kind, "raise")
    await until(lambda: works.plant.begun["build"] == 5)  # all there are
    works.plant.release()
    assert (await works.ended(accepted)).status is Status.SUCCEEDED


async def test_what_was_denied_is_told_and_holds_nobody_up(works: Site, yard: Yard) -> None:
    await works.built("p3")
    accepted = await works.engine.create("ns", "works", WORKS.kind, "raise")
    assert (await works.ended(accepted)).status is Status.SUCCEEDED
    assert yard.denied.keys() == {"p3"}


async def test_a_child_whose_name_no_request_can_address_is_denied(works: Site, yard: Yard) -> None:
    yard.names = ["a/b", "p1"]
    accepted = await works.engine.create("ns", "works", WORKS.kind, "raise")
    assert (await works.ended(accepted)).status is Status.SUCCEEDED
    assert yard.denied.keys() == {"a/b"}
    assert "without /" in yard.denied["a/b"]
    assert await pumps(works) == 1


async def test_children_that_fail_have_ended_too(works: Site, yard: Yard) -> None:
    works.plant.fail("build", Permanent("no concrete"))
    accepted = await works.engine.create("ns", "works", WORKS.kind, "raise")
    assert (await works.ended(accepted)).status is Status.SUCCEEDED
    states = await works.engine.store.reader.count_states(Selector("ns", PUMP.kind))
    assert states == {(PUMP.kind, "idle"): MANY - 1, (PUMP.kind, "broken"): 1}


async def test_what_was_seen_at_the_end_is_kept_with_the_object(works: Site) -> None:
    await works.ended(await works.engine.create("ns", "works", WORKS.kind, "raise"))
    assert (await works.engine.get("ns", "works")).seen == {"pumps": 20}


async def test_parked_work_waits_until_somebody_moves_the_object_on(works: Site, yard: Yard) -> None:
    yard.waits_for_go = True
    accepted = await works.engine.create("ns", "works", WORKS.kind, "raise")
    await until(lambda: yard.calls == 1)
    worker = works.engine.worker
    assert worker is not None
    await until(lambda: worker.busy == 0)
    assert (await works.state("works"), await pumps(works)) == ("planned", 0)
    await works.engine.act("ns", "works", "go")
    assert (await works.ended(accepted)).status is Status.SUCCEEDED
    assert (yard.calls, await pumps(works)) == (3, MANY)


async def test_a_move_that_comes_before_the_work_is_parked_counts_too(works: Site, yard: Yard) -> None:
    yard.waits_for_go = True
    yard.may_park.clear()
    accepted = await works.engine.create("ns", "works", WORKS.kind, "raise")
    await yard.about_to_park.wait()
    await works.engine.act("ns", "works", "go")
    yard.may_park.set()
    assert (await works.ended(accepted)).status is Status.SUCCEEDED
    assert await pumps(works) == MANY


async def test_a_phase_begins_the_time_of_its_state(works: Site, yard: Yard) -> None:
    yard.waits_for_go = True
    await works.engine.create("ns", "works", WORKS.kind, "raise")
    await until(lambda: yard.calls == 1)
    worker = works.engine.worker
    assert worker is not None
    await until(lambda: worker.busy == 0)
    (work,) = await works.engine.store.reader.queue_of((await works.engine.get("ns", "works")).key)
    assert work.deadline is not None
    assert work.deadline > await works.engine.store.reader.time() + 6 * DAY


async def test_whoever_waits_for_children_goes_on_after_a_crash(new_store: Callable[[], Store], yard: Yard) -> None:
    plant = Plant()
    plant.hold()
    first = Engine(new_store(), [plant.pump(), yard.kind()])
    await first.__aenter__()
    accepted = await first.create("ns", "works", WORKS.kind, "raise")
    await until(lambda: plant.begun["build"] == MANY)
    assert first.worker is not None
    for task in (*first.worker._claim_tasks, *first.worker._lease_tasks, *first.worker._operation_tasks()):
        task.cancel()  # as if the process were gone: nothing is given back
    dead = first.worker.name
    await first.store.transact(lambda tx: release_worker_claims(tx, [dead]))  # as if its lease had expired
    plant.release()
    async with Engine(new_store(), [plant.pump(), yard.kind()]) as second:
        assert (await Site(second, plant).ended(accepted)).status is Status.SUCCEEDED
    await first.store.close()
    assert yard.calls == 2


async def test_work_that_is_cancelled_waits_for_its_children_which_are_cancelled_with_it(works: Site) -> None:
    async def call(job: Job) -> None:
        await job.call(works.plant.open.wait())

    works.plant.works = call
    works.plant.hold()
    accepted = await works.engine.create("ns", "works", WORKS.kind, "raise")
    await until(lambda: works.plant.begun["build"] == 5)
    op = accepted.op.id
    await works.engine.cancel("ns", op, "ann")
    children = await works.engine.store.reader.children_of(accepted.op.key)
    assert [one.status for one in children].count(Status.CANCELLED) == MANY - 5
    with pytest.raises(TimeoutError):
        await works.engine.wait("ns", op, 0.2)
    assert (await works.engine.get("ns", "works")).state == W.BUILDING
    works.plant.release()
    ended = await works.ended(accepted)
    children = await works.engine.store.reader.children_of(accepted.op.key)
    assert {ended.status, *(one.status for one in children)} == {Status.CANCELLED}
    assert all(one.ended is not None and one.ended <= (ended.ended or 0.0) for one in children)
    assert works.plant.begun["build"] == 5
