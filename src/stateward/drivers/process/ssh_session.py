"""Sessions of a machine's SSH server: each is a job of the machine, whose streams are copied to and from the channel.

The caller's environment, terminal, agent and forwardings are refused: a session gets the machine's own environment.
The user's name sets USER and LOGNAME, and no rights. As with other SSH servers, a command goes on if its caller
disconnects.
"""

import asyncio
import logging
import signal
from collections.abc import Callable
from io import FileIO

import asyncssh

from stateward.drivers.process.session_job import STARTED, SessionJob

log = logging.getLogger("stateward.drivers.ssh")

SHELL_COMMAND = "exec sh"
SFTP = "sftp"
SENT_SIGNALS = {name: signal.Signals[f"SIG{name}"] for name in ("HUP", "INT", "KILL", "QUIT", "TERM", "USR1", "USR2")}
"""The signals that a caller may send to a command."""

WRITTEN_AT_ONCE, MAX_REPORT_BYTES = 1 << 16, 100

StartJob = Callable[[str], SessionJob]
"""Sends a command to the machine."""


class MachineSession(asyncssh.SSHServerSession[bytes]):
    """One session: a command, a shell or a transfer of files."""

    def __init__(self, start: StartJob, sftp_command: str, on_end: Callable[[], None]) -> None:
        self._start, self._sftp_command, self._on_end = start, sftp_command, on_end
        self._command = SHELL_COMMAND
        self._chan: asyncssh.SSHServerChannel[bytes]
        self._job: SessionJob | None = None
        self._task: asyncio.Task[None] | None = None
        self._outputs: list[asyncio.ReadTransport] = []
        self._transports: list[asyncio.ReadTransport] = []  # bounded by: one session
        self._input = PacedInput()

    # --- requests of the caller --------------------------------------------------------------------------------------

    def connection_made(self, chan: "asyncssh.SSHServerChannel[bytes]") -> None:
        """Keep the channel."""
        self._chan = chan
        self._input.attach(chan)

    def shell_requested(self) -> bool:
        """Accept a shell, without a terminal."""
        return True

    def exec_requested(self, command: str) -> bool:
        """Accept a command."""
        self._command = command
        return True

    def subsystem_requested(self, subsystem: str) -> bool:
        """Accept a transfer of files, and nothing else."""
        self._command = self._sftp_command
        return subsystem == SFTP

    def session_started(self) -> None:
        """Start the job."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._end_failed)

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:  # noqa: ARG002 - of the port
        """Pass input on."""
        self._input.write(data)

    def eof_received(self) -> bool:
        """Pass the end of the input on, and keep the channel open for the output."""
        self._input.end()
        return True

    def signal_received(self, signal: str) -> None:
        """Send a signal to the processes of the command."""
        number = SENT_SIGNALS.get(signal)
        if self._job is not None and number is not None:
            self._job.signal(number)

    def pause_writing(self) -> None:
        """Stop reading output while the caller does not take it."""
        for transport in self._outputs:
            if not transport.is_closing():
                transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on reading output."""
        for transport in self._outputs:
            if not transport.is_closing():
                transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - of the port
        """Let go of the job."""
        self._on_end()
        if self._task is not None:
            self._task.cancel()

    # --- the job -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            self._job = self._start(self._command)
        except OSError as error:
            self._chan.write_stderr(f"the machine cannot start it: {error.strerror or error}\n".encode())
            self._chan.exit(255)
            return
        try:
            status = await self._copy_streams(self._job)
        finally:
            self._input.close()
            for transport in self._transports:
                transport.close()
            self._job.close()
        if status is None:
            self._chan.exit_with_signal("KILL", msg="the machine has ended it")
        else:
            self._chan.exit(status)

    def _end_failed(self, task: asyncio.Task[None]) -> None:
        """End the channel of a session that has failed: its caller would wait for ever."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a session has failed", exc_info=error)
            self._chan.exit(255)

    async def _copy_streams(self, job: SessionJob) -> int | None:
        """Copy input and output until the command and its output have ended; return its exit status, if it has one."""
        output, errors = CopiedOutput(self._chan.write), CopiedOutput(self._chan.write_stderr)
        reports = bytearray()
        status = CopiedOutput(lambda data: self._take_report(reports, data))
        self._input.open(job.stdin)
        await self._read(job.status, status)
        self._outputs = [await self._read(job.stdout, output), await self._read(job.stderr, errors)]
        await status.ended.wait()
        last = reports.decode(errors="replace").split()[-1:]
        if not last or not last[0].isdecimal():
            return None
        job.release_output()
        await output.ended.wait()
        await errors.ended.wait()
        return int(last[0]) & 0xFF

    def _take_report(self, reports: bytearray, data: bytes) -> None:
        """Collect what the job reports; when it has started, its input may end."""
        reports += data[: MAX_REPORT_BYTES - len(reports)]
        if STARTED.encode() in reports:
            self._input.allow_end()

    async def _read(self, stream: FileIO, protocol: "CopiedOutput") -> asyncio.ReadTransport:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, stream)
        self._transports.append(transport)
        return transport


class CopiedOutput(asyncio.Protocol):
    """Copies a stream of a command."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        """Copy."""
        self._write(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - of the port
        """Note the end."""
        self.ended.set()


class PacedInput:
    """Copies input to a command, and lets the caller send no more than the command takes.

    It is not one of asyncio's transports: those cannot be aborted twice, and end a pipe as soon as it is empty.
    """

    def __init__(self) -> None:
        self._chan: asyncssh.SSHServerChannel[bytes] | None = None
        self._stream: FileIO | None = None
        self._waiting = bytearray()
        self._has_ended, self._may_end, self._is_paused = False, False, False

    def attach(self, chan: "asyncssh.SSHServerChannel[bytes]") -> None:
        """Take input from a channel."""
        self._chan = chan

    def open(self, stream: FileIO) -> None:
        """Write to a pipe from now on, also what has come before."""
        self._stream = stream
        self._flush()

    def write(self, data: bytes) -> None:
        """Write some input."""
        self._waiting += data
        self._flush()

    def end(self) -> None:
        """End the input."""
        self._has_ended = True
        self._flush()

    def allow_end(self) -> None:
        """Let the pipe be closed when the input has ended."""
        self._may_end = True
        self._flush()

    def close(self) -> None:
        """Close the pipe, and drop what the command has not taken."""
        if self._stream is not None and not self._stream.closed:
            asyncio.get_running_loop().remove_writer(self._stream.fileno())
            self._stream.close()

    def _flush(self) -> None:
        stream = self._stream
        if stream is None or stream.closed:
            return
        while self._waiting:
            written = stream.write(self._waiting[:WRITTEN_AT_ONCE])
            if written is None:  # the pipe is full
                asyncio.get_running_loop().add_writer(stream.fileno(), self._flush)
                self._pause(is_paused=True)
                return
            del self._waiting[:written]
        asyncio.get_running_loop().remove_writer(stream.fileno())
        self._pause(is_paused=False)  # the channel may call `write` and `end` meanwhile
        if self._has_ended and self._may_end and not self._waiting:
            self.close()

    def _pause(self, *, is_paused: bool) -> None:
        if self._chan is None or is_paused == self._is_paused:
            return
        self._is_paused = is_paused
        self._chan.pause_reading() if is_paused else self._chan.resume_reading()
