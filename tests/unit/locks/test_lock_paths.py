"""Paths: each has one normal form, and an unusable one is refused with the name of its field."""

from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.errors import BadInput
from stateward.locks import MAX_LEVELS, ROOT, Path, parse_path

PIECES = [
    "",
    "/",
    "//",
    ".",
    "..",
    "a",
    "ab",
    " ",
    "\x00",
    "\n",
    "é",
    "e\u0301",
    "\u200b",
    "\u200d",
    "\ud800",
    "%2e",
    "\\",
]


def test_a_path_is_the_tuple_of_its_segments() -> None:
    assert parse_path("/a/b/c") == ("a", "b", "c")


def test_a_path_has_one_spelling() -> None:
    assert str(parse_path("/a/b/c")) == "/a/b/c"


@pytest.mark.parametrize("text", ["/", "//", "////"])
def test_slashes_alone_are_the_whole_tree(text: str) -> None:
    assert parse_path(text) == ROOT
    assert str(parse_path(text)) == "/"


@pytest.mark.parametrize("text", ["/a/b", "a/b", "/a/b/", "//a//b//", "a//b"])
def test_slashes_only_separate(text: str) -> None:
    assert str(parse_path(text)) == "/a/b"


def test_a_name_that_begins_with_another_is_unrelated() -> None:
    assert parse_path("/ab")[:1] != parse_path("/a")


def test_an_empty_path_is_refused_and_the_whole_tree_is_offered() -> None:
    with pytest.raises(BadInput) as refused:
        parse_path("", field="where")
    assert refused.value.field == "where"
    assert "the whole tree is /" in str(refused.value)


@pytest.mark.parametrize("text", ["/.", "/..", "..", "/a/./b", "/a/../b", "/a/.."])
def test_dots_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"without \. and \.\."):
        parse_path(text)


@pytest.mark.parametrize("text", ["/...", "/.a", "/a.b", "/a..b", "/ "])
def test_names_with_dots_or_blanks_in_them_are_names(text: str) -> None:
    assert str(parse_path(text)) == text


@pytest.mark.parametrize(
    "sign", ["\x00", "\n", "\x1b", "\x7f", "\x85", "\u200b", "\u202e", "\u2028", "\ud800", "\ufeff"]
)
def test_what_cannot_be_seen_is_refused_and_named(sign: str) -> None:
    with pytest.raises(BadInput, match=f"U\\+{ord(sign):04X}"):
        parse_path(f"/a{sign}b")


def test_joiners_that_scripts_need_are_kept() -> None:
    assert parse_path("/\u0645\u06cc\u200c\u062e") == ("\u0645\u06cc\u200c\u062e",)


def test_look_alikes_are_one_path() -> None:
    assert parse_path("/cafe\u0301") == parse_path("/caf\u00e9") == ("caf\u00e9",)


def test_case_makes_a_difference() -> None:
    assert parse_path("/A") != parse_path("/a")


def test_deep_paths_work_up_to_the_limit() -> None:
    assert len(parse_path("/a" * MAX_LEVELS)) == MAX_LEVELS


def test_deeper_paths_are_refused_with_the_limit_and_a_short_excerpt() -> None:
    with pytest.raises(BadInput, match="1,000 levels") as refused:
        parse_path("/a" * (MAX_LEVELS + 1))
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("value", [None, 7, b"/a", ["a"], ("a", "b"), object()])
def test_what_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(BadInput):
        parse_path(value)


def test_a_path_that_has_been_read_is_not_read_again() -> None:
    path = parse_path("/a")
    assert parse_path(path) is path


def test_a_path_shows_itself() -> None:
    assert repr(parse_path("a/b")) == "<Path /a/b>"


def read(value: object) -> Path | None:
    """Read a path; None if it is refused as bad input. Any other error is the test's failure."""
    try:
        return parse_path(value)
    except BadInput:
        return None


@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("/".join), st.binary(), st.none(), st.integers()))
def test_anything_is_either_read_or_refused_as_bad_input(value: object) -> None:
    path = read(value) or ROOT
    assert all(segment and "/" not in segment and segment not in (".", "..") for segment in path)
    assert all(segment == normalize("NFC", segment) for segment in path)
    assert str(path).encode().decode() == str(path)


@given(st.lists(st.one_of(st.text(min_size=1), st.sampled_from(PIECES))).map("/".join))
def test_reading_the_one_spelling_again_changes_nothing(text: str) -> None:
    path = read(text) or ROOT
    assert parse_path(str(path)) == path


@given(st.text())
def test_composed_and_decomposed_spellings_are_one_path(text: str) -> None:
    assert read(normalize("NFC", text)) == read(normalize("NFD", text)) == read(text)
