"""The load and the limits of lanes, by counting rows."""

import pytest
from msgspec.structs import replace

from stateward.store import LaneLoad, Store, Tx
from stateward.store.records import (
    DEFAULT_CAPACITY,
    DEFAULT_LANES,
    UNLIMITED,
    Lane,
    LaneGroup,
    default_lane,
)
from tests.contract.samples import accepted, an_operation, key, some_work
from tests.contract.store_calls import ask, claim_work, until, write


async def loads(store: Store) -> dict[str, LaneLoad]:
    """Return the loads as a claimer sees them."""
    _, found = await ask(store, "lane_loads")
    return {load.lane.lane: load for load in found}


async def known(store: Store) -> dict[str, LaneLoad]:
    """Return the loads as readers see them."""
    _, found = await store.reader.lanes()
    return {load.lane.lane: load for load in found}


async def test_where_there_is_no_work_there_is_no_load(store: Store) -> None:
    assert await ask(store, "lane_loads") == ([], [])
    assert await store.reader.lanes() == ([], [])


async def test_the_default_lane_has_no_limit(store: Store) -> None:
    await write(store, accepted("a"))
    groups, found = await ask(store, "lane_loads")
    assert groups == [LaneGroup("", UNLIMITED)]
    assert found == [LaneLoad(Lane("", "", UNLIMITED, 0.0, 0.0, 0), 0, True)]


@pytest.mark.parametrize(
    ("lane", "unlimited"),
    [
        (Lane("", "", UNLIMITED, 0.0, 0.0, 0), True),
        (Lane("", "", UNLIMITED, 1e12, 0.0, 0), False),
        (Lane("", "", 3, 0.0, 0.0, 0), False),
        (Lane("", "cloud", UNLIMITED, 0.0, 0.0, 0), False),
    ],
    ids=["as it is", "backed off", "with a capacity", "in a group"],
)
async def test_the_default_lane_is_unlimited_unless_it_has_a_limit_or_is_backed_off(
    store: Store, lane: Lane, unlimited: bool
) -> None:
    await write(store, lanes=[lane])

    async def function(tx: Tx) -> bool:
        return tx.is_default_lane_unlimited

    assert await store.transact(function) is unlimited


async def test_a_lane_that_nobody_has_set_up_has_the_default_limits(store: Store) -> None:
    await write(store, accepted("a", lane="aws/eu", grp="aws"))
    groups, found = await ask(store, "lane_loads")
    assert groups == [LaneGroup("aws", DEFAULT_LANES)]
    assert found == [LaneLoad(default_lane("aws/eu", "aws"), 0, True)]
    assert found[0].lane.capacity == DEFAULT_CAPACITY


async def test_a_lane_has_the_limits_that_it_was_given(store: Store) -> None:
    eu = Lane("aws/eu", "aws", 5, 12.5, 7.25, 3)
    await write(store, lanes=[eu], groups=[LaneGroup("aws", 2)])
    await write(store, accepted("a", lane="aws/eu", grp="aws"))
    assert await ask(store, "lane_loads") == ([LaneGroup("aws", 2)], [LaneLoad(eu, 0, True)])


async def test_limits_can_be_changed(store: Store) -> None:
    eu = Lane("aws/eu", "aws", 5, 0.0, 0.0, 0)
    await write(store, lanes=[eu], groups=[LaneGroup("aws", 2)])
    await write(store, lanes=[replace(eu, capacity=6, back_off=9.5, opened=8.5, throttled=1)])
    await write(store, groups=[LaneGroup("aws", 3)])
    groups, found = await store.reader.lanes()
    assert groups == [LaneGroup("aws", 3)]
    assert found == [LaneLoad(replace(eu, capacity=6, back_off=9.5, opened=8.5, throttled=1), 0, False)]


async def test_running_work_is_counted_in_its_lane(store: Store) -> None:
    await write(store, accepted("a", "b", "c", lane="x", grp="g"))
    await write(store, accepted("d", lane="y", grp="g"))
    await claim_work(store, x=2, y=1)
    found = await loads(store)
    assert (found["x"].running, found["x"].waiting) == (2, True)
    assert (found["y"].running, found["y"].waiting) == (1, False)
    assert await known(store) == found


async def test_fenced_work_that_has_an_owner_still_occupies_its_lane(store: Store) -> None:
    await write(store, accepted("a", lane="x", grp="g"))
    (claim,) = await claim_work(store, x=1)
    await write(store, work=[replace(claim.work, fenced=True)])
    assert (await loads(store))["x"].running == 1


async def test_work_that_cannot_be_claimed_now_makes_no_lane_wait(store: Store) -> None:
    await write(store, accepted("a", lane="later", grp="g", not_before=1e12))
    await write(store, accepted("b", lane="queued", grp="g", ready=False))
    await write(store, accepted("c", lane="elsewhere", grp="g", remote=True))
    await write(store, accepted("d", lane="children", grp="g", children=1))
    assert not any(load.waiting for load in (await loads(store)).values())
    assert not any(load.waiting for load in (await known(store)).values())


async def test_delayed_work_makes_its_lane_wait_when_its_time_has_come(store: Store) -> None:
    due = await store.reader.time() + 0.02
    await write(store, accepted("a", lane="x", grp="g", not_before=due))
    await until(store, due)
    assert (await known(store))["x"].waiting
    assert (await loads(store))["x"].waiting


async def test_readers_see_lanes_without_work_too(store: Store) -> None:
    idle = Lane("idle", "far", 5, 0.0, 0.0, 0)
    await write(store, lanes=[idle], groups=[LaneGroup("far", 2), LaneGroup("empty", 1)])
    await write(store, accepted("a", lane="busy", grp="near"))
    groups, found = await store.reader.lanes()
    assert set(groups) >= {LaneGroup("far", 2), LaneGroup("near", DEFAULT_LANES)}
    assert LaneLoad(idle, 0, False) in found
    assert (await loads(store)).keys() == {"busy"}


async def test_lanes_that_are_removed_are_listed_no_more_unless_they_have_work(store: Store) -> None:
    await write(store, lanes=[Lane(name, "far", 5, 0.0, 0.0, 0) for name in ("idle", "busy", "other")])
    await write(store, accepted("a", lane="busy", grp="far"))
    await write(store, lanes_gone=["idle", "busy", "unknown"])
    assert {name: load.lane.capacity for name, load in (await known(store)).items()} == {"busy": 5, "other": 5}


async def test_many_lanes_are_all_found(store: Store) -> None:
    names = [f"lane {number:02}" for number in range(60)]
    await write(
        store,
        operations=[an_operation(name) for name in names],
        new_work=[some_work(name, lane=name, grp="g", priority=number % 3) for number, name in enumerate(names)],
    )
    assert sorted(await loads(store)) == names


async def test_a_lane_with_room_again_is_seen_after_the_end_of_work(store: Store) -> None:
    await write(store, accepted("a", lane="x", grp="g"))
    await claim_work(store, x=1)
    await write(store, work_gone=[key("a")])
    assert await ask(store, "lane_loads") == ([], [])
