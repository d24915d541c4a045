"""Guards: they read what other requests of the same transaction have done, and complete a request."""

import asyncio
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from stateward.engine import Denied, Engine, Object, Request, Selector, UnitOfWork
from stateward.store.errors import WriteConflict
from stateward.store.port import Store
from tests.integration.engine.pump_kinds import PUMP, Plant


async def test_a_guard_that_meets_a_conflict_is_asked_again_and_the_request_is_accepted(
    new_store: Callable[[], Store],
) -> None:
    plant, asked = Plant(), list[str]()

    async def guard(_uow: UnitOfWork, request: Request, _found: Object) -> None:
        asked.append(request.action)
        if len(asked) == 1:
            raise WriteConflict("somebody else holds the row")

    pump = plant.pump()
    pump.guard = guard
    async with Engine(new_store(), [pump, plant.station()]) as engine:
        accepted = await engine.create("ns", "p1", PUMP.kind, "build")
        assert (await engine.wait("ns", accepted.op.id, 30)).status == "succeeded"
        plant.release()
    assert asked == ["build", "build"]


class SlotTaken(Denied, code="slot_taken"):
    pump: str
    text = "pump {pump} has the slot already"


async def test_a_guard_names_the_parent_and_the_labels_of_a_new_object(new_store: Callable[[], Store]) -> None:
    plant = Plant()

    async def guard(_uow: UnitOfWork, request: Request, _found: Object) -> Request:
        assert request.creates is not None
        return replace(request, creates=replace(request.creates, parent="s1", labels='{"slot":"7"}'))

    pump = plant.pump()
    pump.guard = guard
    async with Engine(new_store(), [pump, plant.station()]) as engine:
        accepted = await engine.create("ns", "p1", PUMP.kind, "build", labels={"slot": "1"})
        assert (accepted.object.parent, accepted.object.labels) == ("s1", '{"slot":"7"}')
        found = await engine.get("ns", "p1")
        assert (found.parent, found.labels) == ("s1", {"slot": "7"})


async def test_a_guard_selects_what_an_earlier_request_of_the_same_transaction_has_created(
    new_store: Callable[[], Store],
) -> None:
    plant = Plant()

    async def guard(uow: UnitOfWork, request: Request, found: Object) -> None:
        slot = msgspec.json.decode(found.labels)["slot"]
        for other in await uow.select(Selector("ns", PUMP.kind, labels=(("slot", slot),))):
            raise SlotTaken(other.id)

    pump = plant.pump()
    pump.guard = guard
    async with Engine(new_store(), [pump, plant.station()]) as engine:
        made = [engine.create("ns", f"p{number}", PUMP.kind, "build", labels={"slot": "7"}) for number in range(5)]
        verdicts = await asyncio.gather(*made, return_exceptions=True)
        assert [isinstance(one, SlotTaken) for one in verdicts] == [False, True, True, True, True]
        assert (await engine.create("ns", "p9", PUMP.kind, "build", labels={"slot": "9"})).op is not None
