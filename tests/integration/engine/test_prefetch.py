"""Prefetch with a worker and a store: a free slot of a lane is filled at once, and never twice."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack

import pytest
from msgspec.structs import replace

from stateward.engine import Engine, Job, Route, Throttled
from stateward.engine.finish.claim_reports import ClaimReport, Ending, Interrupted, NotStarted
from stateward.engine.finish.completion import record_claim_reports
from stateward.engine.recovery import release_worker_claims
from stateward.engine.requests import Accepted
from stateward.engine.worker.attempt import RunningOperation
from stateward.engine.worker.claims import back_off_lane, claim
from stateward.engine.worker.lease import reconcile_owned_work
from stateward.engine.worker.prefetch import PrefetchPlan
from stateward.lifecycle import FORCE
from stateward.store.errors import ReadOnly
from stateward.store.port import Store
from stateward.store.records import Claim, Key, Lane, LaneGroup, Status, WorkerRecord, WorkItem
from tests.integration.engine.conftest import Site
from tests.integration.engine.pump_kinds import PUMP, Plant
from tests.waiting import until

LANE, GROUP = "cloud/a", "cloud"
ME = WorkerRecord("w/1", 60.0, 0.0, "here", 1)


class Yard:
    """An engine without a worker, and claims and reports made by hand."""

    def __init__(self, engine: Engine, plant: Plant) -> None:
        self.engine, self.plant = engine, plant

    async def build(self, *names: str) -> None:
        """Ask for pumps, all in one lane with room for one."""
        for name in names:
            self.plant.lanes[name] = Route(GROUP, LANE)
            await self.engine.create("ns", name, PUMP.kind, "build")

    async def claimed(self, spares: int) -> tuple[Claim, list[Claim]]:
        """Claim what there is room for, and spares."""
        catch = await self.engine.store.transact(
            lambda tx: claim(tx, self.engine.kinds, ME, 10, PrefetchPlan({}, {}, {}))
        )
        more = await self.engine.store.transact(
            lambda tx: claim(tx, self.engine.kinds, ME, 10, PrefetchPlan({LANE: spares}, {}, {}))
        )
        (first,) = catch.claims
        return first, more.prefetched

    async def say(self, *reports: ClaimReport) -> list[bool]:
        """Hand in reports, as one batch."""
        return await self.engine.store.transact(lambda tx: record_claim_reports(tx, self.engine.kinds, reports))

    async def work(self, name: str) -> WorkItem | None:
        """Return what stands first in an object's queue."""
        line = await self.engine.store.reader.queue_of(Key("ns", name))
        return line[0] if line else None

    async def running(self) -> int:
        """Return how many operations run in the lane, as the store counts."""
        _, loads = await self.engine.store.reader.lanes()
        return sum(one.running for one in loads if one.lane.lane == LANE)


def told(one: Claim, says: Ending | Interrupted | NotStarted, successor: Claim | None = None) -> ClaimReport:
    assert one.work.owner is not None
    return ClaimReport(one.operation, one.work.owner, one.work.epoch, says, successor)


@pytest.fixture
async def yard(new_store: Callable[[], Store]) -> AsyncIterator[Yard]:
    plant = Plant()
    async with Engine(new_store(), [plant.pump()], works=False) as engine:
        await engine.set_limits([LaneGroup(GROUP, 1)], [Lane(LANE, GROUP, 1, 0.0, 0.0, 0)])
        yield Yard(engine, plant)


async def test_the_report_of_an_end_begins_the_spare_in_its_place(yard: Yard) -> None:
    await yard.build("p1", "p2")
    first, (spare,) = await yard.claimed(spares=1)
    assert await yard.running() == 1
    assert await yard.say(told(first, Ending(), spare)) == [True]
    work = await yard.work("p2")
    assert work is not None
    assert not work.is_prefetched
    assert await yard.running() == 1


async def test_the_end_of_a_spare_may_stand_in_the_report_that_begins_it(yard: Yard) -> None:
    await yard.build("p1", "p2")
    first, (spare,) = await yard.claimed(spares=1)
    assert await yard.say(told(first, Ending(), spare), told(spare, Ending())) == [True, True]
    assert [(await yard.engine.get("ns", name)).state for name in ("p1", "p2")] == ["idle", "idle"]


async def test_a_spare_that_is_put_back_in_that_report_keeps_the_deadline_it_got(yard: Yard) -> None:
    await yard.build("p1", "p2")
    first, (spare,) = await yard.claimed(spares=1)
    await yard.say(told(first, Ending(), spare), told(spare, Interrupted()))
    work = await yard.work("p2")
    assert work is not None
    assert (work.owner, work.observe, work.deadline is None) == (None, True, False)


async def test_whoever_has_lost_its_claim_begins_no_spare(yard: Yard) -> None:
    await yard.build("p1", "p2")
    first, (spare,) = await yard.claimed(spares=1)
    stale = replace(first, work=replace(first.work, epoch=first.work.epoch - 1))
    assert await yard.say(told(stale, Ending(), spare)) == [False]
    work = await yard.work("p2")
    assert work is not None
    assert work.is_prefetched


async def test_a_spare_that_was_never_counted_leaves_no_place_to_another(yard: Yard) -> None:
    await yard.build("p1", "p2", "p3")
    _, (second, third) = await yard.claimed(spares=2)  # the report of the first was lost
    assert await yard.say(told(second, Ending(), third)) == [True]
    work = await yard.work("p3")
    assert work is not None
    assert work.is_prefetched
    assert await yard.running() == 1


async def test_a_spare_does_not_begin_in_a_place_that_nobody_before_it_has_left(yard: Yard) -> None:
    await yard.build("p1", "p2")
    first, (spare,) = await yard.claimed(spares=1)
    await yard.say(told(first, Ending()))  # without a word of its successor: the place may be another's
    await yard.engine.create("ns", "stray", PUMP.kind, "build")
    await yard.engine.store.transact(lambda tx: claim(tx, yard.engine.kinds, ME, 10))
    begun = {spare.work.key: RunningOperation(spare, 0.0, predecessors=(first.work.key,))}
    await yard.engine.store.transact(lambda tx: reconcile_owned_work(tx, ME.id, begun.__contains__, begun.get))
    stray, work = await yard.work("stray"), await yard.work("p2")
    assert stray is not None
    assert work is not None
    assert (stray.owner, work.owner, work.is_prefetched) == (None, ME.id, True)


async def test_a_spare_that_is_given_back_is_as_it_was(yard: Yard) -> None:
    await yard.build("p1", "p2")
    before = await yard.work("p2")
    _, (spare,) = await yard.claimed(spares=1)
    assert await yard.say(told(spare, NotStarted())) == [True]
    work = await yard.work("p2")
    assert before is not None
    assert work == replace(before, epoch=before.epoch + 1)


async def test_a_spare_of_a_dead_worker_is_looked_at_first(yard: Yard) -> None:
    await yard.build("p1", "p2")
    await yard.claimed(spares=1)
    await yard.engine.store.transact(lambda tx: release_worker_claims(tx, [ME.id]))
    work = await yard.work("p2")
    assert work is not None
    assert (work.owner, work.observe) == (None, True)


async def test_a_fenced_spare_leaves_when_it_is_given_back(yard: Yard) -> None:
    await yard.build("p1", "p2")
    _, (spare,) = await yard.claimed(spares=1)
    await yard.engine.act("ns", "p2", "scrap", facts=(FORCE,))
    assert await yard.say(told(spare, NotStarted())) == [False]
    work = await yard.work("p2")
    assert work is not None
    assert work.op != spare.work.op
    assert work.ready


@pytest.mark.parametrize(
    ("ago", "before", "after", "least", "most"),
    [
        pytest.param(1.0, 3, 4, 8.0, 8.0, id="again, soon after"),
        pytest.param(1.0, 20, 21, 60.0, 60.0, id="again, many times"),
        pytest.param(120.0, 3, 1, 1.0, 1.0, id="a long time after"),
        pytest.param(-600.0, 3, 3, 500.0, 600.0, id="while it is backed off"),
    ],
)
async def test_a_lane_is_backed_off_for_longer_each_time_that_it_is_throttled_again(
    yard: Yard, ago: float, before: int, after: int, least: float, most: float
) -> None:
    await yard.build("p1")
    now = await yard.engine.store.reader.time()
    await yard.engine.set_limits(lanes=[Lane(LANE, GROUP, 1, now - ago, 0.0, before)])
    assert least <= await yard.engine.store.transact(lambda tx: back_off_lane(tx, LANE, 0.1)) <= most
    _, loads = await yard.engine.store.reader.lanes()
    assert [one.lane.throttled for one in loads if one.lane.lane == LANE] == [after]


# --- with a worker ---------------------------------------------------------------------------------------------------

GENEROUS = 60.0
"""Seconds of spares: however slow this machine is, one is wanted for each place."""


@pytest.fixture
async def site(new_store: Callable[[], Store]) -> AsyncIterator[Site]:
    plant = Plant()
    async with Engine(new_store(), [plant.pump()], lease_s=30.0, prefetch_window_s=GENEROUS) as engine:
        await engine.set_limits([LaneGroup(GROUP, 1)], [Lane(LANE, GROUP, 1, 0.0, 0.0, 0)])
        yield Site(engine, plant)
        plant.release()


async def asked(site: Site, *names: str) -> list[Accepted]:
    for name in names:
        site.plant.lanes[name] = Route(GROUP, LANE)
    return [await site.engine.create("ns", name, PUMP.kind, "build") for name in names]


async def stands(site: Site, name: str) -> WorkItem:
    (work,) = await site.engine.store.reader.queue_of(Key("ns", name))
    return work


async def held_up(site: Site) -> list[Accepted]:
    """Have one pump in work that does not end, one as a spare, and one that waits behind it."""
    await site.ended((await asked(site, "known"))[0])
    site.plant.hold()
    builds = await asked(site, "p1", "p2", "p3")
    await until_prefetched(site, "p2")
    return builds


async def until_prefetched(site: Site, name: str) -> None:
    await until(lambda: stands(site, name), lambda work: work.is_prefetched)


async def test_all_spares_are_begun_in_the_end_and_never_more_than_the_lane_allows(site: Site) -> None:
    builds = await held_up(site)
    assert site.plant.begun["build"] == 2
    site.plant.release()
    assert [(await site.ended(one)).status for one in builds] == [Status.SUCCEEDED] * 3
    assert site.plant.done["build"] == 4
    assert site.plant.busiest == 1


async def test_a_worker_that_stops_gives_its_spares_back_untouched(site: Site) -> None:
    await held_up(site)
    assert site.engine.worker is not None
    stopping = asyncio.create_task(site.engine.worker.stop())
    await until(lambda: stands(site, "p2"), lambda work: work.owner is None)
    work = await stands(site, "p2")
    assert (work.attempts, work.observe) == (0, False)
    site.plant.release()
    await stopping


async def test_a_spare_that_is_cancelled_is_never_begun(site: Site) -> None:
    builds = await held_up(site)
    await site.engine.cancel("ns", builds[1].op.id)
    async with asyncio.timeout(30):
        while (work := await stands(site, "p2")).is_prefetched and work.epoch == 1:  # it may be one again
            await asyncio.sleep(0.005)
    site.plant.release()
    assert (await site.ended(builds[1])).status is Status.CANCELLED
    assert [(await site.ended(builds[at])).status for at in (0, 2)] == [Status.SUCCEEDED] * 2
    assert site.plant.done["build"] == 3


async def test_a_lane_that_is_throttled_gets_no_spare_begun(site: Site) -> None:
    builds = await held_up(site)
    site.plant.fail("build", Throttled("slow down", after=0.2))
    site.plant.release()
    assert [(await site.ended(one)).status for one in builds] == [Status.SUCCEEDED] * 3
    lines = await site.engine.history("ns", "p2")
    assert not [line.event for line in lines if line.event.startswith("rejected")]


async def test_a_spare_keeps_the_place_though_nobody_before_it_could_tell_of_its_end(site: Site) -> None:
    """The first has the place, the second follows it and the third the second; both reports are lost together."""
    await site.ended((await asked(site, "known"))[0])
    assert site.engine.worker is not None
    reports = site.engine.worker._reports
    run, begun, lost = reports._process, list[str](), list[set[str]]()
    gates = {name: asyncio.Event() for name in ("report", "x", "p1", "p2", "p3")}

    async def work(job: Job) -> None:
        begun.append(job.object)
        await gates[job.object].wait()
        site.plant.true.add(job.key.id)

    async def lose_reports(batch: Sequence[ClaimReport]) -> Sequence[bool | Exception]:
        names = {one.operation.object for one in batch}
        if names == {"x"}:
            await gates["report"].wait()
        elif not lost:
            lost.append(names)
            raise ReadOnly("the reports were lost")
        return await run(batch)

    site.plant.works, reports._process = work, lose_reports
    gates["x"].set()
    builds = [await site.engine.create("ns", "x", PUMP.kind, "build"), *await asked(site, "p1", "p2")]
    await until_prefetched(site, "p2")
    gates["p1"].set()
    await until(lambda: "p2" in begun)
    builds += await asked(site, "p3")
    await until_prefetched(site, "p3")
    gates["p2"].set()
    await until(lambda: "p3" in begun)
    gates["report"].set()
    await until(lambda: stands(site, "p3"), lambda work: not work.is_prefetched)
    gates["p3"].set()
    assert [(await site.ended(one)).status for one in builds] == [Status.SUCCEEDED] * 4
    assert (lost, begun) == ([{"p1", "p2"}], ["x", "p1", "p2", "p3"])


async def test_a_spare_is_stopped_whose_predecessor_is_cancelled_before_its_report_is_written(
    new_store: Callable[[], Store],
) -> None:
    """The first has the place, and its report is under way when the second, which has ended too, is cancelled."""
    plant = Plant()
    begun, stopped, gates = list[str](), list[str](), {name: asyncio.Event() for name in ("report", "p1", "p2")}
    async with Engine(new_store(), [plant.pump()], lease_s=3_000.0, prefetch_window_s=GENEROUS) as engine:
        await engine.set_limits([LaneGroup(GROUP, 1)], [Lane(LANE, GROUP, 1, 0.0, 0.0, 0)])
        site, worker = Site(engine, plant), engine.worker
        assert worker is not None
        await site.ended((await asked(site, "known"))[0])
        reports = worker._reports
        run = reports._process

        async def work(job: Job) -> None:
            begun.append(job.object)
            try:
                await gates.get(job.object, gates["p2"]).wait()
            except asyncio.CancelledError:
                stopped.append(job.object)
                raise

        async def hold_first_report(batch: Sequence[ClaimReport]) -> Sequence[bool | Exception]:
            if any(one.operation.object == "first" for one in batch):
                await gates["report"].wait()
            return await run(batch)

        plant.works, reports._process = work, hold_first_report
        gates["first"] = asyncio.Event()
        await asked(site, "first", "p1")
        await until_prefetched(site, "p1")
        gates["first"].set()
        await until(lambda: "p1" in begun)
        p2 = (await asked(site, "p2"))[0]
        await until_prefetched(site, "p2")
        gates["p1"].set()
        await until(lambda: "p2" in begun)
        second = next(one for one in worker._running.values() if one.claim.operation.object == "p1")
        await engine.cancel("ns", second.claim.operation.id)
        assert second.task is not None
        await asyncio.wait([second.task])
        async with asyncio.timeout(30):  # what is checked now has found the first still there
            while worker._recheck_claims.is_set() or worker._claim_lock.locked():
                await asyncio.sleep(0.005)
        gates["report"].set()
        await until(lambda: "p2" in stopped)
        gates["p2"].set()
        assert (await site.ended(p2)).status is Status.SUCCEEDED


async def test_an_operation_whose_slot_was_released_before_its_handler_returned_starts_no_spare(site: Site) -> None:
    """Its time is up and its handler goes on, so the next one gets its slot; then the handler returns after all."""
    await site.ended((await asked(site, "known"))[0])
    worker = site.engine.worker
    assert worker is not None
    begun, gates = list[str](), {name: asyncio.Event() for name in ("p1", "p2", "p3")}

    async def work(job: Job) -> None:
        begun.append(job.object)
        await gates[job.object].wait()
        site.plant.true.add(job.key.id)

    site.plant.works = work
    builds = await asked(site, "p1", "p2", "p3")
    await until(lambda: begun == ["p1"])
    late = worker._running[Key("ns", builds[0].op.id)]
    worker._end_without_handler(late)
    await until(lambda: len(begun) == 2)
    (spare,) = gates.keys() - begun
    await until_prefetched(site, spare)
    gates["p1"].set()
    assert late.task is not None
    await asyncio.wait([late.task])
    assert spare not in begun
    for gate in gates.values():
        gate.set()
    assert [(await site.ended(one)).status for one in builds] == [Status.FAILED, *[Status.SUCCEEDED] * 2]


async def test_the_limits_hold_however_many_workers_hold_spares(new_store: Callable[[], Store]) -> None:
    plant, names = Plant(), [f"p{number}" for number in range(120)]
    plant.lanes = {name: Route(GROUP, f"cloud/{'ab'[number % 2]}") for number, name in enumerate(names)}
    plant.pause = 0.01
    engines = [Engine(new_store(), [plant.pump()], prefetch_window_s=GENEROUS) for _ in range(3)]
    async with AsyncExitStack() as stack:
        for engine in engines:
            await stack.enter_async_context(engine)
        lanes = [Lane(f"cloud/{name}", GROUP, 3, 0.0, 0.0, 0) for name in "ab"]
        await engines[0].set_limits([LaneGroup(GROUP, 2)], lanes)
        asked = [await engines[0].create("ns", name, PUMP.kind, "build") for name in names]
        ended = [await engines[0].wait("ns", one.op.id, 60) for one in asked]
    assert {one.status for one in ended} == {Status.SUCCEEDED}
    assert plant.done["build"] == len(names)
    assert plant.busiest <= 6
