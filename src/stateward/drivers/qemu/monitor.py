"""Speaking with a running QEMU over its monitor protocol, QMP.

A monitor serves one client at a time and lets others wait. So nobody keeps one: a conversation is opened, has a few
words, and is closed, all within a few seconds. For events, which have to be waited for, each machine has a second
monitor; whoever comes second there hears nothing until the first is gone, which does no harm, as events are hints.

The three errors tell what is known: nothing was sent; QEMU says no; or it was sent, and nobody knows.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import cast

from qemu.qmp import ConnectError, EventListener, ExecuteError, Message, QMPClient, QMPError, Runstate

from stateward.drivers.port import Meter
from stateward.drivers.process.lodging import unnoticed
from stateward.errors import StatewardError

logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)  # what goes wrong is told by the errors below, once
COMMANDS = "monitor"
EVENTS = "events"
PATIENCE = 5.0
"""How long a monitor may take to answer, in seconds."""
BETWEEN_TRIES = 0.01


class MonitorError(StatewardError):
    """A conversation with a monitor did not succeed."""

    def __init__(self, machine: Path, reason: str) -> None:
        super().__init__(machine, reason)
        self.machine = str(machine)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class NotReached(MonitorError):
    """Nobody listens at the monitor; nothing was sent."""

    retry = True


class NotAnswered(MonitorError):
    """The monitor is there, and does not answer in time; what was sent may have been done."""

    retry = True


class Denied(MonitorError):
    """QEMU says no."""


class Monitor:
    """An open conversation."""

    def __init__(self, machine: Path, client: QMPClient, meter: Meter) -> None:
        self._machine = machine
        self._client = client
        self._meter = meter

    async def ask(self, command: str, arguments: dict[str, object] | None = None) -> object:
        """Send one command and return its answer."""
        self._meter(command)
        try:
            return await self._client.execute(command, arguments)
        except ExecuteError as error:
            raise Denied(self._machine, f"{command}: {error}") from error
        except (QMPError, EOFError, OSError) as error:
            raise NotAnswered(self._machine, f"{command}: the monitor hung up") from error

    async def status(self) -> str:
        """Return QEMU's own word for what the machine is."""
        answer = cast("dict[str, object]", await self.ask("query-status"))
        return str(answer["status"])

    async def events(self) -> AsyncIterator[str]:
        """Yield the names of events, until the machine ends."""
        with self._client.listener() as listener:
            ended = asyncio.ensure_future(self._client.runstate_changed())
            try:
                while (name := await _next(listener, ended)) is not None:
                    yield name
            finally:
                ended.cancel()


async def _next(listener: EventListener, ended: asyncio.Future[Runstate]) -> str | None:
    event = asyncio.ensure_future(listener.get())
    either: set[asyncio.Future[Message] | asyncio.Future[Runstate]] = {event, ended}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return str(event.result()["event"]) if event.done() else None
    finally:
        event.cancel()


@asynccontextmanager
async def talk(machine: Path, meter: Meter = unnoticed, seconds: float | None = None) -> AsyncIterator[Monitor]:
    """Have a conversation with the machine of a folder; all of it together may take so many seconds."""
    seconds = PATIENCE if seconds is None else seconds
    try:
        async with asyncio.timeout(seconds), _open(machine, COMMANDS, meter) as monitor:
            yield monitor
    except TimeoutError as error:
        raise NotAnswered(machine, f"the monitor has not answered in {seconds:g} s") from error


@asynccontextmanager
async def listen(machine: Path, meter: Meter = unnoticed) -> AsyncIterator[Monitor]:
    """Be the one who hears a machine's events; waits for whoever hears them now."""
    async with _open(machine, EVENTS, meter) as monitor:
        yield monitor


@asynccontextmanager
async def _open(machine: Path, name: str, meter: Meter) -> AsyncIterator[Monitor]:
    while (client := await _connect(machine, name)) is None:
        await asyncio.sleep(BETWEEN_TRIES)
    try:
        yield Monitor(machine, client, meter)
    finally:
        with suppress(QMPError, EOFError, OSError):
            await client.disconnect()


async def _connect(machine: Path, name: str) -> QMPClient | None:
    """Connect to a monitor; None where it is there, but had no time: it may be busy parting from the one before."""
    client = QMPClient()
    try:
        with _address(machine, name) as address:
            await client.connect(address)
    except OSError as error:
        raise NotReached(machine, f"the monitor cannot be reached: {error}") from error
    except ConnectError as error:
        if isinstance(error.exc, (FileNotFoundError, ConnectionRefusedError)):
            raise NotReached(machine, f"nobody listens at the monitor: {error.exc}") from error
        return None
    return client


@contextmanager
def _address(machine: Path, name: str) -> Iterator[str]:
    """Name a socket through its open folder: the kernel takes no more than 107 characters, and folders may be deep."""
    handle = os.open(machine, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{name}"
    finally:
        os.close(handle)
