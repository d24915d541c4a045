"""What a worker holds ready: how much of it, in which order, and when it is given back."""

import pytest
from msgspec.structs import replace

from stateward.engine.worker.prefetch import LANE_TIME_SLICE_S, PREFETCH_STALE_S, SHORTEST_TURN, TURNS, PrefetchBuffer
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
        spares.began(claim(f"r{number}", lane).work)
    spares.ended(claim("r0", lane).work, seconds)
    return spares


@pytest.mark.parametrize(
    ("running", "seconds", "wanted"),
    [(10, 0.1, 10), (10, AHEAD, 10), (10, 2 * AHEAD, 5), (10, 100 * AHEAD, 0), (1, 0.1, 1), (1, 2 * AHEAD, 0)],
)
def test_as_many_are_wanted_as_will_be_begun_soon(running: int, seconds: float, wanted: int) -> None:
    assert busy(running, seconds).plan().wanted.get("x", 0) == wanted


def test_nothing_is_wanted_before_it_is_known_how_long_work_takes() -> None:
    spares = PrefetchBuffer(AHEAD)
    spares.began(claim("a").work)
    assert spares.plan().wanted == {}


def test_what_no_limit_holds_back_needs_no_spares() -> None:
    assert busy(3, 0.1, lane="").plan().wanted.get("", 0) == 3  # a default lane in a group has limits
    spares = PrefetchBuffer(AHEAD)
    free = claim("a", lane="", grp="").work
    spares.began(free)
    spares.began(free)
    spares.ended(free, 0.1)
    assert spares.plan().wanted == {}


def test_what_is_held_is_not_wanted_again() -> None:
    spares = busy(3, 0.1)
    spares.hold([claim("a"), claim("b")], at=100.0, since=0.0)
    assert spares.plan().wanted == {"x": 1}


@pytest.mark.parametrize(
    ("seconds", "turn"),
    [(0.001, SHORTEST_TURN), (0.2, 0.2 * TURNS), (60.0, LANE_TIME_SLICE_S)],
    ids=["short", "plain", "long"],
)
def test_a_turn_is_some_times_the_length_of_the_work(seconds: float, turn: float) -> None:
    assert busy(1, seconds).plan().turns == {"x": pytest.approx(turn)}


def test_spares_are_begun_in_the_order_in_which_they_were_claimed() -> None:
    spares = busy(2, 0.1)
    spares.hold([claim("a"), claim("b"), claim("c", "y")], at=100.0, since=1.0)
    found = [spares.take_next("x", 1.0) for _ in range(3)]
    assert [one and one.claim.work.op for one in found] == ["a", "b", None]
    assert claim("c").work.key in spares
    assert claim("a").work.key not in spares


def test_an_old_spare_is_not_begun_but_given_back() -> None:
    spares = busy(2, 0.1)
    spares.hold([claim("a")], at=100.0, since=0.0)
    late = PREFETCH_STALE_S * AHEAD + 0.001
    assert spares.take_next("x", late) is None
    assert [one.work.op for one in spares.unneeded(late)] == ["a"]


def test_spares_of_a_lane_where_nothing_runs_any_more_are_given_back() -> None:
    spares = busy(1, 0.1)
    spares.hold([claim("a")], at=100.0, since=0.0)
    assert spares.unneeded(0.1) == []
    assert not spares.idle("x")
    spares.ended(claim("r1").work, 0.1)
    assert spares.idle("x")
    assert [one.work.op for one in spares.unneeded(0.1)] == ["a"]


def test_what_is_being_given_back_is_known_until_that_is_done() -> None:
    spares = busy(1, 0.1)
    spares.hold([claim("a")], at=100.0, since=0.0)
    (given,) = spares.release_all()
    assert given.work.key in spares
    assert list(spares) == []
    spares.forget([given])
    assert given.work.key not in spares


def test_what_was_claimed_again_meanwhile_is_still_known() -> None:
    spares = busy(1, 0.1)
    spares.hold([claim("a")], at=100.0, since=0.0)
    given = spares.release_lane("x")
    again = replace(given[0], work=replace(given[0].work, epoch=3))
    spares.hold([again], at=101.0, since=1.0)
    spares.forget(given)
    assert given[0].work.key in spares
