"""The prefetch buffer: its size, its order, and when work is returned."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from stateward.engine.worker.attempt import RunningOperation
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


def running(name: str, lane: str = "x", grp: str = "g") -> RunningOperation:
    return RunningOperation(claim(name, lane, grp), begun_at=100.0)


def never_idle() -> None:
    pytest.fail("there are claims for a lane where nothing runs")


def busy(count: int, seconds: float, lane: str = "x", on_idle: Callable[[], None] = never_idle) -> PrefetchBuffer:
    """Return the spares of a worker that runs so much in a lane, where work has taken so long."""
    spares = PrefetchBuffer(on_idle, AHEAD)
    first = running("r0", lane)
    for begun in (first, *(running(f"r{number + 1}", lane) for number in range(count))):
        spares.enter_slot(begun)
    assert spares.leave_slot(first, seconds)
    return spares


@pytest.mark.parametrize(
    ("count", "seconds", "wanted"),
    [(10, 0.1, 10), (10, AHEAD, 10), (10, 1.1 * AHEAD, 0), (1, 0.1, 1)],
)
def test_one_is_wanted_for_each_slot_where_work_is_short(count: int, seconds: float, wanted: int) -> None:
    assert busy(count, seconds).plan().counts.get("x", 0) == wanted


def test_nothing_is_wanted_before_it_is_known_how_long_work_takes() -> None:
    spares = PrefetchBuffer(never_idle, AHEAD)
    spares.enter_slot(running("a"))
    assert spares.plan().counts == {}


def test_what_no_limit_holds_back_needs_no_spares() -> None:
    assert busy(3, 0.1, lane="").plan().counts.get("", 0) == 3  # a default lane in a group has limits
    spares = PrefetchBuffer(never_idle, AHEAD)
    free = [running(name, lane="", grp="") for name in ("a", "b")]
    for begun in free:
        spares.enter_slot(begun)
    spares.leave_slot(free[0], 0.1)
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
    found = [spares.take_successor(running("r0"), 1.0) for _ in range(3)]
    assert [begun and begun.claim.work.op for begun in found] == ["a", "b", None]
    assert claim("c").work.key in spares
    assert claim("a").work.key not in spares


def test_a_spare_begins_with_its_own_deadline_and_knows_whose_slot_it_takes_over() -> None:
    spares = busy(2, 0.1)
    spares.add([claim("a")], store_time=100.0, claimed_at=1.0)
    ended = RunningOperation(claim("r1"), 90.0, predecessors=(claim("r0").work.key,))
    begun = spares.take_successor(ended, 1.5)
    assert begun is not None
    assert (begun.begun_at, begun.claim.work.deadline) == (100.5, 100.5 + begun.claim.operation.within)
    assert begun.predecessors == (claim("r1").work.key, claim("r0").work.key)


def test_an_old_spare_is_not_begun_but_given_back() -> None:
    spares = busy(2, 0.1)
    spares.add([claim("a")], store_time=100.0, claimed_at=0.0)
    late = PREFETCH_STALE_WINDOWS * AHEAD + 0.001
    assert spares.take_successor(running("r0"), late) is None
    assert [one.work.op for one in spares.take_unneeded(late)] == ["a"]


def test_spares_of_a_lane_where_nothing_runs_any_more_are_given_back() -> None:
    calls = list[str]()
    spares = busy(1, 0.1, on_idle=lambda: calls.append("idle"))
    spares.add([claim("a")], store_time=100.0, claimed_at=0.0)
    assert spares.take_unneeded(0.1) == []
    last = running("r1")
    assert (spares.leave_slot(last, 0.1), spares.leave_slot(last), calls) == (True, False, ["idle"])
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
