"""What post-commands write is kept with the MCI, so it has an end."""

from hypothesis import given
from hypothesis import strategies as st

from stateward.domains.mci.handlers.command_handlers import tail_of


@given(st.text(max_size=50), st.integers(1, 50))
def test_the_end_of_a_long_text_is_kept_and_the_rest_is_counted(text: str, most: int) -> None:
    kept = tail_of(text, most)
    if len(text) <= most:
        assert kept == text
    else:
        assert kept == f"({len(text) - most} characters left out)\n{text[-most:]}"
