"""Prefetched work: it has an owner and does not run yet, so that it counts against no limit."""

from typing import Any

import pytest
from msgspec.structs import replace

from stateward.store import Store
from stateward.store.records import Claim, Status, WorkItem
from tests.contract.samples import accepted, key
from tests.contract.store_calls import ask, claim_names, write

LANE: dict[str, Any] = {"lane": "x", "grp": "g"}


async def claimed(store: Store, room: int, spares: int, lane: str = "x") -> list[Claim]:
    """Claim so many operations of a lane, and so many spares."""
    claims: list[Claim] = await ask(store, "claim", {lane: room}, "worker", {lane: spares})
    return claims


async def running(store: Store) -> dict[str, int]:
    """Return how many operations run in each lane that has work."""
    _, loads = await ask(store, "lane_loads")
    return {one.lane.lane: one.running for one in loads if one.running}


async def one_work(store: Store, name: str) -> WorkItem:
    found: WorkItem = (await ask(store, "work", [key(name)]))[key(name)]
    return found


async def test_what_follows_in_a_lane_is_taken_as_its_spares(store: Store) -> None:
    await write(store, accepted("a", "b", "c", "d", **LANE))
    claims = await claimed(store, room=1, spares=2)
    assert [(one.work.op, one.work.is_prefetched) for one in claims] == [("a", False), ("b", True), ("c", True)]
    for one in claims:
        assert await one_work(store, one.work.op) == one.work
    assert await claim_names(store, x=10) == ["d"]


async def test_spares_are_taken_of_a_lane_that_is_full(store: Store) -> None:
    await write(store, accepted("a", "b", **LANE))
    assert [one.work.is_prefetched for one in await claimed(store, room=0, spares=5)] == [True, True]


async def test_each_lane_has_its_own_spares(store: Store) -> None:
    await write(store, accepted("a", "b", **LANE))
    await write(store, accepted("c", "d", lane="y", grp="g"))
    claims: list[Claim] = await ask(store, "claim", {"x": 1}, "worker", {"y": 1})
    assert [(one.work.op, one.work.is_prefetched) for one in claims] == [("a", False), ("c", True)]


async def test_a_spare_does_not_count_as_running(store: Store) -> None:
    await write(store, accepted("a", "b", "c", **LANE))
    await claimed(store, room=1, spares=2)
    assert await running(store) == {"x": 1}
    assert [one.running for one in (await store.reader.lanes())[1]] == [1]
    (lane,) = await store.reader.work_by_lane()
    assert (lane.running, lane.waiting) == (1, 2)


async def test_the_operation_of_a_spare_is_shown_as_waiting(store: Store) -> None:
    await write(store, accepted("a", "b", **LANE))
    await claimed(store, room=1, spares=1)
    shown = [await store.reader.operation(key(name)) for name in "ab"]
    assert [one and one.status for one in shown] == [Status.RUNNING, Status.WAITING]


async def test_what_was_begun_before_is_no_spare_and_nothing_passes_it(store: Store) -> None:
    await write(store, accepted("a", **LANE))
    await write(store, accepted("begun before", deadline=1e9, **LANE))
    await write(store, accepted("b", **LANE))
    assert [one.work.op for one in await claimed(store, room=0, spares=3)] == ["a"]
    assert [(one.work.op, one.work.is_prefetched) for one in await claimed(store, room=1, spares=3)] == [
        ("begun before", False),
        ("b", True),
    ]


async def begin(store: Store, spare: WorkItem, **fields: Any) -> None:
    await write(store, prefetch_started=[replace(spare, deadline=500.5, **fields)])


async def test_a_spare_that_is_begun_runs_until_its_deadline(store: Store) -> None:
    await write(store, accepted("a", **LANE))
    (spare,) = await claimed(store, room=0, spares=1)
    await begin(store, spare.work)
    assert await one_work(store, "a") == replace(spare.work, deadline=500.5)
    assert await running(store) == {"x": 1}


@pytest.mark.parametrize("lost", [{"owner": "another"}, {"epoch": 7}])
async def test_only_its_owner_begins_a_spare(store: Store, lost: dict[str, Any]) -> None:
    await write(store, accepted("a", **LANE))
    (spare,) = await claimed(store, room=0, spares=1)
    await begin(store, spare.work, **lost)
    assert await one_work(store, "a") == spare.work


async def test_what_runs_already_keeps_its_deadline(store: Store) -> None:
    await write(store, accepted("a", **LANE))
    (claim,) = await claimed(store, room=1, spares=0)
    await begin(store, claim.work)
    assert await one_work(store, "a") == claim.work


async def test_one_leaves_and_the_other_begins_in_one_transaction(store: Store) -> None:
    await write(store, accepted("a", "b", **LANE))
    first, second = await claimed(store, room=1, spares=1)

    await write(store, work_gone=[first.work.key], prefetch_started=[replace(second.work, deadline=500.5)])
    assert await running(store) == {"x": 1}
    assert [work.op for work in await ask(store, "owned", "worker")] == ["b"]
