"""What commands write is kept with the MCI, and streamed while they run, so it has an end."""

import asyncio
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateward.domains.mci.handlers.command_handlers import (
    MAX_LINE_CHARS,
    OutputStream,
    SecretMask,
    tail_of,
)
from stateward.engine import Job


@given(st.text(max_size=50), st.integers(1, 50))
def test_the_end_of_a_long_text_is_kept_and_the_rest_is_counted(text: str, most: int) -> None:
    kept = tail_of(text, most)
    if len(text) <= most:
        assert kept == text
    else:
        assert kept == f"({len(text) - most} characters left out)\n{text[-most:]}"


SECRET = "s3cret-of-ann"


class ProgressLog:
    """Stands for a job: keeps the lines of progress."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    async def progress(self, text: str, _done: int, _total: int) -> None:
        self.lines += text.splitlines()


def streamed(pieces: list[str], secrets: tuple[str, ...] = ()) -> list[str]:
    """Return the lines that are streamed of what a VM writes piece by piece, without the name of the VM."""

    async def stream() -> list[str]:
        job = ProgressLog()
        output = OutputStream(cast("Job", job), 1, SecretMask(secrets))
        async with output.flushing():
            for piece in pieces:
                output.add("vm", piece)
        return [line.removeprefix("vm: ") for line in job.lines]

    return asyncio.run(stream())


def test_a_line_without_an_end_is_streamed_in_parts() -> None:
    lines = streamed(["x" * 1_000] * 100)
    assert "".join(lines) == "x" * 100_000
    assert max(map(len, lines)) <= MAX_LINE_CHARS


@pytest.mark.parametrize("longer", ["", "-and-bob"])
@given(at=st.integers(0, 3 * MAX_LINE_CHARS), size=st.integers(500, 9_000))
@settings(max_examples=20)
def test_a_secret_in_a_line_without_an_end_is_masked_wherever_the_line_is_cut(longer: str, at: int, size: int) -> None:
    text = "x" * at + SECRET + longer + "x" * (4 * MAX_LINE_CHARS)
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    told = "".join(streamed(pieces, (SECRET, SECRET + "-and-bob")))
    assert told == text.replace(SECRET + longer, "***")
