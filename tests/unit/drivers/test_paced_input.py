"""Input of SSH sessions: nothing of it is lost, whatever the command takes at a time."""

import os
from io import FileIO
from typing import cast

import asyncssh

from stateward.drivers.process.ssh_session import PacedInput


class QueuedChannel:
    """A channel like asyncssh's: `resume_reading` delivers what it holds, and the end even if it is paused again."""

    def __init__(self, target: PacedInput, held: list[bytes]) -> None:
        self._target, self._held, self._is_paused = target, held, False

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self.deliver()

    def deliver(self) -> None:
        while self._held and not self._is_paused:
            self._target.write(self._held.pop(0))
        if not self._held:
            self._target.end()


def read_available(handle: int) -> bytes:
    try:
        return os.read(handle, 1 << 20)
    except BlockingIOError:
        return b""


async def test_the_end_of_the_input_waits_for_what_came_before_it() -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    paced = PacedInput()
    parts = [bytes([number]) * 100_000 for number in range(5)]
    channel = QueuedChannel(paced, list(parts))
    paced.attach(cast("asyncssh.SSHServerChannel[bytes]", channel))
    paced.open(FileIO(writer, "wb"))
    paced.allow_end()
    channel.deliver()
    taken = b""
    while len(taken) < 500_000:
        taken += read_available(reader)
        paced.write(b"")  # as the loop does when the pipe has room
    assert taken == b"".join(parts)
    assert os.read(reader, 1) == b""
    os.close(reader)


async def test_input_that_comes_before_the_job_is_written_when_it_starts() -> None:
    reader, writer = os.pipe()
    paced = PacedInput()
    paced.write(b"early")
    paced.end()
    paced.open(FileIO(writer, "wb"))
    assert os.read(reader, 10) == b"early"
    os.set_blocking(reader, False)
    assert read_available(reader) == b""
    paced.allow_end()
    assert os.read(reader, 10) == b""  # the end
    os.close(reader)
