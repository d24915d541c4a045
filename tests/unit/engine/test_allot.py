"""Allotment of claims to lanes: within all limits, evenly, and in turns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.engine.worker.claims import Allotment, allot
from stateward.engine.worker.prefetch import LANE_TIME_SLICE_S, PrefetchPlan
from stateward.store.port import LaneLoad
from stateward.store.records import UNLIMITED, Lane, LaneGroup, default_lane

NOW = 1000.0


def load(
    lane: str,
    running: int = 0,
    capacity: int = 5,
    *,
    grp: str = "g",
    opened: float = 0.0,
    back_off: float = 0.0,
    waiting: bool = True,
) -> LaneLoad:
    return LaneLoad(Lane(lane, grp, capacity, back_off, opened, 0), running, waiting)


def allotted(loads: list[LaneLoad], room: int, limit: int = 10) -> Allotment:
    return allot([LaneGroup("g", limit)], loads, room, NOW)


def test_a_lane_gets_what_its_capacity_leaves() -> None:
    assert allotted([load("a", running=2)], room=100).rooms == {"a": 3}


def test_a_full_lane_gets_nothing() -> None:
    assert allotted([load("a", running=5), load("b", running=7)], room=100).rooms == {}


def test_a_lane_in_which_nothing_waits_gets_nothing() -> None:
    assert allotted([load("a", waiting=False)], room=100).rooms == {}


def test_a_lane_that_is_backed_off_gets_nothing_until_then() -> None:
    assert allotted([load("a", back_off=NOW + 1)], room=1).rooms == {}
    assert allotted([load("a", back_off=NOW)], room=1).rooms == {"a": 1}


def test_the_default_lane_takes_all_the_room_there_is() -> None:
    assert allot([], [LaneLoad(default_lane("", ""), 7, True)], 300, NOW).rooms == {"": 300}


def test_room_is_shared_evenly_and_what_one_cannot_use_goes_to_the_others() -> None:
    loads = [load("a", capacity=2), load("b", capacity=50), load("c", capacity=50)]
    assert allotted(loads, room=30).rooms == {"a": 2, "b": 14, "c": 14}


def test_the_last_place_goes_to_the_lane_that_was_served_longest_ago() -> None:
    assert allotted([load("a", opened=20.0), load("b", opened=10.0)], room=1).rooms == {"b": 1}


def test_the_last_place_goes_to_the_lane_that_runs_least() -> None:
    assert allotted([load("a", running=1), load("b", opened=900.0)], room=1).rooms == {"b": 1}


def test_no_more_lanes_of_a_group_become_active_than_may() -> None:
    loads = [load("a", opened=3.0), load("b", opened=1.0), load("c", opened=2.0)]
    allotment = allotted(loads, room=100, limit=2)
    assert allotment.rooms.keys() == {"b", "c"}
    assert {lane.lane: lane.opened for lane in allotment.opened} == {"b": NOW, "c": NOW}


def test_a_lane_that_was_active_before_is_not_opened_anew() -> None:
    assert allotted([load("a", running=1, opened=NOW - 1)], room=1).opened == []


def test_a_lane_whose_turn_is_over_runs_dry_when_another_waits_for_its_place() -> None:
    tired, fresh = (
        load("a", running=1, opened=NOW - LANE_TIME_SLICE_S - 1),
        load("b", running=1, opened=NOW - LANE_TIME_SLICE_S + 1),
    )
    assert allotted([tired, fresh, load("c")], room=100, limit=2).rooms.keys() == {"b"}


def test_a_lane_whose_turn_is_over_goes_on_while_nobody_waits_for_its_place() -> None:
    tired = load("a", running=1, opened=NOW - LANE_TIME_SLICE_S - 1)
    assert allotted([tired, load("c")], room=100, limit=2).rooms.keys() == {"a", "c"}


def test_under_a_lowered_limit_only_as_many_lanes_go_on_as_may() -> None:
    loads = [load(name, running=1, opened=NOW - age) for name, age in (("a", 3.0), ("b", 1.0), ("c", 2.0))]
    assert allotted(loads, room=100, limit=1).rooms.keys() == {"b"}


def test_groups_do_not_count_for_each_other() -> None:
    loads = [load("a", grp="g"), load("b", grp="h"), load("c", grp="")]
    groups = [LaneGroup("g", 1), LaneGroup("h", 1)]
    assert allot(groups, loads, 30, NOW).rooms == {"a": 5, "b": 5, "c": 5}


def test_a_group_is_in_demand_by_its_lanes_with_work_for_each_that_may_be_active() -> None:
    loads = [load("a", grp="g"), load("b", grp="g", running=1), load("c", grp="g"), load("d", grp="h")]
    assert allot([LaneGroup("g", 2), LaneGroup("h", 4)], loads, 30, NOW).demands == {"g": 1.5, "h": 0.25}


any_load = st.builds(
    LaneLoad,
    st.builds(
        Lane,
        st.sampled_from([f"lane{number}" for number in range(8)]),
        st.sampled_from(["", "g", "h"]),
        st.sampled_from([0, 1, 2, 3, 30, UNLIMITED]),
        st.sampled_from([0.0, NOW, NOW + 5]),
        st.floats(NOW - 20, NOW),
        st.just(0),
    ),
    st.integers(0, 4),
    st.booleans(),
)
any_loads = st.lists(any_load, max_size=8, unique_by=lambda one: one.lane.lane)
any_groups = st.builds(lambda g, h: [LaneGroup("g", g), LaneGroup("h", h)], st.integers(0, 4), st.integers(0, 4))


@given(any_groups, any_loads, st.integers(0, 50))
def test_no_limit_is_ever_exceeded(groups: list[LaneGroup], loads: list[LaneLoad], room: int) -> None:
    rooms = allot(groups, loads, room, NOW).rooms
    by_name = {one.lane.lane: one for one in loads}
    assert sum(rooms.values()) <= room
    for lane, share in rooms.items():
        one = by_name[lane]
        assert one.waiting
        assert one.lane.back_off <= NOW
        assert 0 < share <= one.lane.capacity - one.running
    for group in groups:
        active = {one.lane.lane for one in loads if one.running and one.lane.grp == group.grp}
        given_to = {lane for lane in rooms if by_name[lane].lane.grp == group.grp}
        assert len(given_to) <= group.lanes
        assert len(active | given_to) <= max(group.lanes, len(active))


@given(any_groups, any_loads, st.integers(0, 50))
def test_shares_differ_by_one_at_most_unless_a_lane_has_no_use_for_more(
    groups: list[LaneGroup], loads: list[LaneLoad], room: int
) -> None:
    rooms = allot(groups, loads, room, NOW).rooms
    free = {one.lane.lane: one.lane.capacity - one.running for one in loads}
    for lane, share in rooms.items():
        for other, less in rooms.items():
            assert share <= less + 1 or less == free[other], (lane, other)


@given(any_loads, st.integers(1, 50))
def test_no_room_is_left_unused_that_a_served_lane_could_use(loads: list[LaneLoad], room: int) -> None:
    groups = [LaneGroup("g", 8), LaneGroup("h", 8)]
    served = [one for one in loads if one.waiting and one.lane.back_off <= NOW and one.running < one.lane.capacity]
    free = sum(one.lane.capacity - one.running for one in served)
    assert sum(allot(groups, loads, room, NOW).rooms.values()) == min(room, free)


@given(st.lists(st.integers(1, 3), min_size=2, max_size=6), st.integers(1, 3), st.integers(1, 3))
def test_every_lane_gets_its_turn_however_small_the_room_is(capacities: list[int], limit: int, room: int) -> None:
    """Each lane always has something waiting, and whatever is claimed has ended before the next claim."""
    lanes = {f"lane{number}": load(f"lane{number}", 0, capacity) for number, capacity in enumerate(capacities)}
    served: set[str] = set()
    for turn in range(2 * len(lanes) * 3):
        allotment = allot([LaneGroup("g", limit)], list(lanes.values()), room, NOW + turn)
        served |= allotment.rooms.keys()
        for lane in allotment.opened:
            lanes[lane.lane] = LaneLoad(lane, 0, True)
    assert served == lanes.keys()


# --- spares and turns ------------------------------------------------------------------------------------------------

SPARES = PrefetchPlan({"a": 3}, {"a": 1.0, "b": 1.0}, {"a": 0.2, "b": 0.2})


def with_prefetch(*loads: LaneLoad, limit: int = 10) -> Allotment:
    return allot([LaneGroup("g", limit)], list(loads), 100, NOW, SPARES)


def test_a_full_lane_gets_spares_alone() -> None:
    allotment = with_prefetch(load("a", running=5))
    assert (allotment.rooms, allotment.prefetched) == ({}, {"a": 3})


def test_a_lane_with_room_gets_its_share_and_spares() -> None:
    allotment = with_prefetch(load("a", running=4))
    assert (allotment.rooms, allotment.prefetched) == ({"a": 1}, {"a": 3})


@pytest.mark.parametrize(
    "lane",
    [
        load("a", running=5, waiting=False),
        load("a", running=5, back_off=NOW + 1),
        load("a", running=6),  # its limit was lowered
        load("a", running=0, capacity=0),
    ],
    ids=["empty", "backed off", "too full", "closed"],
)
def test_no_spares_are_taken_of_a_lane_that_is(lane: LaneLoad) -> None:
    assert with_prefetch(lane).prefetched == {}


def test_no_spares_are_taken_of_a_lane_whose_turn_is_over() -> None:
    tired, waiting = load("a", running=5, opened=NOW - 2), load("z")
    assert with_prefetch(tired, waiting, limit=2).prefetched == {"a": 3}
    assert with_prefetch(tired, load("b", running=1, opened=NOW), waiting, limit=2).prefetched == {}


@pytest.mark.parametrize(("age", "wanted"), [(0.7, {"a": 3}), (0.9, {})])
def test_no_spares_are_taken_that_could_begin_only_after_the_turn(age: float, wanted: dict[str, int]) -> None:
    soon, other = load("a", running=5, opened=NOW - age), load("b", running=1, opened=NOW)
    assert with_prefetch(soon, other, load("z"), limit=2).prefetched == wanted


def test_turns_are_short_only_where_few_others_wait() -> None:
    busy = [load(name, running=1, opened=NOW - 2) for name in "ab"]
    assert with_prefetch(*busy, load("y"), limit=2).rooms == {}
    assert with_prefetch(*busy, load("y"), load("z"), limit=2).rooms == {"a": 4, "b": 4}
