from hypothesis import given
from hypothesis import strategies as st

from stateward.cli.stream import _last


@given(st.integers(0, 10**12))
def test_the_newest_number_is_found_by_asking_what_follows(last: int) -> None:
    asked: list[int] = []

    def more_after(number: int) -> bool:
        asked.append(number)
        return number < last

    assert _last(more_after) == last
    assert len(asked) <= 2 * last.bit_length() + 2
