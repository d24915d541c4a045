"""The labels of arrows, and their lines."""

from hypothesis import given
from hypothesis import strategies as st

from stateward.lifecycle import AGENT, Actors
from stateward.lifecycle.render.arrow_labels import (
    MAX_LINE_CHARS,
    Label,
    Tone,
    label_lines,
    return_label_lines,
    wrapped_lines,
)

SUCCEEDED = Label("succeeded", Tone.WENT_ON)
FAILED = Label("failed", Tone.FAILED)
LATE = Label("timed out", Tone.FAILED)


def texts(labels: tuple[Label, ...]) -> list[str]:
    return [one.text for one in label_lines(labels)]


def test_a_label_names_its_actors_and_its_needs() -> None:
    assert str(Label("ready", Tone.WENT_ON, Actors((AGENT,)), ("force", "hold"))) == "ready (agent) [force, hold]"


def test_what_goes_wrong_shares_a_line_below_the_rest() -> None:
    assert texts((SUCCEEDED, FAILED, LATE)) == ["succeeded", "failed, timed out"]


def test_work_that_returns_however_it_ends_says_so_in_short() -> None:
    assert [one.text for one in return_label_lines((SUCCEEDED, FAILED, LATE))] == ["back in any case"]


def test_work_that_returns_only_if_it_fails_says_when() -> None:
    assert [one.text for one in return_label_lines((FAILED, LATE))] == ["back if failed, timed out"]


parts = st.lists(st.text("abc", min_size=1, max_size=12), max_size=12)


@given(parts)
def test_breaking_lines_loses_nothing(words: list[str]) -> None:
    assert " ".join(wrapped_lines(words)).split(", ") == (words or [""])


@given(parts)
def test_a_broken_line_is_not_longer_than_the_limit_allows(words: list[str]) -> None:
    assert all(len(line) <= MAX_LINE_CHARS + len(", ,") for line in wrapped_lines(words))
