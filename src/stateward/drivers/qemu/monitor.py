"""The QMP monitor of a QEMU machine, and QEMU's states.

A monitor serves one client at a time and lets others wait. So a connection is opened for a few commands and closed
within seconds. Events need a long connection, so each machine has a second monitor for them; a second listener gets
nothing until the first is gone, which does no harm, because events are only hints.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from stateward.drivers.port import MachineState, Meter
from stateward.drivers.process.supervisor import ignore_milestone
from stateward.drivers.qemu.errors import CommandRejected, MonitorNotAnswered, MonitorNotReached
from stateward.workloads.confinement.syscalls import open_handle

COMMANDS = "monitor"
EVENTS = "events"
ANSWER_TIMEOUT_S = 5.0
"""How long a monitor may take to answer."""
CONNECT_RETRY_S = 0.01
MAX_LINE_BYTES = 1 << 24
"""The maximum length of a line of an answer."""


class QmpError(Struct, frozen=True):
    """The error in an answer of QEMU."""

    kind: str = field(name="class")
    desc: str


class QmpMessage(Struct, frozen=True):
    """A message of QEMU: its greeting, an event, or the answer to a command."""

    greeting: object | UnsetType = field(name="QMP", default=UNSET)
    event: str = ""
    answer: object | UnsetType = field(name="return", default=UNSET)
    error: QmpError | None = None
    id: int | None = None


_MESSAGE_DECODER = msgspec.json.Decoder(QmpMessage)


class QmpStatus(Struct, frozen=True):
    """The answer to `query-status`."""

    status: str


class Monitor:
    """An open connection to a monitor: one command at a time."""

    def __init__(self, machine: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, meter: Meter) -> None:
        self._machine = machine
        self._reader = reader
        self._writer = writer
        self._meter = meter
        self._numbers = count(1)

    async def handshake(self) -> None:
        """Read QEMU's greeting and negotiate; waits until the present client is gone."""
        await self._read()
        await self._execute("qmp_capabilities", {})

    async def execute(self, command: str, arguments: Mapping[str, object] | None = None) -> object:
        """Send one command and return its answer."""
        self._meter(command)
        try:
            return await self._execute(command, arguments or {})
        except (OSError, EOFError, msgspec.MsgspecError) as error:
            raise MonitorNotAnswered(str(self._machine), f"{command}: the monitor hung up") from error

    async def _execute(self, command: str, arguments: Mapping[str, object]) -> object:
        number = next(self._numbers)
        self._writer.write(msgspec.json.encode({"execute": command, "arguments": arguments, "id": number}) + b"\n")
        await self._writer.drain()
        while (message := await self._read()).id != number:
            pass  # an event; the other monitor is for them
        if message.error is not None:
            raise CommandRejected(str(self._machine), f"{command}: {message.error.desc}")
        return message.answer

    async def _read(self) -> QmpMessage:
        line = await self._reader.readline()
        if not line:
            raise EOFError
        return _MESSAGE_DECODER.decode(line)

    async def status(self) -> str:
        """Return QEMU's state of the machine."""
        return msgspec.convert(await self.execute("query-status"), QmpStatus).status

    async def events(self) -> AsyncIterator[str]:
        """Yield the names of events, until the machine ends."""
        while True:
            try:
                message = await self._read()
            except (OSError, EOFError):
                return
            if message.event:
                yield message.event


@asynccontextmanager
async def open_monitor(
    machine: Path, meter: Meter = ignore_milestone, seconds: float | None = None
) -> AsyncIterator[Monitor]:
    """Open the monitor of the machine in a folder; the time-out covers the whole context."""
    seconds = ANSWER_TIMEOUT_S if seconds is None else seconds
    try:
        async with asyncio.timeout(seconds), _open(machine, COMMANDS, meter) as monitor:
            yield monitor
    except TimeoutError as error:
        raise MonitorNotAnswered(str(machine), f"the monitor has not answered in {seconds:g} s") from error


@asynccontextmanager
async def open_event_monitor(machine: Path, meter: Meter = ignore_milestone) -> AsyncIterator[Monitor]:
    """Open the event monitor of a machine; waits until the present listener is gone."""
    async with _open(machine, EVENTS, meter) as monitor:
        yield monitor


@asynccontextmanager
async def _open(machine: Path, name: str, meter: Meter) -> AsyncIterator[Monitor]:
    while True:
        reader, writer = await _connect(machine, name)
        try:
            monitor = Monitor(machine, reader, writer, meter)
            try:
                await monitor.handshake()
            except (OSError, EOFError):  # it closes the previous connection, or ends: try again
                await asyncio.sleep(CONNECT_RETRY_S)
                continue
            yield monitor
            return
        finally:
            writer.transport.abort()


async def _connect(machine: Path, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        with _address(machine, name) as address:
            return await asyncio.open_unix_connection(address, limit=MAX_LINE_BYTES)
    except OSError as error:
        raise MonitorNotReached(str(machine), f"nobody listens at the monitor: {error}") from error


@contextmanager
def _address(machine: Path, name: str) -> Iterator[str]:
    """Return the path of a socket through its open folder: a socket's path has at most 107 characters."""
    with open_handle(machine, os.O_RDONLY | os.O_DIRECTORY) as handle:
        yield f"/proc/self/fd/{handle}/{name}"


QMP_STATES = {
    "running":        MachineState.RUNNING,
    "paused":         MachineState.SUSPENDED,
    "suspended":      MachineState.SUSPENDED,
    "prelaunch":      MachineState.PENDING,
    "inmigrate":      MachineState.PENDING,
    "shutdown":       MachineState.TERMINATING,
    "internal-error": MachineState.FAILED,
    "guest-panicked": MachineState.FAILED,
}  # fmt: skip


def state_of(native_state: str) -> MachineState:
    """Return the normalised state for one of QEMU's; an unknown one is `OTHER`."""
    return QMP_STATES.get(native_state, MachineState.OTHER)
