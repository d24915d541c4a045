"""The prefetch buffer: its size, its order, and when work is returned."""

import pytest
from msgspec.structs import replace

from stateward.engine.worker.prefetch import (
    LANE_TIME_SLICE_MIN_S,
    LANE_TIME_SLICE_S,
    PREFETCH_STALE_WINDOWS,
    TIME_SLICE_FACTOR,
    PrefetchBuffer,
)
from stateward.store.records import Claim
from tests.contract.samples import an_object, an_operation, some_work

AHEAD = 0.5


def claim(name: str, lane: str = "x", grp: str = "g", epoch: int = 1) -> Claim:
    work = some_work(name, name, lane=lane, grp=grp, owner="w/1", epoch=epoch)
    return Claim(work, an_operation(name, name), an_object(name))


def busy(running: int, seconds: float, lane: str = "x") -> PrefetchBuffer:
    """Return the spares of a worker that runs so much in a lane, where work has taken so long."""
    spares = PrefetchBuffer(AHEAD)
    for number in range(running + 1):
        spares.note_started(claim(f"r{number}", lane).work)
    spares.note_ended(claim("r0", lane).work, seconds)
    return spares


@pytest.mark.parametrize(
    ("running", "seconds", "wanted"),
    [(10, 0.1, 10), (10, AHEAD, 10), (10, 1.1 * AHEAD, 0), (1, 0.1, 1)],
)
def test_one_is_wanted_for_each_slot_where_work_is_short(running: int, seconds: float, wanted: int) -> None:
    assert busy(running, seconds).plan().counts.get("x", 0) == wanted


def test_nothing_is_wanted_before_it_is_known_how_long_work_takes() -> None:
    spares = PrefetchBuffer(AHEAD)
    spares.note_started(claim("a").work)
    assert spares.plan().counts == {}


def test_what_no_limit_holds_back_needs_no_spares() -> None:
    assert busy(3, 0.1, lane="").plan().counts.get("", 0) == 3  # a default lane in a group has limits
    spares = PrefetchBuffer(AHEAD)
    free = claim("a", lane="", grp="").work
    spares.note_started(free)
    spares.note_started(free)
    spares.note_ended(free, 0.1)
    assert spares.plan().counts == {}


def test_what_is_held_is_not_wanted_again() -> None:
    spares = busy(3, 0.1)
    spares.add([claim("a"), claim("b")], store_time=100.0, claimed_at=0.0)
    assert spares.plan().counts == {"x": 1}


@pytest.mark.parametrize(
    ("seconds", "turn"),
    [(0.001, LANE_TIME_SLICE_MIN_S), (0.2, 0.2 * TIME_SLICE_FACTOR), (60.0, LANE_TIME_SLICE_S)],
    ids=["short", "plain", "long"],
)
def test_a_turn_is_some_times_the_length_of_the_work(seconds: float, turn: float) -> None:
    assert busy(1, seconds).plan().time_slices_s == {"x": pytest.approx(turn)}


def test_spares_are_begun_in_the_order_in_which_they_were_claimed() -> None:
    spares = busy(2, 0.1)
    spares.add([claim("a"), claim("b"), claim("c", "y")], store_time=100.0, claimed_at=1.0)
    found = [spares.take_next("x", 1.0) for _ in range(3)]
    assert [one and one[0].work.op for one in found] == ["a", "b", None]
    assert claim("c").work.key in spares
    assert claim("a").work.key not in spares


def test_an_old_spare_is_not_begun_but_given_back() -> None:
    spares = busy(2, 0.1)
    spares.add([claim("a")], store_time=100.0, claimed_at=0.0)
    late = PREFETCH_STALE_WINDOWS * AHEAD + 0.001
    assert spares.take_next("x", late) is None
    assert [one.work.op for one in spares.take_unneeded(late)] == ["a"]


def test_spares_of_a_lane_where_nothing_runs_any_more_are_given_back() -> None:
    spares = busy(1, 0.1)
    spares.add([claim("a")], store_time=100.0, claimed_at=0.0)
    assert spares.take_unneeded(0.1) == []
    assert not spares.is_idle("x")
    spares.note_ended(claim("r1").work, 0.1)
    assert spares.is_idle("x")
    assert [one.work.op for one in spares.take_unneeded(0.1)] == ["a"]


def test_what_is_being_given_back_is_known_until_that_is_done() -> None:
    spares = busy(1, 0.1)
    spares.add([claim("a")], store_time=100.0, claimed_at=0.0)
    (given,) = spares.release_all()
    assert given.work.key in spares
    assert list(spares) == []
    spares.forget([given])
    assert given.work.key not in spares


def test_what_was_claimed_again_meanwhile_is_still_known() -> None:
    spares = busy(1, 0.1)
    spares.add([claim("a")], store_time=100.0, claimed_at=0.0)
    given = spares.release_lane("x")
    again = replace(given[0], work=replace(given[0].work, epoch=3))
    spares.add([again], store_time=101.0, claimed_at=1.0)
    spares.forget(given)
    assert given[0].work.key in spares
