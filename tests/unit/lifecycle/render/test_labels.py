"""What stands beside an arrow, in which lines."""

from hypothesis import given
from hypothesis import strategies as st

from stateward.lifecycle import AGENT, Actors
from stateward.lifecycle.render.labels import LIMIT, Label, Tone, broken, said, said_back

SUCCEEDED = Label("succeeded", Tone.WENT_ON)
FAILED = Label("failed", Tone.FAILED)
LATE = Label("timed out", Tone.FAILED)


def texts(labels: tuple[Label, ...]) -> list[str]:
    return [one.text for one in said(labels)]


def test_a_label_names_its_actors_and_its_needs() -> None:
    assert str(Label("ready", Tone.WENT_ON, Actors((AGENT,)), ("force", "hold"))) == "ready (agent) [force, hold]"


def test_what_goes_wrong_shares_a_line_below_the_rest() -> None:
    assert texts((SUCCEEDED, FAILED, LATE)) == ["succeeded", "failed, timed out"]


def test_work_that_returns_however_it_ends_says_so_in_short() -> None:
    assert [one.text for one in said_back((SUCCEEDED, FAILED, LATE))] == ["back in any case"]


def test_work_that_returns_only_if_it_fails_says_when() -> None:
    assert [one.text for one in said_back((FAILED, LATE))] == ["back if failed, timed out"]


parts = st.lists(st.text("abc", min_size=1, max_size=12), max_size=12)


@given(parts)
def test_breaking_lines_loses_nothing(words: list[str]) -> None:
    assert " ".join(broken(words)).split(", ") == (words or [""])


@given(parts)
def test_a_broken_line_is_not_longer_than_the_limit_allows(words: list[str]) -> None:
    assert all(len(line) <= LIMIT + len(", ,") for line in broken(words))
