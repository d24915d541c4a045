"""What commands write is kept with the MCI, and streamed while they run, so it has an end."""

import asyncio
import re
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateward.domains.mci.handlers.command_handlers import (
    MAX_LINE_CHARS,
    OutputStream,
    SecretMask,
)
from stateward.domains.mci.model import CommandRun, VmCommandResult
from stateward.domains.mci.remote.kept_output import MAX_TOTAL_OUTPUT_CHARS, KeptOutput, tail_of
from stateward.domains.mci.remote.vm_shells import OutputReader, RunOrder
from stateward.drivers.ssh.remote_run import CHUNK_BYTES, RunReport
from stateward.drivers.ssh.ssh_connection import SshConnection
from stateward.engine import Job


@given(st.text(max_size=50), st.integers(1, 50))
def test_the_end_of_a_long_text_is_kept_and_the_rest_is_counted(text: str, most: int) -> None:
    assert tail_of(text, most) == (text[-most:], len(text[:-most].encode()))


def test_the_results_of_all_vms_have_one_limit_and_the_last_ones_say_what_is_left_out() -> None:
    output, text = KeptOutput(100, 1), "x" * 65_536
    kept = [output.keep(VmCommandResult((CommandRun(text, 3, text),), "it failed")) for _ in range(100)]
    written = "".join(run.written + run.stderr for one in kept for run in one.runs)
    assert written.count("x") <= MAX_TOTAL_OUTPUT_CHARS
    assert kept[-1] == VmCommandResult((CommandRun("", 3, "", 65_536, 65_536),), "it failed")
    assert kept[-1].runs[0].stdout_text == "(65536 bytes left out)\n"


class TalkativeShell:
    """Stands for a connection to a VM that always has more to tell; counts its sessions."""

    def __init__(self) -> None:
        self.sessions = 0

    async def run_shell(self, script: str, _most: int) -> tuple[bytes, int]:
        self.sessions += 1
        (mark, *_) = re.findall("--[0-9a-f]{24}", script)
        size = CHUNK_BYTES if self.sessions < 20 else 0
        return f"\n{mark} out 0\n{'x' * size}\n{mark} end no\n".encode(), 0


def test_output_that_nobody_keeps_is_not_read() -> None:
    shell, told = TalkativeShell(), list[str]()

    def tell(stdout: str, _stderr: str) -> bool:
        told.append(stdout)
        return len(told) < 3

    async def read() -> None:
        reader = OutputReader(cast("SshConnection", shell), RunOrder("r1", ("yes",)), tell)
        await reader.poll()
        await reader.finish(RunReport((), "done"))

    asyncio.run(read())
    assert (shell.sessions, len(told)) == (3, 3)


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
