"""What a program gets that uses the engine as a library: decoded values, and errors that tell how something ended."""

import asyncio
from collections.abc import Callable

import pytest

from stateward.engine import (
    Engine,
    EngineNotEntered,
    Job,
    Kind,
    OperationCancelled,
    OperationFailed,
    OperationTimedOut,
    Permanent,
    Request,
)
from stateward.engine.errors import NoSuchOperation
from stateward.lifecycle import BACK, NEW, STABLE, TRANSITIONAL, USER, State, action, declare
from stateward.store import JournalFilter
from stateward.store.port import Store
from stateward.store.records import Object, Operation, Status
from tests.integration.engine.conftest import Site
from tests.integration.engine.pump_kinds import PUMP


async def test_an_object_is_read_with_decoded_values(site: Site) -> None:
    await site.built("p1", spec={"size": 2, "fits": ["a", "b"]}, labels={"team": "red"})
    found = await site.engine.get("ns", "p1")
    assert (found.state, found.spec, found.seen, found.labels) == (
        "idle", {"size": 2, "fits": ["a", "b"]}, {}, {"team": "red"},
    )  # fmt: skip
    record = await site.engine.record("ns", "p1")
    assert isinstance(record, Object)
    assert (record.key, record.spec) == (found.key, '{"size":2,"fits":["a","b"]}')


async def test_an_operation_is_read_with_decoded_values(site: Site) -> None:
    await site.built("p1")

    async def fill(job: Job) -> None:
        await job.once("fill", lambda: asyncio.sleep(0, {"litres": job.args["litres"]}))

    site.plant.works = fill
    accepted = await site.engine.act("ns", "p1", "pump", args={"litres": 3}, facts=["quick"], who="ann")
    ended = await site.engine.wait("ns", accepted.op.id, 30)
    assert (ended.key, ended.status, ended.who, ended.facts) == (accepted.op.key, Status.SUCCEEDED, "ann", ("quick",))
    assert (ended.args, ended.steps, ended.result) == ({"litres": 3}, {"fill": {"litres": 3}}, None)
    record = await site.engine.wait_record("ns", accepted.op.id, 30)
    assert isinstance(record, Operation)
    assert record.args == '{"litres":3}'


async def test_the_history_has_the_spec_where_it_was_changed(site: Site) -> None:
    await site.built("p1", spec={"size": 1})
    await site.engine.run("ns", "p1", "tune", spec={"size": 2})
    entries = await site.engine.history("ns", "p1")
    assert [(one.event, one.target, one.spec) for one in entries] == [
        ("build", "building", {"size": 1}),
        ("succeeded", "idle", None),
        ("tune", "tuning", {"size": 2}),
        ("succeeded", "idle", None),
    ]


async def test_run_creates_and_acts_and_returns_the_result_and_the_object(site: Site) -> None:
    made = await site.engine.run("ns", "p1", "build", kind=site.engine.kinds[PUMP.kind], spec={"size": 1})
    assert (made.object.state, made.object.spec, made.result) == ("idle", {"size": 1}, {"attempt": 1})
    tuned = await site.engine.run("ns", "p1", "tune", seconds=30)
    assert (tuned.object.version > made.object.version, tuned.result) == (True, {"attempt": 1})


async def test_an_object_is_created_by_the_only_first_action_of_its_table(site: Site) -> None:
    accepted = await site.engine.create("ns", "p1", PUMP.kind)
    assert accepted.op.action == "build"


async def test_run_of_a_change_at_once_returns_the_object_without_an_operation(site: Site) -> None:
    await site.built("p1")
    site.plant.fail("pump", Permanent("no"))
    with pytest.raises(OperationFailed):
        await site.engine.run("ns", "p1", "pump")
    mended = await site.engine.run("ns", "p1", "mend")
    assert (mended.object.state, mended.operation, mended.result) == ("idle", None, None)


async def test_run_of_an_action_that_removes_the_object_returns_it_as_removed(site: Site) -> None:
    await site.built("p1")
    await site.engine.run("ns", "p1", "scrap")
    assert (await site.engine.run("ns", "p1", "forget")).object.removed


async def test_a_failure_is_raised_with_the_operation_its_error_and_the_state(site: Site) -> None:
    await site.built("p1")
    site.plant.fail("pump", Permanent("the shaft is broken"))
    with pytest.raises(OperationFailed) as raised:
        await site.engine.run("ns", "p1", "pump", args={"speed": 2})
    error = raised.value
    assert type(error) is OperationFailed
    assert (error.state, error.operation.args, error.operation.error) == ("broken", {"speed": 2}, "the shaft is broken")
    assert str(error) == (
        f"'pump' of test.pump 'p1' failed: the shaft is broken; it is broken (operation {error.operation.id})"
    )
    assert (
        await site.engine.wait("ns", error.operation.id)
    ).status is Status.FAILED  # without `check`, nothing is raised
    with pytest.raises(OperationFailed):
        await site.engine.wait("ns", error.operation.id, check=True)


async def test_a_cancellation_is_told_from_a_failure(site: Site) -> None:
    await site.built("p1")
    site.plant.hold()
    accepted = await site.engine.act("ns", "p1", "pump")
    await site.engine.cancel("ns", accepted.op.id)
    with pytest.raises(
        OperationCancelled, match=r"'pump' of test.pump 'p1' was cancelled: cancelled \(after .* s\); it is idle"
    ):
        await site.engine.wait("ns", accepted.op.id, 30, check=True)


class Clock(State):
    WINDING = "winding", TRANSITIONAL
    STILL = "still", STABLE


def clock_kind(within: float) -> Kind:
    rows = [
        action(NEW, "make", USER, Clock.WINDING, Clock.STILL, Clock.STILL, within),
        action(Clock.STILL, "wind", USER, Clock.WINDING, BACK, BACK, within),
    ]
    kind = Kind(declare("test.clock", Clock, rows, USER))

    @kind.handles("make")
    @kind.handles("wind")
    async def wind(job: Job) -> None:
        await asyncio.Event().wait()

    return kind


async def test_a_handler_that_never_returns_ends_at_its_deadline(new_store: Callable[[], Store]) -> None:
    async with Engine(new_store(), [clock_kind(0.2)]) as engine:
        with pytest.raises(OperationTimedOut) as raised:
            await engine.run("ns", "c1", "make", kind="test.clock", seconds=30)
    assert str(raised.value) == (
        "'make' of test.clock 'c1' timed out: not done 0.2 s after it was begun; it is still"
        f" (operation {raised.value.operation.id})"
    )


async def test_patience_that_ends_is_no_end_of_the_operation(site: Site) -> None:
    await site.built("p1")
    site.plant.hold()
    with pytest.raises(TimeoutError) as raised:
        await site.engine.run("ns", "p1", "pump", seconds=0.1)
    op = (await site.engine.get("ns", "p1")).op
    assert str(raised.value) == f"operation {op} has not ended after 0.1 s; it goes on"
    assert await site.state("p1") == "pumping"


async def test_an_engine_that_was_not_entered_or_was_left_says_what_to_write(new_store: Callable[[], Store]) -> None:
    engine = Engine(new_store(), [clock_kind(60)])
    uses = (
        lambda: engine.create("ns", "c1", "test.clock", "make"),
        lambda: engine.act("ns", "c1", "wind"),
        lambda: engine.run("ns", "c1", "wind"),
        lambda: engine.get("ns", "c1"),
        lambda: engine.wait("ns", "op"),
        lambda: engine.history("ns", "c1"),
        lambda: engine.cancel("ns", "op"),
        lambda: engine.plan([Request("ns", "c1", "wind", "op")]),
        lambda: anext(aiter(engine.watch(0, JournalFilter()))),
    )
    for use in uses:
        with pytest.raises(EngineNotEntered, match=r"use it inside of `async with Engine\(store, kinds\) as engine:`"):
            await use()
    async with engine:
        with pytest.raises(NoSuchOperation):
            await engine.wait("ns", "op")
    with pytest.raises(EngineNotEntered):
        await engine.get("ns", "c1")
