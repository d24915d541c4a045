"""Eager claims: an operation without a limit is claimed by the worker of the same process when it is accepted."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from stateward.engine import Engine, Route
from stateward.engine.accept.accept import accept
from stateward.engine.accept.eager_claims import EagerClaims
from stateward.engine.requests import Creation, Request
from stateward.store.errors import Unavailable
from stateward.store.port import Store, Tx, TxFunction
from stateward.store.records import UNLIMITED, Claim, Key, Lane, Status, WorkerRecord
from tests.integration.engine.conftest import Site
from tests.integration.engine.pump_kinds import PUMP, Plant

LEASE = 15.0
LATER = 1e12


class Hall:
    """An engine without a worker, and hands that stand beside it."""

    def __init__(self, engine: Engine, plant: Plant) -> None:
        self.engine = engine
        self.plant = plant

    def build(self, *names: str, not_before: float = 0.0, queue: str | None = None) -> list[Request]:
        """Return requests to build pumps."""
        birth = Creation(PUMP.kind, queue=queue)
        return [self.engine.request("ns", name, "build", creates=birth, not_before=not_before) for name in names]

    async def take(self, requests: Sequence[Request], room: int = 10, silent: float = 0.0) -> list[Claim]:
        """Accept requests; returns the eager claims of a worker whose last heartbeat was so many seconds ago."""

        async def function(tx: Tx) -> list[Claim]:
            hands = EagerClaims(WorkerRecord("w/1", LEASE, tx.now - silent, "here", 1), room)
            await accept(tx, self.engine.kinds, requests, hands)
            return hands.claims

        return await self.engine.store.transact(function)


@pytest.fixture
async def hall(new_store: Callable[[], Store]) -> AsyncIterator[Hall]:
    plant = Plant()
    async with Engine(new_store(), [plant.pump(), plant.station()], works=False) as engine:
        yield Hall(engine, plant)


async def test_what_no_limit_holds_back_has_its_owner_when_it_is_accepted(site: Site) -> None:
    site.plant.hold()
    asked = await site.engine.create("ns", "p1", PUMP.kind, "build")
    (work,) = await site.engine.store.reader.queue_of(Key("ns", "p1"))
    assert site.engine.worker is not None
    assert (work.owner, work.epoch, work.attempts) == (site.engine.worker.name, 1, 1)
    assert work.deadline == pytest.approx(asked.op.created + 60.0)


async def test_what_is_taken_is_what_is_stored(hall: Hall) -> None:
    (claim,) = await hall.take(hall.build("p1"))
    (work,) = await hall.engine.store.reader.queue_of(Key("ns", "p1"))
    assert (work.owner, work.epoch, work.deadline) == (claim.work.owner, claim.work.epoch, claim.work.deadline)
    assert claim.object == await hall.engine.record("ns", "p1")


@pytest.mark.parametrize(("room", "taken"), [(2, 2), (0, 0), (-1, 0)])
async def test_no_more_is_taken_than_there_is_room_for(hall: Hall, room: int, taken: int) -> None:
    assert len(await hall.take(hall.build("p1", "p2", "p3"), room=room)) == taken


async def test_what_has_a_lane_is_left_to_those_who_count(hall: Hall) -> None:
    hall.plant.lanes["p1"] = Route("cloud", "cloud/a")
    assert [one.object.id for one in await hall.take(hall.build("p1", "p2"))] == ["p2"]


@pytest.mark.parametrize("lane", [Lane("", "", 3, 0.0, 0.0, 0), Lane("", "", UNLIMITED, LATER, 0.0, 0)])
async def test_a_default_lane_with_a_limit_or_a_pause_is_left_to_those_who_count(hall: Hall, lane: Lane) -> None:
    await hall.engine.set_limits(lanes=[lane])
    assert await hall.take(hall.build("p1")) == []
    await hall.engine.set_limits(lanes=[Lane("", "", UNLIMITED, 0.0, 0.0, 0)])
    assert len(await hall.take(hall.build("p2"))) == 1


async def test_what_has_to_wait_is_not_taken(hall: Hall) -> None:
    assert await hall.take(hall.build("p1", not_before=LATER)) == []
    assert await hall.take([replace(one, children=1) for one in hall.build("p4")]) == []
    first, *others = await hall.take(hall.build("p2", "p3", queue="p2"))
    assert (first.object.id, others) == ("p2", [])


async def test_a_worker_that_was_silent_for_long_takes_nothing(hall: Hall) -> None:
    assert await hall.take(hall.build("p1"), silent=LEASE / 2) == []


async def test_what_was_taken_is_put_back_at_once_if_the_answer_was_lost(
    new_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, store = Plant(), new_store()
    transact, lost, caller = store.transact, list[str](), asyncio.current_task()

    async def lose_answer(function: TxFunction[Any]) -> Any:
        answer = await transact(function)
        if not lost and asyncio.current_task() is caller:  # and not a loop of the worker
            (work,) = await store.reader.queue_of(Key("ns", "p1"))
            lost.append(work.owner or "")
            raise Unavailable("the answer was lost")
        return answer

    async with Engine(store, [plant.pump()], lease_s=600.0) as engine:
        worker = engine.worker
        assert worker is not None
        monkeypatch.setattr(store, "transact", lose_answer)
        asked = engine.request("ns", "p1", "build", creates=Creation(PUMP.kind))
        with pytest.raises(Unavailable):
            await worker.accept([asked])
        assert lost == [worker.name]
        operation = await engine.wait("ns", asked.op, 30)
    assert (operation.status, operation.attempts) == (Status.SUCCEEDED, 2)
