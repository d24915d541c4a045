"""Shared transactions of timers and overdue work: an item that fails, or has to wait, delays no other."""

import asyncio
import logging
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from stateward.engine import Engine, Kind, Request, Sighting, UnitOfWork
from stateward.engine.recovery import expedite_overdue, resolve_overdue
from stateward.lifecycle import CLOCK, NEW, STABLE, TRANSITIONAL, USER, State, declare, request, step, timeout
from stateward.store.changes import Changes, Ended
from stateward.store.port import Store
from stateward.store.records import Key, Lane, LaneGroup, Object, Operation, Timer
from tests.integration.engine.pump_kinds import PUMP, STATION, Plant
from tests.waiting import until

NewStore = Callable[[], Store]


class Clock(State):
    SET = "set", STABLE
    RUNG = "rung", STABLE
    BUSY = "busy", TRANSITIONAL
    OVERDUE = "overdue", STABLE


CLOCKS = declare(
    "test.clock",
    Clock,
    (
        step(NEW, "set", USER, Clock.SET),
        step(Clock.SET, "ring", CLOCK, Clock.RUNG),
        request(Clock.SET, "wind", USER, Clock.BUSY, Clock.SET, Clock.OVERDUE, 60.0),
        timeout(Clock.BUSY, Clock.OVERDUE),
    ),
    USER | CLOCK,
)


class BrokenPlugin:
    """A kind whose guard and end hook fail for the objects in `broken`."""

    def __init__(self) -> None:
        self.broken = {"a"}

    def kind(self) -> Kind:
        return Kind(CLOCKS, guard=self._check, on_end=self._end)

    async def _check(self, _uow: UnitOfWork, asked: Request, _found: Object) -> None:
        if asked.action == "ring" and asked.object in self.broken:
            raise KeyError("secret-of-the-plugin")

    async def _end(self, _uow: UnitOfWork, operation: Operation, _ended: Ended) -> None:
        if operation.object in self.broken:
            raise KeyError("secret-of-the-plugin")


async def wait_for_state(engine: Engine, name: str, state: str) -> None:
    await until(lambda: engine.get("ns", name), lambda obj: obj.state == state)


async def test_a_guard_that_fails_for_a_timer_stops_no_other_timer_and_is_tried_again_later(
    new_store: NewStore, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = BrokenPlugin()
    async with Engine(new_store(), [plugin.kind()], works=False) as api:
        for name in ("a", "b", "c"):
            await api.create("ns", name, CLOCKS.kind, "set")
            await api.set_timer(Timer("ns", f"of-{name}", 1.0, 0, name, "ring", "[]", "{}"))
        async with Engine(new_store(), [plugin.kind()]) as engine:
            await wait_for_state(engine, "c", "rung")
            await wait_for_state(engine, "b", "rung")
            (left,) = await engine.store.reader.timers("ns", 10)
            assert (left.id, (await engine.get("ns", "a")).state) == ("of-a", "set")
            (entry,) = [one for one in await engine.history("ns", "a") if one.event == "rejected: ring"]
            assert entry.reason == "its guard or end hook failed (KeyError); it is tried again"
            async with asyncio.timeout(30):  # each time later, and journaled only the first time
                while (due := (await engine.store.reader.timers("ns", 10))[0].due) == left.due:
                    await asyncio.sleep(0.02)
            assert due - left.due >= 2.0
            plugin.broken.clear()
            await wait_for_state(engine, "a", "rung")
            assert len([one for one in await engine.history("ns", "a") if one.event == "rejected: ring"]) == 1
    errors = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert [one.getMessage() for one in errors] == ["timer of-a (ring of test.clock a in ns) is tried again later"]
    assert errors[0].exc_info is not None


async def test_an_end_hook_that_fails_at_a_deadline_stops_no_other_deadline_and_why_shows_it(
    new_store: NewStore,
) -> None:
    plugin = BrokenPlugin()
    async with Engine(new_store(), [plugin.kind()], works=False) as api:
        for name in ("a", "b", "c"):
            await api.create("ns", name, CLOCKS.kind, "set")
            await api.act("ns", name, "wind")
        await make_overdue(api, "a", "b", "c")
        assert await resolve_overdue(api.store.transact, api.kinds, "me/1", 10) == 3
        states = {name: (await api.get("ns", name)).state for name in ("a", "b", "c")}
        assert states == {"a": "busy", "b": "overdue", "c": "overdue"}
        trouble = "it is overdue and cannot be ended: its guard or end hook failed (KeyError)"
        assert (await api.get("ns", "a")).error == trouble
        (work,) = await api.store.reader.queue_of(Key("ns", "a"))
        assert work.deadline is not None
        assert work.deadline > await api.store.reader.time() - 60.0
        await make_overdue(api, "a")
        await resolve_overdue(api.store.transact, api.kinds, "me/1", 10)
        assert [one.event for one in await api.history("ns", "a")].count("has trouble") == 1
        plugin.broken.clear()
        await make_overdue(api, "a")
        assert await resolve_overdue(api.store.transact, api.kinds, "me/1", 10) == 1
        assert (await api.get("ns", "a")).state == "overdue"


async def make_overdue(api: Engine, *names: str) -> None:
    works = [work for name in names for work in await api.store.reader.queue_of(Key("ns", name))]
    late = [replace(work, deadline=5.0 + number) for number, work in enumerate(works)]
    await api.store.transact(lambda tx: tx.apply(Changes(work=late)))


async def test_overdue_work_of_a_paused_lane_hides_no_other_overdue_work(new_store: NewStore) -> None:
    plant = Plant()
    pump = plant.pump()
    async with Engine(new_store(), [pump, Kind(STATION)], works=False) as api:
        names = [f"p{number}" for number in range(5)]
        for name in names:
            await api.create("ns", name, PUMP.kind, "build")
        await api.create("ns", "s", STATION.kind, "found")
        await api.act("ns", "s", "pump")
        await api.set_limits([LaneGroup("", 1)], [Lane("", "", 0, 0.0, 0.0, 0)])
        await make_overdue(api, *names, "s")
        assert await api.store.transact(lambda tx: expedite_overdue(tx, api.kinds, "me/1", 5)) == 5
        assert await api.store.transact(lambda tx: expedite_overdue(tx, api.kinds, "me/1", 5)) == 1
        assert (await api.get("ns", "s")).state == "tired"
        assert await api.store.reader.next_due_time() is None


async def test_a_sighting_that_the_lifecycle_does_not_know_stops_no_other_of_its_listing(new_store: NewStore) -> None:
    async with Engine(new_store(), [BrokenPlugin().kind()], works=False) as api:
        await api.create("ns", "b", CLOCKS.kind, "set")
        later = await api.store.reader.time() + 1000.0
        assert await api.observe([Sighting("ns", "b", "unheard of", later)]) == [False]
