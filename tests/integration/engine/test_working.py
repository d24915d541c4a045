import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec
import pytest
from msgspec.json import decode
from msgspec.structs import replace

from stateward.engine import (
    Accepted,
    Engine,
    ExternalReport,
    Kind,
    LockRequest,
    ObservedOutcome,
    Permanent,
    Route,
    Temporary,
    Throttled,
    Unknown,
    unit_of_work,
)
from stateward.engine import job as job_module
from stateward.engine.accept.groups import GroupVerdict
from stateward.engine.errors import AlreadyEnded, KeyReused, Locked, NoneAllowed, NoSuchOperation
from stateward.engine.job import Job
from stateward.engine.provider_calls import CallRecord
from stateward.engine.recovery import release_worker_claims
from stateward.engine.work_errors import Parked
from stateward.store.changes import Changes
from stateward.store.errors import Unavailable
from stateward.store.filters import JournalFilter, Selector
from stateward.store.port import Store, Tx, TxFunction
from stateward.store.records import Key, Lane, LaneGroup, Status, Timer
from stateward.store.sqlite import SqliteStore
from stateward.testing.virtual_loop import VirtualLoop
from tests.integration.engine.conftest import Site
from tests.integration.engine.pump_kinds import PUMP, STATION, Plant
from tests.waiting import until

T = TypeVar("T")


async def test_a_temporary_error_is_tried_again(site: Site) -> None:
    await site.built("p1")
    site.plant.fail("pump", Temporary("busy", after=0.01), Temporary("busy", after=0.01))
    ended = await site.ended(await site.engine.act("ns", "p1", "pump"))
    assert (ended.status, ended.attempts) == (Status.SUCCEEDED, 3)


async def test_a_permanent_error_ends_in_the_error_state_with_its_text(site: Site) -> None:
    await site.built("p1")
    site.plant.fail("pump", Permanent("the shaft is broken"))
    ended = await site.ended(await site.engine.act("ns", "p1", "pump"))
    found = await site.engine.get("ns", "p1")
    assert (ended.status, found.state, found.error) == (Status.FAILED, "broken", "the shaft is broken")


async def test_a_bug_in_a_handler_fails_the_operation_and_not_the_worker(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    await site.built("p1")
    site.plant.fail("pump", ZeroDivisionError("oops"))
    ended = await site.ended(await site.engine.act("ns", "p1", "pump"))
    assert ended.error == "ZeroDivisionError: oops"
    await site.engine.act("ns", "p1", "mend")
    assert (await site.ended(await site.engine.act("ns", "p1", "pump"))).status is Status.SUCCEEDED
    line = f"operation {ended.id} (pump of test.pump p1 in ns) failed: ZeroDivisionError: oops"
    # The line is written after the commit of the report, which others may read before; but before the next report.
    assert [one.getMessage() for one in caplog.records if one.getMessage() == line] == [line]


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("there are no words for it")


class Odd(BaseException):
    pass


@pytest.mark.parametrize(("bug", "told"), [(Unspeakable(), "Unspeakable"), (Odd("odd"), "Odd: odd")])
async def test_whatever_a_handler_raises_ends_its_operation(site: Site, bug: BaseException, told: str) -> None:
    await site.built("p1")
    site.plant.fail("pump", bug)
    ended = await site.ended(await site.engine.act("ns", "p1", "pump"))
    assert (ended.status, ended.error) == (Status.FAILED, told)


async def test_a_handler_that_waits_for_what_is_cancelled_is_not_called_again_without_end(site: Site) -> None:
    async def forsaken(_: Job) -> None:
        site.plant.begun["pump"] += 1
        waited_for = asyncio.create_task(asyncio.sleep(60))
        waited_for.cancel()
        await waited_for

    await site.built("p1")
    site.engine.kinds[PUMP.kind].handles("pump", attempts=2)(forsaken)
    ended = await site.ended(await site.engine.act("ns", "p1", "pump"))
    assert (ended.error, site.plant.begun["pump"]) == ("something that its handler waited for was cancelled", 2)


async def test_a_look_that_waits_for_what_is_cancelled_is_no_look(site: Site) -> None:
    async def blind(_: Job) -> ObservedOutcome:
        waited_for = asyncio.create_task(asyncio.sleep(60))
        waited_for.cancel()
        await waited_for
        return ObservedOutcome.DONE

    await site.built("p1")
    site.plant.hold()
    site.engine.kinds[PUMP.kind].handles("pump", observe=blind)(site.plant.run)
    accepted = await site.engine.act("ns", "p1", "pump")
    await until(lambda: site.plant.begun["pump"] == 1)
    await site.engine.cancel("ns", accepted.op.id)
    assert (await site.ended(accepted)).error == "cancelled, and nobody can say whether it was done"


async def test_after_an_unclear_answer_it_looks_before_it_works_again(site: Site) -> None:
    await site.built("p1")

    async def done_but_unheard(job: Job) -> None:
        site.plant.begun["pump"] += 1
        site.plant.true.add(job.key.id)
        raise Unknown("no answer", after=0.01)

    site.engine.kinds[PUMP.kind].handles("pump", observe=site.plant.observe)(done_but_unheard)
    ended = await site.ended(await site.engine.act("ns", "p1", "pump"))
    assert (ended.status, site.plant.begun["pump"]) == (Status.SUCCEEDED, 1)


async def test_as_long_as_nobody_can_say_whether_it_was_done_it_is_looked_at_and_not_done_again(site: Site) -> None:
    await site.built("p1")
    site.plant.sights = [ObservedOutcome.UNKNOWN, ObservedOutcome.DONE]
    site.plant.fail("pump", Unknown("no answer", after=0.01))
    ended = await site.ended(await site.engine.act("ns", "p1", "pump"))
    assert (ended.status, site.plant.begun["pump"]) == (Status.SUCCEEDED, 1)


async def test_steps_that_were_done_are_not_done_again(site: Site) -> None:
    await site.built("p1")
    counted: list[str] = []

    async def step(name: str) -> str:
        counted.append(name)
        return name

    async def in_steps(job: Job) -> list[str]:
        first = await job.once("drain", lambda: step("drain"))
        if job.attempt == 1:
            raise Temporary("interrupted", after=0.01)
        return [first, await job.once("fill", lambda: step("fill"))]

    site.engine.kinds[PUMP.kind].handles("pump")(in_steps)
    ended = await site.ended(await site.engine.act("ns", "p1", "pump"))
    assert counted == ["drain", "fill"]
    assert ended.result == ["drain", "fill"]


async def test_the_time_that_a_job_has_left_does_not_depend_on_the_clock_of_its_host(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.built("p1")

    async def measured(job: Job) -> float:
        monkeypatch.setattr("time.time", lambda: 0.0)
        return job.time_left_s

    site.engine.kinds[PUMP.kind].handles("pump")(measured)
    ended = await site.ended(await site.engine.act("ns", "p1", "pump"))
    assert 30.0 < ended.result <= 60.0


async def test_progress_is_kept_in_order(site: Site) -> None:
    await site.built("p1")

    async def talkative(job: Job) -> None:
        for number in range(3):
            await job.progress(f"stroke {number}", done=number + 1, total=3)

    site.engine.kinds[PUMP.kind].handles("pump")(talkative)
    ended = await site.ended(await site.engine.act("ns", "p1", "pump"))
    lines = await site.engine.store.reader.progress_of(ended.key, 0)
    assert [(line.text, line.done, line.total) for line in lines] == [(f"stroke {n}", n + 1, 3) for n in range(3)]


async def test_what_waits_is_cancelled_at_once_and_goes_back(site: Site) -> None:
    await site.built("p1")
    accepted = await site.engine.act("ns", "p1", "pump", not_before=4e9)
    await site.engine.cancel("ns", accepted.op.id, "ann")
    ended = await site.ended(accepted)
    assert (ended.status, await site.state("p1")) == (Status.CANCELLED, "idle")
    with pytest.raises(AlreadyEnded):
        await site.engine.cancel("ns", accepted.op.id)
    with pytest.raises(NoSuchOperation):
        await site.engine.cancel("ns", "nothing")


async def test_what_runs_is_stopped_when_cancelled_and_goes_back_if_it_was_not_done(site: Site) -> None:
    await site.built("p1")
    site.plant.hold()
    accepted = await site.engine.act("ns", "p1", "pump")
    await until(lambda: site.plant.begun["pump"] == 1)
    await site.engine.cancel("ns", accepted.op.id, "ann")
    ended = await site.ended(accepted)
    assert (ended.status, await site.state("p1")) == (Status.CANCELLED, "idle")
    told = [(line.event, line.who, line.op) for line in await site.engine.history("ns", "p1")]
    assert told.count(("cancel requested", "ann", accepted.op.id)) == 1


@pytest.mark.parametrize("seen", [ObservedOutcome.REPEATABLE, ObservedOutcome.UNKNOWN])
async def test_what_is_cancelled_without_proof_that_it_was_not_done_is_not_told_as_not_done(
    site: Site, seen: ObservedOutcome
) -> None:
    await site.built("p1")
    site.plant.hold()
    site.plant.sights = [seen]
    accepted = await site.engine.act("ns", "p1", "pump")
    await until(lambda: site.plant.begun["pump"] == 1)
    await site.engine.cancel("ns", accepted.op.id)
    ended = await site.ended(accepted)
    assert (ended.status, await site.state("p1")) == (Status.FAILED, "lost")


async def test_a_call_that_is_under_way_is_waited_for_before_a_cancelled_operation_is_looked_at(site: Site) -> None:
    await site.built("p1")
    called, answer = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def provider(job: Job) -> None:
        called.set()
        await answer
        site.plant.true.add(job.key.id)

    site.plant.works = lambda job: job.call(provider(job))
    accepted = await site.engine.act("ns", "p1", "pump")
    await called.wait()
    await site.engine.cancel("ns", accepted.op.id)
    with pytest.raises(TimeoutError):
        await site.engine.wait("ns", accepted.op.id, 0.2)
    answer.set_result(None)
    assert (await site.ended(accepted)).status is Status.SUCCEEDED


async def test_a_call_that_never_ends_is_not_waited_for_without_end(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "CALL_END_TIMEOUT_S", 0.05)
    await site.built("p1")
    called, jobs = asyncio.Event(), list[Job]()

    async def provider(job: Job) -> None:
        jobs.append(job)
        called.set()
        await asyncio.get_running_loop().create_future()

    site.plant.works = lambda job: job.call(provider(job))
    accepted = await site.engine.act("ns", "p1", "pump")
    await called.wait()
    await site.engine.cancel("ns", accepted.op.id)
    await site.ended(accepted)
    assert (jobs[0].is_calling, jobs[0].is_ending) == (True, True)


async def test_a_job_is_calling_exactly_while_a_call_has_no_answer(site: Site) -> None:
    await site.built("p1")
    seen: list[bool] = []

    async def works(job: Job) -> None:
        async def ask() -> None:
            seen.append(job.is_calling)

        seen.append(job.is_calling)
        await job.call(ask())
        seen.append(job.is_calling)

    site.plant.works = works
    await site.ended(await site.engine.act("ns", "p1", "pump"))
    assert seen == [False, True, False]


async def test_provider_calls_are_stored_with_what_is_written_anyway(site: Site) -> None:
    await site.built("p1")
    asked = 0

    async def ask() -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise Temporary("busy", after=0.01)

    async def works(job: Job) -> None:
        await job.call(ask(), at="waterworks", target="valve")
        with job.record_call("look"):
            await job.progress("open")

    site.plant.works = works
    accepted = await site.engine.act("ns", "p1", "pump")
    ended = await site.ended(accepted)
    stored = await site.engine.store.reader.operation(accepted.op.key)
    assert stored is not None
    calls = [msgspec.convert(one, CallRecord) for key, one in decode(stored.steps).items() if key.startswith("call: ")]
    assert [(one.at, one.name, one.target, one.error, one.count) for one in calls] == [
        ("waterworks", "ask", "valve", "busy", 1),
        ("waterworks", "ask", "valve", None, 1),
        ("", "look", "", None, 1),
    ]
    assert all(one.ended is not None and stored.created <= one.began <= one.ended for one in calls)
    assert ended.steps == {}


async def test_trouble_of_work_that_goes_on_is_told_at_growing_distance_and_forgotten_when_it_is_done(
    site: Site,
) -> None:
    await site.built("p1")
    waits = asyncio.Event()

    async def busy(job: Job) -> None:
        if job.attempt <= 9:
            raise Temporary(f"busy {job.attempt}", after=0.001)
        waits.set()
        await site.plant.open.wait()

    site.plant.hold()
    site.plant.works = busy
    accepted = await site.engine.act("ns", "p1", "pump")
    await waits.wait()
    told = [line.reason for line in await site.engine.history("ns", "p1") if line.event == "has trouble"]
    assert told == ["busy 2", "busy 4", "busy 8"]
    assert (await site.engine.get("ns", "p1")).error == "busy 8"
    site.plant.release()
    assert (await site.ended(accepted)).status is Status.SUCCEEDED
    assert (await site.engine.get("ns", "p1")).error is None


async def test_whoever_waits_for_a_part_is_told_of_its_trouble(site: Site) -> None:
    await site.engine.create("ns", "s1", STATION.kind, "found")
    for number in range(3):
        await site.built(f"p{number}", parent="s1")
    site.plant.fail("pump", *[Temporary("busy", after=0.001)] * 9)
    verdict = await site.engine.group(
        site.engine.request("ns", "s1", "pump"), Selector("ns", parent="s1"), site.engine.request("ns", "", "pump")
    )
    assert verdict.whole is not None
    await site.ended(verdict.whole)
    told = [line.reason for line in await site.engine.history("ns", "s1") if line.event == "waits"]
    assert len(told) == 1  # the next line is some seconds away
    assert str(told[0]).endswith(": busy")


async def test_to_wait_to_be_moved_on_is_no_trouble_however_often(site: Site) -> None:
    await site.built("p1")

    async def wait(job: Job) -> None:
        raise Parked(job.key.id)

    async def wake(tx: Tx) -> bool:
        (work,) = (await tx.work([begun.op.key])).values()
        if work.owner is None:
            await tx.apply(Changes(work=[replace(work, not_before=0.0)]))
        return work.owner is None

    site.plant.works = wait
    begun = await site.engine.act("ns", "p1", "pump")
    for number in range(1, 5):
        await until(lambda number=number: site.plant.begun["pump"] == number)  # type: ignore[misc]
        while not await site.engine.store.transact(wake):
            await asyncio.sleep(0.005)
    assert "has trouble" not in [line.event for line in await site.engine.history("ns", "p1")]
    assert (await site.engine.get("ns", "p1")).error is None


async def test_what_leaves_no_trace_is_done_again_by_whoever_takes_it_over(site: Site) -> None:
    await site.built("p1")
    site.plant.sights = [ObservedOutcome.REPEATABLE]
    site.plant.fail("pump", Unknown("no answer"))
    ended = await site.ended(await site.engine.act("ns", "p1", "pump"))
    assert (ended.status, site.plant.begun["pump"]) == (Status.SUCCEEDED, 2)


async def test_a_group_action_is_accepted_at_once_for_all_and_ends_when_all_have(site: Site) -> None:
    await site.engine.create("ns", "s1", STATION.kind, "found")
    for number in range(5):
        await site.built(f"p{number}", parent="s1")
    await site.engine.act("ns", "p4", "pump", not_before=4e9)
    site.plant.hold()
    verdict = await site.engine.group(
        site.engine.request("ns", "s1", "pump"), Selector("ns", parent="s1"), site.engine.request("ns", "", "pump")
    )
    assert verdict.whole is not None
    assert ([one.object.id for one in verdict.begun], list(verdict.skipped)) == (["p0", "p1", "p2", "p3"], ["p4"])
    assert await site.state("s1") == "working"
    site.plant.release()
    assert (await site.ended(verdict.whole)).status is Status.SUCCEEDED
    assert [await site.state(f"p{number}") for number in range(4)] == ["idle"] * 4
    children = await site.engine.store.reader.children_of(verdict.whole.op.key)
    assert {child.status for child in children} == {Status.SUCCEEDED}


async def test_a_large_group_is_accepted_whole_and_says_who_stayed_behind(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So large that a store may write its first members while the others are decided."""
    monkeypatch.setattr(unit_of_work, "EARLY_FLUSH_OPERATIONS", 50)
    names = [f"p{number}" for number in range(120)]
    await asyncio.gather(*(site.built(name) for name in names))
    site.plant.hold()
    busy = await site.engine.act("ns", "p7", "pump")
    verdict = await site.engine.group(
        None, Selector("ns", kind=PUMP.kind), site.engine.request("ns", "", "tune", who="ann")
    )
    assert list(verdict.skipped) == ["p7"]
    assert {one.object.id for one in verdict.begun} == set(names) - {"p7"}
    site.plant.release()
    ended = [await site.ended(one) for one in (busy, *verdict.begun)]
    assert {one.status for one in ended} == {Status.SUCCEEDED}
    assert {(await site.engine.get("ns", name)).op for name in names} == {None}


async def test_a_group_action_that_no_member_allows_changes_nothing(site: Site) -> None:
    await site.engine.create("ns", "s1", STATION.kind, "found")
    await site.built("p1", parent="s1")
    members = Selector("ns", parent="s1")
    with pytest.raises(NoneAllowed) as caught:
        await site.engine.group(site.engine.request("ns", "s1", "pump"), members, site.engine.request("ns", "", "mend"))
    assert list(caught.value.skipped) == ["p1"]
    assert (await site.state("s1"), await site.state("p1")) == ("quiet", "idle")


async def test_a_group_action_that_is_repeated_under_its_key_is_not_done_again(site: Site) -> None:
    await site.engine.create("ns", "s1", STATION.kind, "found")
    await site.built("p1", parent="s1")

    async def ask() -> Accepted | None:
        whole = site.engine.request("ns", "s1", "pump", key="k1")
        each = site.engine.request("ns", "", "pump")
        return (await site.engine.group(whole, Selector("ns", parent="s1"), each)).whole

    first = await ask()
    assert first is not None
    await site.ended(first)
    again = await ask()
    assert again is not None
    assert (again.again, again.op.id) == (True, first.op.id)
    assert site.plant.begun["pump"] == 1


async def test_a_group_action_without_a_composite_is_not_done_again_under_its_key(site: Site) -> None:
    for name in ("p1", "p2", "p3"):
        await site.built(name)

    async def ask(*names: str) -> GroupVerdict:
        return await site.engine.group(
            None, Selector("ns", ids=names), site.engine.request("ns", "", "pump", who="ann", key="k1")
        )

    first = await ask("p1", "p2")
    assert first.group == first.begun[0].op.id
    for one in first.begun:
        await site.ended(one)
    again = await ask("p1", "p2")
    assert (again.again, again.group, again.begun) == (True, first.group, [])
    with pytest.raises(KeyReused):
        await ask("p1", "p3")
    assert site.plant.begun["pump"] == 2


async def test_limits_of_lanes_and_groups_hold(site: Site) -> None:
    lanes = [Lane(f"cloud/{number}", "cloud", 2, 0.0, 0.0, 0) for number in range(4)]
    await site.engine.set_limits([LaneGroup("cloud", 2)], lanes)
    for number in range(16):
        site.plant.lanes[f"p{number}"] = Route("cloud", f"cloud/{number % 4}")
    most: dict[str, int] = {}
    full = asyncio.Event()

    async def counting(job: Job) -> None:
        lane = job.claim.work.lane
        site.plant.inside[lane] += 1
        active = {name: count for name, count in site.plant.inside.items() if count}
        most["lanes"] = max(most.get("lanes", 0), len(active))
        most["lane"] = max(most.get("lane", 0), *active.values())
        if sum(active.values()) == 4:
            full.set()
        await full.wait()
        site.plant.inside[lane] -= 1

    site.engine.kinds[PUMP.kind].handles("build")(counting)
    created = [await site.engine.create("ns", f"p{number}", PUMP.kind, "build") for number in range(16)]
    for one in created:
        assert (await site.ended(one)).status is Status.SUCCEEDED
    assert most == {"lanes": 2, "lane": 2}


async def test_throttling_backs_off_one_lane_only(site: Site) -> None:
    for name, lane in (("p1", "cloud/a"), ("p2", "cloud/a"), ("p3", "cloud/b")):
        site.plant.lanes[name] = Route("cloud", lane)
        await site.built(name)
    site.plant.fail("pump", Throttled("slow down", after=30.0))
    slow = await site.engine.act("ns", "p1", "pump")
    async with asyncio.timeout(30):
        while not any(load.lane.back_off for load in (await site.engine.store.reader.lanes())[1]):
            await asyncio.sleep(0.005)
    held = await site.engine.act("ns", "p2", "pump")
    assert (await site.ended(await site.engine.act("ns", "p3", "pump"))).status is Status.SUCCEEDED
    for waiting in (slow, held):
        found = await site.engine.store.reader.operation(waiting.op.key)
        assert found is not None
        assert found.status is Status.WAITING


async def test_of_what_waits_in_a_lane_the_most_urgent_goes_first(site: Site) -> None:
    await site.engine.set_limits([LaneGroup("cloud", 1)], [Lane("cloud/a", "cloud", 1, 0.0, 0.0, 0)])
    order: list[str] = []

    async def noting(job: Job) -> None:
        order.append(job.object)
        await site.plant.open.wait()

    site.engine.kinds[PUMP.kind].handles("build")(noting)
    site.plant.hold()
    created = []
    for name, urgent in (("p1", 0), ("p2", 0), ("p3", 5)):
        site.plant.lanes[name] = Route("cloud", "cloud/a")
        created.append(await site.engine.create("ns", name, PUMP.kind, "build", priority=urgent))
        await until(lambda: bool(order))
    site.plant.release()
    for one in created:
        await site.ended(one)
    assert order == ["p1", "p3", "p2"]


async def test_a_timer_is_an_event_by_the_clock_and_fires_once(site: Site) -> None:
    await site.built("p1")
    now = await site.engine.store.reader.time()
    await site.engine.set_timer(Timer("ns", "t1", now + 0.05, 0, "p1", "pump", "[]", "{}"))
    await until(lambda: site.plant.done["pump"] == 1)
    assert await site.engine.store.reader.timers("ns", 10) == []
    lines = [line for line in await site.engine.history("ns", "p1") if line.event == "pump"]
    assert [line.actor for line in lines] == ["clock"]


async def test_a_timer_whose_object_is_in_transition_waits(site: Site) -> None:
    await site.built("p1")
    site.plant.hold()
    tuning = await site.engine.act("ns", "p1", "tune")
    await site.engine.set_timer(Timer("ns", "t1", 1.0, 0, "p1", "pump", "[]", "{}"))
    await until(lambda: site.plant.begun["tune"] == 1)
    async with asyncio.timeout(30):
        while [one.due for one in await site.engine.store.reader.timers("ns", 10)] == [1.0]:
            await asyncio.sleep(0.005)
    assert len(await site.engine.store.reader.timers("ns", 10)) == 1
    site.plant.release()
    await site.ended(tuning)
    await until(lambda: site.plant.done["pump"] == 1)


async def test_a_timer_that_comes_at_a_wrong_state_is_gone_and_stands_in_the_journal(site: Site) -> None:
    site.plant.fail("build", Permanent("no concrete"))
    await site.built("p1")
    await site.engine.set_timer(Timer("ns", "t1", 1.0, 0, "p1", "pump", "[]", "{}"))
    async with asyncio.timeout(30):
        while await site.engine.store.reader.timers("ns", 10):
            await asyncio.sleep(0.005)
    line = (await site.engine.history("ns", "p1"))[-1]
    assert (line.actor, line.who, line.event) == ("clock", "t1", "rejected: pump")
    assert await site.state("p1") == "broken"


async def test_another_partys_report_counts_only_for_the_current_operation(site: Site) -> None:
    remote = Kind(STATION)
    site.engine.kinds._kinds[STATION.kind] = remote
    await site.engine.create("ns", "s1", STATION.kind, "found")
    asked = (await site.engine.act("ns", "s1", "pump")).op
    assert not await site.engine.report(ExternalReport("ns", "s1", "another", asked.generation, "calm", "controller"))
    assert not await site.engine.report(
        ExternalReport("ns", "s1", asked.id, asked.generation + 1, "calm", "controller")
    )
    assert not await site.engine.report(ExternalReport("ns", "s1", asked.id, asked.generation, "calm", "user"))
    assert await site.state("s1") == "working"
    assert await site.engine.report(ExternalReport("ns", "s1", asked.id, asked.generation, "calm", "controller"))
    assert await site.state("s1") == "quiet"
    assert not await site.engine.report(ExternalReport("ns", "s1", asked.id, asked.generation, "calm", "controller"))
    rejected = [line for line in await site.engine.history("ns", "s1") if line.event.startswith("rejected")]
    assert len(rejected) == 4


async def test_whoever_waits_for_one_of_several_locks_holds_none_of_them(site: Site) -> None:
    for name in ("p1", "p2"):
        await site.built(name)
    site.plant.hold()
    first = await site.engine.act("ns", "p1", "pump", tree="t", locks=[LockRequest("/a", "X")])
    both = [LockRequest("/a", "X"), LockRequest("/b", "X")]
    second = await site.engine.act("ns", "p2", "pump", tree="t", locks=both, wait=True)
    held = {(one.op, one.path): one.waiting for one in await site.engine.store.reader.locks_of(Key("ns", "t"))}
    assert held == {(first.op.id, "/a"): False, (second.op.id, "/a"): True, (second.op.id, "/b"): True}
    site.plant.release()
    assert (await site.ended(second)).status is Status.SUCCEEDED


async def test_locks_are_held_until_the_end_and_refused_or_waited_for(site: Site) -> None:
    for name in ("p1", "p2", "p3"):
        await site.built(name)
    site.plant.hold()
    upper, lower = LockRequest("/a", "X"), LockRequest("/a/b", "X")
    first = await site.engine.act("ns", "p1", "pump", tree="t", locks=[upper])
    with pytest.raises(Locked) as caught:
        await site.engine.act("ns", "p2", "pump", tree="t", locks=[lower])
    assert [(one.op, one.path, one.mode) for one in caught.value.blockers] == [(first.op.id, "/a", "X")]
    assert await site.state("p2") == "idle"
    waiting = await site.engine.act("ns", "p2", "pump", tree="t", locks=[lower], wait=True)
    unrelated = await site.engine.act("ns", "p3", "pump", tree="t", locks=[LockRequest("/ab", "X")])
    await until(lambda: site.plant.begun["pump"] == 2)
    site.plant.release()
    for one in (first, waiting, unrelated):
        assert (await site.ended(one)).status is Status.SUCCEEDED
    assert await site.engine.store.reader.locks_of(Key("ns", "t")) == []


async def test_the_journal_is_watched_without_gap_or_duplicate(site: Site) -> None:
    await site.built("p1")
    seen: list[int] = []

    async def watching() -> None:
        async for line in site.engine.watch(0):
            seen.append(line.seq)  # noqa: PERF401 - read while it grows

    task = asyncio.create_task(watching())
    for _ in range(20):
        await site.ended(await site.engine.act("ns", "p1", "pump"))
    last = await site.engine.store.reader.last_journal_seq()
    await until(lambda: bool(seen) and seen[-1] == last)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    everything = [line.seq for line in await site.engine.store.reader.journal(0, 1000, JournalFilter())]
    assert seen == everything == sorted(set(everything))


async def test_the_state_at_a_time_is_read_off_the_journal(site: Site) -> None:
    before = await site.engine.store.reader.time() - 1
    await site.built("p1")
    lines = await site.engine.history("ns", "p1")
    assert await site.engine.state_at("ns", "p1", before) is None
    assert await site.engine.state_at("ns", "p1", lines[-1].at) == "idle"


async def test_a_worker_that_vanished_is_replaced_and_the_work_looked_at_first(
    new_store: Callable[[], Store], site: Site
) -> None:
    await site.built("p1")
    site.plant.hold()
    accepted = await site.engine.act("ns", "p1", "pump")
    await until(lambda: site.plant.begun["pump"] == 1)
    assert site.engine.worker is not None
    for task in (
        *site.engine.worker._claim_tasks,
        *site.engine.worker._lease_tasks,
    ):  # it claims nothing more and renews nothing
        task.cancel()
    vanished = site.engine.worker.name
    await site.engine.store.transact(lambda tx: release_worker_claims(tx, [vanished]))  # as if its lease had expired
    site.plant.true.add(accepted.op.id)  # and yet its work has had its effect
    second = Plant()
    second.true = site.plant.true
    async with Engine(new_store(), [second.pump(), second.station()]) as other:
        ended = await other.wait("ns", accepted.op.id, 30)
    assert (ended.status, second.begun["pump"]) == (Status.SUCCEEDED, 0)
    site.plant.release()
    worker = site.engine.worker
    assert worker is not None
    await until(lambda: worker.busy == 0)
    assert any(line.event == "rejected: succeeded" for line in await site.engine.history("ns", "p1"))


async def test_what_nobody_reports_on_is_timed_out_and_stands_in_the_healers_report(site: Site) -> None:
    site.engine.kinds._kinds[STATION.kind] = Kind(STATION)
    await site.engine.create("ns", "s1", STATION.kind, "found")
    before = await site.engine.store.reader.time()
    asked = (await site.engine.act("ns", "s1", "pump")).op
    await late(site, asked.key)
    ended = await site.engine.wait("ns", asked.id, 30)
    assert (ended.status, await site.state("s1")) == (Status.FAILED, "tired")
    (settled,) = await site.engine.recovered(before)
    assert (settled.object, settled.op, settled.how, settled.state) == ("s1", asked.id, "timed out", "tired")
    assert settled.began == asked.created
    assert await site.engine.stuck() == []


async def late(site: Site, key: Key) -> None:
    """Let an operation's deadline pass at once."""

    async def function(tx: Tx) -> None:
        work = (await tx.work([key]))[key]
        await tx.apply(Changes(work=[replace(work, deadline=1.0)]))

    await site.engine.store.transact(function)


async def test_an_error_that_no_database_can_hold_as_it_is_ends_the_work_all_the_same(site: Site) -> None:
    await site.built("p1")
    site.plant.fail("pump", Permanent("disk \0 is \ud800 gone"))
    ended = await site.ended(await site.engine.act("ns", "p1", "pump"))
    assert (ended.status, ended.error, ended.attempts) == (Status.FAILED, "disk ? is ? gone", 1)
    assert (await site.engine.history("ns", "p1"))[-1].reason == "disk ? is ? gone"


async def test_a_worker_whose_store_is_silent_for_longer_than_its_lease_stops_working(
    new_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, store, heard = Plant(), new_store(), asyncio.Event()
    transact = store.transact

    async def silent(function: TxFunction[T]) -> T:
        await heard.wait()
        return await transact(function)

    # real time: the lease expires; one that expires before its time changes nothing here
    async with Engine(store, [plant.pump()], lease_s=1.0) as engine:
        site = Site(engine, plant)
        plant.hold()
        accepted = await engine.create("ns", "p1", PUMP.kind, "build")
        await until(lambda: plant.inside["p1"] == 1)
        monkeypatch.setattr(store, "transact", silent)
        try:
            await until(lambda: plant.inside["p1"] == 0)
        finally:
            plant.release()
            heard.set()
        ended = await site.ended(accepted)
    assert (ended.status, plant.done["build"], plant.most["p1"]) == (Status.SUCCEEDED, 1, 1)


async def test_what_is_claimed_is_not_begun_if_the_answer_comes_after_the_lease(
    new_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, left = Plant(), list[float]()
    # real time: the lease expires; one that expires before its time changes nothing here
    async with Engine(new_store(), [plant.pump()], lease_s=1.0) as engine:
        site, worker, prompt = Site(engine, plant), engine.worker, engine.store.transact
        assert worker is not None
        await site.built("p1")

        async def late(function: TxFunction[T]) -> T:
            answer = await prompt(function)
            await until(lambda: worker._lease.left_s <= 0)
            return answer

        async def note(_: Job) -> None:
            left.append(worker._lease.left_s)

        engine.kinds[PUMP.kind].handles("pump", observe=plant.observe)(note)
        monkeypatch.setattr(engine.store, "transact", late)
        accepted = await engine.act("ns", "p1", "pump")
        monkeypatch.setattr(engine.store, "transact", prompt)
        await site.ended(accepted)
    assert min(left) > 0


async def test_an_operation_that_has_ended_tells_when_it_was_first_started(site: Site) -> None:
    await site.built("p1")
    attempts = list[float]()

    async def in_two_attempts(job: Job) -> None:
        attempts.append(job._claimed_at)
        if job.attempt == 1:
            raise Temporary("interrupted", after=0.2)

    site.engine.kinds[PUMP.kind].handles("pump")(in_two_attempts)
    site.engine.kinds[PUMP.kind].handles("move")(in_two_attempts)
    for action in ("pump", "move"):
        attempts.clear()
        accepted = await site.engine.act("ns", "p1", action)
        ended = await site.ended(accepted)
        assert ended.started == attempts[0]
        assert accepted.op.created <= attempts[0] < attempts[1]
    waiting = await site.engine.act("ns", "p1", "pump", not_before=4e9)
    await site.engine.cancel("ns", waiting.op.id)
    assert (await site.ended(waiting)).started is None


class AwayAtTheStart(SqliteStore):
    """A database that goes away just before the first heartbeat, and is back for the second one."""

    attempts = 0

    async def transact(self, function: TxFunction[T]) -> T:
        self.attempts += 1
        if self.attempts == 1:
            raise Unavailable("connection lost")
        return await super().transact(function)


def test_a_worker_whose_database_goes_away_as_it_starts_works_when_it_is_back() -> None:
    async def live() -> Status:
        plant = Plant()
        async with Engine(AwayAtTheStart(":memory:"), [plant.pump(), plant.station()]) as engine:
            built = await engine.create("ns", "p1", PUMP.kind, "build")
            return (await engine.wait("ns", built.op.id, 60)).status

    loop = VirtualLoop()
    try:
        assert loop.run_until_complete(live()) is Status.SUCCEEDED
    finally:
        loop.close()
