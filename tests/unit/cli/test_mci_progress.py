from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as some

from stateward.domains.mci.cli.creation_progress import Course, Level
from stateward.schemas.journal import LineView
from tests.unit.cli.samples import sample_entry

MOVING = ("Creating", "Suspending")
STATES = (*MOVING, "Running", "Suspended", "Failed", "(gone)")


def lines(*moves: tuple[str, str]) -> Iterable[LineView]:
    for number, (vm, state) in enumerate(moves):
        yield sample_entry(seq=number, ns="n", object=vm, kind="mci.vm", target=state)


def course() -> Course:
    return Course(lambda state: state not in MOVING)


def test_a_bar_is_as_long_as_the_group_has_vms_that_move() -> None:
    one = course()
    one.note(lines(("m.a-1", "Suspending"), ("m.a-2", "Suspending"), ("m.b-1", "Suspending")), "m")
    lost_before = one.lost
    one.place({"m.a-1": "aws/x", "m.a-2": "aws/x", "m.b-1": "gcp/y", "m.c-1": "gcp/y"})
    assert (lost_before, one.lost) == (True, False)
    one.note(lines(("m.a-1", "Suspended"), ("m.b-1", "Failed")), "m")
    assert one.levels() == {"aws/x": Level(1, 2, 0), "gcp/y": Level(1, 1, 1)}


def test_vms_of_others_do_not_count() -> None:
    one = course()
    one.note(lines(("m2.a-1", "Running"), ("m", "Running")), "m")
    assert one.levels() == {}


def test_what_is_gone_before_its_group_was_known_is_not_looked_for_again() -> None:
    one = course()
    one.note(lines(("m.a-1", "(gone)")), "m")
    one.place({})
    assert not one.lost
    assert one.levels() == {"mci.vm": Level(1, 1, 0)}


@given(some.lists(some.tuples(some.sampled_from(["m.a-1", "m.a-2", "m.b-1"]), some.sampled_from(STATES))))
def test_no_bar_is_longer_than_its_group_and_at_rest_all_are_full(moves: list[tuple[str, str]]) -> None:
    one = course()
    one.note(lines(*moves), "m")
    one.place({"m.a-1": "aws/x", "m.a-2": "aws/x", "m.b-1": "gcp/y"})
    assert all(level.bad <= level.done <= level.total for level in one.levels().values())
    one.note(lines(*((vm, "Running") for vm, _ in moves)), "m")
    assert all(level.done == level.total for level in one.levels().values())
