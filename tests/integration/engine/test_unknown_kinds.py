"""Processes that do not know a kind: its work waits for one that does, untouched, and nothing else waits with it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from stateward.engine import Engine, ExternalReport, Kind, Route
from stateward.engine.errors import NotFound, UnknownKind
from stateward.engine.maintenance.forget import FORGOTTEN_EVENT, KindIsKnown
from stateward.engine.maintenance.retention import prune
from stateward.engine.maintenance.state_migration import migrate_states
from stateward.engine.recovery import expedite_overdue
from stateward.engine.worker.claims import claim
from stateward.engine.worker.prefetch import PrefetchPlan
from stateward.errors import BadInput, UnknownName
from stateward.lifecycle import CONTROLLER
from stateward.store.changes import Changes
from stateward.store.filters import Selector
from stateward.store.port import Store
from stateward.store.records import Key, Lane, LaneGroup, Status, Timer, WorkerRecord
from tests.integration.engine.pump_kinds import PUMP, STATION, Plant
from tests.waiting import until

NewStore = Callable[[], Store]


class Deployment:
    """One database, and engines on it that know pumps, stations, or both."""

    def __init__(self, new_store: NewStore) -> None:
        self.new_store = new_store
        self.plant = Plant()

    def pumps(self, **how: object) -> Engine:
        """Return an engine that does not know stations."""
        return self.engine([self.plant.pump()], **how)

    def stations(self, **how: object) -> Engine:
        """Return an engine that does not know pumps."""
        return self.engine([self.plant.station()], **how)

    def whole(self, **how: object) -> Engine:
        """Return an engine that knows both."""
        return self.engine([self.plant.pump(), self.plant.station()], **how)

    def engine(self, kinds: list[Kind], **how: object) -> Engine:
        """Return an engine that knows some kinds."""
        return Engine(self.new_store(), kinds, **how)  # type: ignore[arg-type]


@pytest.fixture
async def deployment(new_store: NewStore) -> AsyncIterator[Deployment]:
    found = Deployment(new_store)
    yield found
    found.plant.release()


def marker_of(engine: Engine) -> str:
    """Return the name of the station at which a worker shows that it is done; no name has a slash."""
    return f"marker-{engine.worker.name if engine.worker else ''}".replace("/", "-")


async def quiet(engine: Engine) -> None:
    """Let a worker do all that it would do by itself: one round of its own work is done after all else it found."""
    done = await engine.create("ns", marker_of(engine), STATION.kind, "found")
    accepted = await engine.act("ns", done.object.id, "pump")
    await engine.wait("ns", accepted.op.id, 30)


async def test_work_of_an_unknown_kind_is_neither_claimed_nor_failed_and_other_work_goes_on(
    deployment: Deployment,
) -> None:
    async with deployment.whole(works=False) as api, deployment.stations() as station_worker:
        ops = [(await api.create("ns", f"p{number}", PUMP.kind, "build")).op for number in range(20)]
        await quiet(station_worker)
        for op in ops:
            found = await api.store.reader.operation(op.key)
            assert found is not None
            assert (found.status, found.attempts) == (Status.WAITING, 0)
        assert {work.epoch for work in await api.store.reader.queue_of(Key("ns", "p3"))} == {0}
        async with deployment.pumps():  # the worker that knows them comes
            for op in ops:
                assert (await api.wait("ns", op.id, 30)).status is Status.SUCCEEDED
    assert deployment.plant.done["build"] == 20


async def test_a_worker_that_knows_all_kinds_filters_nothing(deployment: Deployment) -> None:
    async with deployment.whole() as engine:
        await engine.wait("ns", (await engine.create("ns", "p", PUMP.kind, "build")).op.id, 30)
        assert engine.kinds.filter is None


async def test_work_of_an_unknown_kind_takes_no_room_of_its_lane_or_group(deployment: Deployment) -> None:
    """A lane with room for one, and a group with room for one lane: both are full of unknown work, and yet free."""
    for name in ("p1", "p2", "p3"):
        deployment.plant.lanes[name] = Route("region", "a")
    deployment.plant.lanes["p4"] = Route("region", "b")
    async with deployment.pumps(works=False) as pumps:
        await pumps.set_limits([LaneGroup("region", 1)], [Lane("a", "region", 1, 0.0, 0.0, 0)])
        for name in ("p1", "p2", "p3", "p4"):
            await pumps.create("ns", name, PUMP.kind, "build")
    station = deployment.plant.station()
    station.route = lambda _object, _action: Route("region", "c")
    async with deployment.engine([station]) as engine:
        await quiet(engine)
        lanes = {load.lane.lane: load for load in (await engine.store.reader.lanes())[1]}
        assert (lanes["a"].running, lanes["b"].running) == (0, 0)
        assert lanes["a"].lane.opened == 0.0


async def test_unknown_work_at_the_head_of_a_lane_is_not_prefetched(deployment: Deployment) -> None:
    deployment.plant.lanes.update({name: Route("region", "a") for name in ("p1", "p2")})
    station = deployment.plant.station()
    station.route = lambda _object, _action: Route("region", "a")
    async with deployment.engine([deployment.plant.pump(), station], works=False) as api:
        await api.set_limits([LaneGroup("region", 1)], [Lane("a", "region", 1, 0.0, 0.0, 0)])
        await api.create("ns", "s1", STATION.kind, "found")
        await api.create("ns", "s2", STATION.kind, "found")
        for ask in (api.create("ns", "p1", PUMP.kind, "build"), api.create("ns", "p2", PUMP.kind, "build")):
            await ask
        await api.act("ns", "s1", "pump")
        await api.act("ns", "s2", "pump")
        kinds = deployment.engine([station]).kinds
        me = WorkerRecord("me/1", 60.0, 0.0, "here", 1)

        async def claimed(plan: PrefetchPlan) -> list[str]:
            result = await api.store.transact(lambda tx: claim(tx, kinds, me, 10, plan))
            return [one.object.id for one in (*result.claims, *result.prefetched)]

        assert await claimed(PrefetchPlan({}, {}, {})) == ["s1"]
        assert await claimed(PrefetchPlan({"a": 5}, {}, {})) == ["s2"]


async def test_an_eager_accept_does_not_claim_waiting_work_of_an_unknown_kind(deployment: Deployment) -> None:
    async with deployment.pumps(works=False) as pumps:
        op = (await pumps.create("ns", "p", PUMP.kind, "build")).op
    async with deployment.stations() as engine:
        await asyncio.gather(*(engine.create("ns", f"s{number}", STATION.kind, "found") for number in range(5)))
        accepted = await asyncio.gather(*(engine.act("ns", f"s{number}", "pump") for number in range(5)))
        for one in accepted:
            assert (await engine.wait("ns", one.op.id, 30)).status is Status.SUCCEEDED
        found = await engine.store.reader.operation(op.key)
        assert found is not None
        assert (found.status, found.attempts) == (Status.WAITING, 0)


async def test_the_work_of_a_dead_worker_is_requeued_by_one_that_does_not_know_it_and_waits(
    deployment: Deployment,
) -> None:
    async with deployment.pumps(works=False) as api:
        op = (await api.create("ns", "p", PUMP.kind, "build")).op
        dead = WorkerRecord("dead/1", -1.0, 0.0, "host", 1)
        await api.store.transact(lambda tx: tx.heartbeat(dead))
        await api.store.transact(lambda tx: tx.claim({"": 10}, "dead/1"))
    async with deployment.stations() as engine:
        await quiet(engine)
        await until(lambda: engine.store.reader.queue_of(Key("ns", "p")), lambda queue: queue[0].owner is None)
        await quiet_again(engine)
        (work,) = await engine.store.reader.queue_of(Key("ns", "p"))
        assert (work.owner, work.observe, work.attempts) == (None, True, 1)
        assert "put back" in [entry.event for entry in await engine.history("ns", "p")]
    async with deployment.pumps() as pumps:
        assert (await pumps.wait("ns", op.id, 30)).status is Status.SUCCEEDED


async def quiet_again(engine: Engine) -> None:
    accepted = await engine.act("ns", marker_of(engine), "pump")
    await engine.wait("ns", accepted.op.id, 30)


async def test_the_deadlines_of_unknown_kinds_are_left_to_those_who_know_them_and_stop_no_other(
    deployment: Deployment,
) -> None:
    """More than one batch of overdue operations that other parties carry out, and behind them one that is known."""
    remote = Kind(STATION)
    async with deployment.engine([remote, deployment.plant.pump()], works=False) as api:
        names = [f"s{number:03}" for number in range(120)]
        for name in names:
            await api.create("ns", name, STATION.kind, "found")
            await api.act("ns", name, "pump")
        await api.create("ns", "p", PUMP.kind, "build")
        ours = (await api.store.transact(lambda tx: tx.claim({"": 1}, "dead/1")))[0].work
        works = [work for name in names for work in await api.store.reader.queue_of(Key("ns", name))]
        late = [replace(work, deadline=5.0) for work in works] + [replace(ours, deadline=10.0)]
        await api.store.transact(lambda tx: tx.apply(Changes(work=late)))
        kinds = deployment.pumps().kinds
        assert await api.store.transact(lambda tx: expedite_overdue(tx, kinds, "me/1", 100)) == 1
        (work,) = await api.store.reader.queue_of(Key("ns", "p"))
        assert (work.owner, work.observe) == (None, True)
        assert {(await api.get("ns", name)).state for name in names} == {"working"}
        assert await api.store.reader.next_due_time(kinds.filter) is None  # what is known only waits for a worker
        whole = deployment.engine([remote, deployment.plant.pump()]).kinds
        assert await api.store.transact(lambda tx: expedite_overdue(tx, whole, "me/1", 1000)) == 120
        assert {(await api.get("ns", name)).state for name in names} == {"tired"}


async def test_due_timers_of_unknown_kinds_wait_and_others_fire(deployment: Deployment) -> None:
    async with deployment.whole(works=False) as api:
        await api.create("ns", "s", STATION.kind, "found")
        for number in range(3):
            await api.set_timer(Timer("ns", f"t{number}", 1.0, 0, "s", "pump", "[]", "{}"))
        async with deployment.pumps() as pumps:
            await pumps.wait("ns", (await pumps.create("ns", "p", PUMP.kind, "build")).op.id, 30)
            await pumps.set_timer(Timer("ns", "mine", 2.0, 0, "p", "pump", "[]", "{}"))
            await until(lambda: deployment.plant.done["pump"] != 0)
            assert await pumps.store.reader.next_due_time(pumps.kinds.filter) != 1.0
        assert {timer.id: timer.due for timer in await api.store.reader.timers("ns", 10)} == {
            "t0": 1.0,
            "t1": 1.0,
            "t2": 1.0,
        }
        assert [entry.event for entry in await api.history("ns", "s")] == ["found"]


async def test_a_timer_of_a_removed_object_of_an_unknown_kind_does_not_stay_for_ever(deployment: Deployment) -> None:
    async with deployment.pumps(works=False) as api:
        await api.create("ns", "p", PUMP.kind, "build")
        await api.set_timer(Timer("ns", "t", 1.0, 0, "p", "pump", "[]", "{}"))
    async with deployment.stations() as engine:
        await engine.forget("ns", "p", PUMP.kind, "ada")
        await engine.set_timer(Timer("ns", "late", 1.0, 0, "p", "pump", "[]", "{}"))
        await until(lambda: engine.store.reader.timers("ns", 10), lambda timers: not timers)


async def test_a_request_about_an_unknown_kind_is_denied_and_not_remembered(deployment: Deployment) -> None:
    async with deployment.whole() as whole:
        await whole.create("ns", "s", STATION.kind, "found")
        async with deployment.pumps(works=False) as api:
            with pytest.raises(UnknownKind, match=r"does not know the kind test\.station"):
                await api.act("ns", "s", "pump", key="k1")
            with pytest.raises(UnknownName):
                await api.create("ns", "s2", STATION.kind, "found")
            assert not await api.report(ExternalReport("ns", "s", "x", 1, "calm", CONTROLLER))
        accepted = await whole.act("ns", "s", "pump", key="k1")  # a server that knows it accepts the same request
        assert not accepted.again


async def test_cancelling_an_operation_of_an_unknown_kind_is_denied_and_stops_nothing(deployment: Deployment) -> None:
    async with deployment.pumps(works=False) as pumps:
        op = (await pumps.create("ns", "p", PUMP.kind, "build")).op
    async with deployment.stations(works=False) as api:
        with pytest.raises(UnknownKind):
            await api.cancel("ns", op.id)
        (work,) = await api.store.reader.queue_of(Key("ns", "p"))
        assert not work.cancelled


async def test_a_parent_is_cancelled_although_a_child_is_of_an_unknown_kind(deployment: Deployment) -> None:
    async with deployment.whole(works=False) as api:
        await api.create("ns", "s", STATION.kind, "found")
        await api.create("ns", "p", PUMP.kind, "build", parent="s")
        parent = await with_child(api)
    async with deployment.stations(works=False) as api:
        await api.cancel("ns", parent)
        (work,) = await api.store.reader.queue_of(Key("ns", "s"))
        (child,) = await api.store.reader.queue_of(Key("ns", "p"))
        assert (work.cancelled, child.cancelled) == (True, False)


async def with_child(api: Engine) -> str:
    """Let a station wait for a pump: the pump's operation becomes the child of the station's."""
    whole = api.request("ns", "s", "pump")
    each = api.request("ns", "", "scrap", facts=["force"])
    verdict = await api.group(whole, Selector("ns", PUMP.kind), each)
    assert verdict.whole is not None
    return verdict.whole.op.id


async def test_a_forgotten_object_is_gone_with_its_work_and_timers_and_who_waits_goes_on(
    deployment: Deployment,
) -> None:
    async with deployment.whole(works=False) as api:
        await api.create("ns", "s", STATION.kind, "found")
        await api.create("ns", "p", PUMP.kind, "build", parent="s", spec={"secret": "x"})
        parent = await with_child(api)
        await api.set_timer(Timer("ns", "t", 9e9, 0, "p", "pump", "[]", "{}"))
        await api.set_timer(Timer("ns", "other", 9e9, 0, "s", "pump", "[]", "{}"))
    async with deployment.stations() as engine:
        await engine.forget("ns", "p", PUMP.kind, "ada")
        assert (await engine.wait("ns", parent, 30)).status is Status.SUCCEEDED
        with pytest.raises(NotFound):
            await engine.get("ns", "p")
        entry = (await engine.history("ns", "p"))[-1]
        assert (entry.event, entry.who, entry.actor, entry.target) == (FORGOTTEN_EVENT, "ada", "admin", "(gone)")
        assert {one.status for one in await engine.store.reader.operations_of(Key("ns", "p"), 9)} == {Status.CANCELLED}
        assert await engine.store.reader.queue_of(Key("ns", "p")) == []
        assert [timer.id for timer in await engine.store.reader.timers("ns", 10)] == ["other"]
        pruned = await prune(engine.store, await engine.store.reader.time() + 1.0)
        assert (await engine.store.reader.object(Key("ns", "p")), pruned.objects) == (None, 1)


async def test_two_kinds_of_one_name_are_refused(new_store: NewStore) -> None:
    plant = Plant()
    with pytest.raises(BadInput, match="there are two kinds of this name"):
        Engine(new_store(), [plant.pump(), plant.station(), plant.pump()])


async def test_the_arguments_of_forgotten_work_are_masked(deployment: Deployment) -> None:
    async with deployment.pumps(works=False) as pumps:
        op = (await pumps.create("ns", "p", PUMP.kind, "build", args={"token": "t0k3n"})).op
    async with deployment.stations(works=False) as api:
        await api.forget("ns", "p", PUMP.kind, "ada")
        found = await api.store.reader.operation(op.key)
        assert found is not None
        assert found.args == '{"token":"***"}'


async def test_only_what_nobody_knows_is_forgotten_and_only_by_its_kind(deployment: Deployment) -> None:
    async with deployment.pumps(works=False) as pumps:
        await pumps.create("ns", "p", PUMP.kind, "build")
        with pytest.raises(KindIsKnown, match="this server knows the kind"):
            await pumps.forget("ns", "p", PUMP.kind, "ada")
    async with deployment.stations(works=False) as api:
        with pytest.raises(BadInput, match=r"the kind of 'p', test\.pump"):
            await api.forget("ns", "p", "test.pumps", "ada")
        with pytest.raises(NotFound):
            await api.forget("ns", "q", PUMP.kind, "ada")
        async with deployment.pumps() as pumps:
            worker = pumps.worker
            assert worker is not None
            with pytest.raises(KindIsKnown, match=worker.name):
                await api.forget("ns", "p", PUMP.kind, "ada")
        assert (await api.get("ns", "p")).kind == PUMP.kind


async def test_nothing_is_forgotten_if_a_worker_that_knows_its_kind_starts_at_the_last_moment(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with deployment.pumps(works=False) as pumps:
        await pumps.create("ns", "p", PUMP.kind, "build")
    late = deployment.pumps()
    async with deployment.stations(works=False) as api:
        timers = type(api.store.reader).timers

        async def start_worker_and_read(*args: Any) -> list[Timer]:
            await late.__aenter__()
            return await timers(*args)

        monkeypatch.setattr(type(api.store.reader), "timers", start_worker_and_read)
        try:
            with pytest.raises(KindIsKnown):
                await api.forget("ns", "p", PUMP.kind, "ada")
        finally:
            await late.__aexit__()


async def test_states_of_unknown_kinds_hinder_neither_the_start_nor_a_state_migration(deployment: Deployment) -> None:
    async with deployment.pumps(works=False) as pumps:
        await pumps.create("ns", "p", PUMP.kind, "build")
    async with deployment.stations(works=False) as api:
        assert await migrate_states(api.store, api.kinds, {}) == {}
        with pytest.raises(UnknownName):
            await migrate_states(api.store, api.kinds, {PUMP.kind: {"building": "idle"}})


async def test_history_of_unknown_kinds_is_pruned_like_any_other(deployment: Deployment) -> None:
    async with deployment.pumps() as pumps:
        for action in ("build", "scrap", "forget"):
            ask = pumps.create("ns", "p", PUMP.kind, action) if action == "build" else pumps.act("ns", "p", action)
            accepted = await ask
            if accepted.operation is not None:
                await pumps.wait("ns", accepted.op.id, 30)
    async with deployment.stations(works=False) as api:
        pruned = await prune(api.store, await api.store.reader.time() + 1.0)
        assert (pruned.objects, pruned.operations) == (1, 2)
