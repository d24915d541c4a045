import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.server.http.preconditions import NO_VERSION, etag_of, is_unchanged, wanted_versions

versions = st.integers(min_value=1, max_value=10**17)


@given(versions)
def test_who_has_seen_a_version_has_seen_it_and_no_other(version: int) -> None:
    assert is_unchanged(etag_of(version), version)
    assert not is_unchanged(etag_of(version), version + 1)


@given(st.lists(versions, min_size=1))
def test_the_versions_of_a_list_are_all_wanted(several: list[int]) -> None:
    assert wanted_versions(", ".join(map(etag_of, several))) == tuple(several)
    assert is_unchanged(", ".join(map(etag_of, several)), several[-1])


@given(st.text())
def test_no_text_breaks_the_reading_of_tags(text: str) -> None:
    assert wanted_versions(text) != ()
    is_unchanged(text, 1)


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (None, None),
        ("*", None),
        (" * ", None),
        ('"7"', (7,)),
        ('W/"7"', (NO_VERSION,)),
        ('W/"6", "7"', (7,)),
        ('"seven"', (NO_VERSION,)),
        ('"07"', (NO_VERSION,)),
        ('"0"', (NO_VERSION,)),
        ("7", (NO_VERSION,)),
        (f'"{10**30}"', (NO_VERSION,)),
    ],
)
def test_tags_for_writing_are_compared_strongly(given_: str | None, expected: tuple[int, ...] | None) -> None:
    assert wanted_versions(given_) == expected


def test_tags_for_reading_are_compared_weakly() -> None:
    assert is_unchanged('W/"7"', 7)
    assert is_unchanged("*", 7)
    assert not is_unchanged(None, 7)
    assert not is_unchanged("7", 7)
