"""The modes: Gray's compatibility matrix, and the intentions on ancestors."""

import pytest

from stateward.errors import BadInput
from stateward.locks import Mode, as_mode, compatible, intention

GRAY = """
         IS   IX   S    SIX  X
    IS   yes  yes  yes  yes  no
    IX   yes  yes  no   no   no
    S    yes  no   yes  no   no
    SIX  yes  no   no   no   no
    X    no   no   no   no   no
"""

HEAD, *ROWS = (line.split() for line in GRAY.strip().splitlines())
PAIRS = [
    (Mode(row[0]), Mode(column), answer == "yes") for row in ROWS for column, answer in zip(HEAD, row[1:], strict=True)
]


def test_the_printed_matrix_has_every_pair() -> None:
    assert {(a, b) for a, b, _ in PAIRS} == {(a, b) for a in Mode for b in Mode}


@pytest.mark.parametrize(("a", "b", "expected"), PAIRS)
def test_compatibility_is_as_printed_by_gray(a: Mode, b: Mode, expected: bool) -> None:
    assert compatible(a, b) is expected


@pytest.mark.parametrize(
    ("mode", "above"),
    [(Mode.IS, Mode.IS), (Mode.S, Mode.IS), (Mode.IX, Mode.IX), (Mode.SIX, Mode.IX), (Mode.X, Mode.IX)],
)
def test_readers_intend_to_read_and_writers_to_write(mode: Mode, above: Mode) -> None:
    assert intention(mode) is above


def test_intentions_never_stop_each_other() -> None:
    assert all(compatible(intention(a), intention(b)) for a in Mode for b in Mode)


def test_a_mode_is_known_by_its_word() -> None:
    assert as_mode("SIX") is Mode.SIX


@pytest.mark.parametrize("word", ["", "x", "XX", "exclusive", None, 3, b"X", ["X"]])
def test_a_word_that_names_no_mode_is_refused_with_those_that_exist(word: object) -> None:
    with pytest.raises(BadInput) as refused:
        as_mode(word)
    assert refused.value.field == "mode"
    assert refused.value.allowed == "one of IS, IX, S, SIX, X"
