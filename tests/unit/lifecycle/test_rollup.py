from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.errors import BadInput, UnknownName
from stateward.lifecycle.rollup import (
    ANY,
    Combination,
    Combinations,
    CombinationViolation,
    dominant,
    first_present,
    one_of,
)

ORDER = ("red", "green", "blue")
PARTS = st.lists(st.sampled_from(ORDER), max_size=12)
PRIORITIES = ((("red",), "alarm"), (("green", "blue"), "fine"))
TABLE = Combinations(
    "house",
    ("door", "windows"),
    (
        Combination("open", (one_of("open"), one_of("open", "shut"))),
        Combination("shut", (one_of("shut"), one_of("shut"))),
        Combination("ruin", (ANY, ANY)),
    ),
)


def test_most_frequent_status_dominates() -> None:
    found = dominant({"red": 1, "green": 3, "blue": 2}, ORDER)
    assert found is not None
    assert (found.status, found.count, found.total, found.partial) == ("green", 3, 6, True)


def test_tie_goes_to_the_first_in_the_order_whatever_the_order_of_the_counts() -> None:
    found = dominant({"blue": 2, "green": 2}, ORDER)
    assert found is not None
    assert found.status == "green"


def test_a_status_that_all_parts_have_is_not_partial() -> None:
    found = dominant({"blue": 2, "red": 0}, ORDER)
    assert found is not None
    assert not found.partial


def test_nothing_dominates_where_there_are_no_parts() -> None:
    assert dominant({}, ORDER) is None
    assert dominant({"red": 0}, ORDER) is None


def test_a_status_outside_the_order_is_named_instead_of_being_left_out() -> None:
    with pytest.raises(UnknownName) as caught:
        dominant({"gren": 2}, ORDER)
    assert caught.value.nearest == "green"


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(BadInput) as caught:
        dominant({"red": -1, "green": 2}, ORDER)
    assert caught.value.field == "count of red"


@given(PARTS)
def test_dominant_agrees_with_sorting_the_parts(parts: list[str]) -> None:
    found = dominant(Counter(parts), ORDER)
    ranked = sorted(ORDER, key=lambda status: (-parts.count(status), ORDER.index(status)))
    if not parts:
        assert found is None
    else:
        assert found is not None
        assert (found.status, found.count, found.total) == (ranked[0], parts.count(ranked[0]), len(parts))
        assert found.partial == (len(set(parts)) > 1)


@given(PARTS)
def test_first_present_agrees_with_asking_part_by_part(parts: list[str]) -> None:
    expected = "alarm" if "red" in parts else "fine" if parts else "empty"
    assert first_present(Counter(parts), PRIORITIES, "empty") == expected


def test_a_status_counted_zero_is_not_present() -> None:
    assert first_present({"red": 0, "blue": 1}, PRIORITIES, "empty") == "fine"


def test_every_part_that_breaks_the_combination_is_named() -> None:
    assert TABLE.violations("open", ["shut"], ["open", "broken", "shut"]) == (
        CombinationViolation("open", "door", "shut", "open"),
        CombinationViolation("open", "windows", "broken", "open or shut"),
    )


def test_a_combination_that_holds_has_no_violations() -> None:
    assert TABLE.violations("shut", ["shut"], ["shut", "shut"]) == ()


def test_a_part_that_is_not_there_passes_only_where_any_does() -> None:
    assert TABLE.violations("ruin", [None], []) == ()
    (violation,) = TABLE.violations("shut", [None], [])
    assert str(violation) == "shut needs door to be shut, not missing"


def test_a_whole_without_a_row_is_an_unknown_name() -> None:
    with pytest.raises(UnknownName) as caught:
        TABLE.violations("opn", ["open"], [])
    assert caught.value.nearest == "open"


def test_the_table_prints_itself_for_the_documentation() -> None:
    assert TABLE.as_markdown() == (
        "| house | door | windows |\n"
        "| --- | --- | --- |\n"
        "| open | open | open or shut |\n"
        "| shut | shut | shut |\n"
        "| ruin | any | any |\n"
    )
