"""A guard whose read conflicts with another transaction: the request is not refused, but decided again."""

from collections.abc import Callable

from stateward.engine import Engine, Request
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.errors import WriteConflict
from stateward.store.port import Store
from stateward.store.records import Object
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
    async with Engine(new_store(), [pump, plant.station()], lease_s=3.0) as engine:
        accepted = await engine.create("ns", "p1", PUMP.kind, "build")
        assert (await engine.wait("ns", accepted.op.id, 30)).status == "succeeded"
        plant.release()
    assert asked == ["build", "build"]
