from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as some

from stateward.domains.mci.cli.creation_progress import GroupProgress, VmProgress
from stateward.schemas.journal import LineView
from tests.unit.cli.sample_records import sample_entry

MOVING = ("Creating", "Suspending")
STATES = (*MOVING, "Running", "Suspended", "Failed", "(gone)")


def lines(*moves: tuple[str, str]) -> Iterable[LineView]:
    for number, (vm, state) in enumerate(moves):
        yield sample_entry(seq=number, ns="n", object=vm, kind="mci.vm", target=state)


def progress() -> VmProgress:
    return VmProgress(lambda state: state not in MOVING)


def test_a_bar_is_as_long_as_the_group_has_vms_that_move() -> None:
    one = progress()
    one.add_entries(lines(("m.a-1", "Suspending"), ("m.a-2", "Suspending"), ("m.b-1", "Suspending")), "m")
    lost_before = one.has_unknown_groups
    one.set_groups({"m.a-1": "aws/x", "m.a-2": "aws/x", "m.b-1": "gcp/y", "m.c-1": "gcp/y"})
    assert (lost_before, one.has_unknown_groups) == (True, False)
    one.add_entries(lines(("m.a-1", "Suspended"), ("m.b-1", "Failed")), "m")
    assert one.levels() == {"aws/x": GroupProgress(1, 2, 0), "gcp/y": GroupProgress(1, 1, 1)}


def test_vms_of_others_do_not_count() -> None:
    one = progress()
    one.add_entries(lines(("m2.a-1", "Running"), ("m", "Running")), "m")
    assert one.levels() == {}


def test_what_is_gone_before_its_group_was_known_is_not_looked_for_again() -> None:
    one = progress()
    one.add_entries(lines(("m.a-1", "(gone)")), "m")
    one.set_groups({})
    assert not one.has_unknown_groups
    assert one.levels() == {"mci.vm": GroupProgress(1, 1, 0)}


@given(some.lists(some.tuples(some.sampled_from(["m.a-1", "m.a-2", "m.b-1"]), some.sampled_from(STATES))))
def test_no_bar_is_longer_than_its_group_and_at_rest_all_are_full(moves: list[tuple[str, str]]) -> None:
    one = progress()
    one.add_entries(lines(*moves), "m")
    one.set_groups({"m.a-1": "aws/x", "m.a-2": "aws/x", "m.b-1": "gcp/y"})
    assert all(level.bad <= level.done <= level.total for level in one.levels().values())
    one.add_entries(lines(*((vm, "Running") for vm, _ in moves)), "m")
    assert all(level.done == level.total for level in one.levels().values())
