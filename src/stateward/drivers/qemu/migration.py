"""Moving a running machine from one host to another: its memory is sent while it runs, and then it goes on there.

QEMU does the sending by itself, whether or not anybody looks. So a move can be taken up by whoever comes next, at
whatever point the one before was killed: what the two machines say tells how far it is. The machine that leaves is
ended only when the other one has gone on; until then every failure, and every word to stop, leaves it where it was.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec import Struct, field

from stateward.drivers.port import CallRefused, MachineAction, MachineRef, MachineSpec, MachineState
from stateward.drivers.qemu.disks import Disk
from stateward.drivers.qemu.host import QemuHost
from stateward.drivers.qemu.monitor import Monitor, MonitorError, NotReached
from stateward.errors import StatewardError

BETWEEN_LOOKS = 0.05
ARRIVING = 10.0
"""How long a machine may take to go on after all of it has been sent, in seconds."""

UNDER_WAY = frozenset({"setup", "active", "pre-switchover", "device", "wait-unplug", "cancelling"})
WAITS, SWITCHING, SENT = "inmigrate", "finish-migrate", "postmigrate"
"""QEMU's words for a machine that waits for its memory, for one that sends the last of it, and for one that has."""
GOES_ON = frozenset({"running", "paused"})


class MoveFailed(StatewardError):
    """A machine could not be moved; it is where it was."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(key, reason)
        self.key, self.reason = key, reason

    def __str__(self) -> str:
        return self.reason


class Memory(Struct, frozen=True):
    """How much of a machine's memory has been sent, and is still to be."""

    transferred: int = 0
    remaining: int = 0
    total: int = 0


class Sending(Struct, frozen=True):
    """The answer to `query-migrate`."""

    status: str = "none"
    ram: Memory = Memory()
    error: str = field(name="error-desc", default="")
    addresses: tuple[dict[str, object], ...] = field(name="socket-address", default=())


Told = Callable[[Memory], Awaitable[None]]


class Move:
    """A machine's move: from where, as which machine, to where."""

    def __init__(self, source: QemuHost, key: str, target: QemuHost, want: MachineSpec, disks: Sequence[Disk]) -> None:
        self._source, self._key = source, key
        self._target, self._want, self._disks = target, want, disks

    async def run(self, told: Told) -> None:
        """Move it, or go on with a move that was begun; raises `MoveFailed`, and then it is where it was."""
        here, there = await self._words()
        if _has_arrived(here, there):
            await self._end(self._source, self._key)
            return
        if here is None:
            await self._end(self._target, self._want.key)
            raise MoveFailed(self._key, "it is not running")
        if here != SENT and not await self._is_sending() and await self._word(self._source, self._key) != SENT:
            await self._begin(there)  # it was neither under way nor, asked after that, at its end
        await self._follow(told)
        await self._leave()

    async def is_done(self) -> bool:
        """Tell whether it goes on at its new place, and nowhere else."""
        here, there = await self._words()
        return here is None and there in GOES_ON

    async def stop(self) -> bool:
        """Give the move up; tells whether it is too late for that, because it goes on at its new place already."""
        here, there = await self._words()
        if here not in (None, SENT):
            await self._source.tell(self._key, lambda monitor: monitor.ask("migrate_cancel"))
            while await self._is_sending():
                await asyncio.sleep(BETWEEN_LOOKS)
            here, there = await self._words()
        if _has_arrived(here, there) or here == SENT:
            return True
        await self._end(self._target, self._want.key)
        return False

    # --- steps -------------------------------------------------------------------------------------------------------

    async def _begin(self, there: str | None) -> None:
        if there is None:
            outcome = await self._target.receive(self._want, self._disks)
            if isinstance(outcome, CallRefused):
                raise MoveFailed(self._key, f"{outcome.why}: {outcome.message}")
        try:
            port = await self._reached(self._target, self._want.key, _listening)
            await self._reached(self._source, self._key, lambda monitor: self._send(monitor, port))
        except MonitorError as error:
            await self._end(self._target, self._want.key)
            raise MoveFailed(self._key, str(error)) from error

    async def _send(self, monitor: Monitor, port: str) -> None:
        if self._source.bandwidth:
            await monitor.ask("migrate-set-parameters", {"max-bandwidth": self._source.bandwidth})
        await monitor.ask("migrate", {"uri": f"tcp:127.0.0.1:{port}"})

    async def _follow(self, told: Told) -> None:
        """Wait until all of it has been sent, and goes on there."""
        while (sending := await self._sending()).status in UNDER_WAY:
            await told(sending.ram)
            await asyncio.sleep(BETWEEN_LOOKS)
        if sending.status != "completed":
            await self._end(self._target, self._want.key)
            raise MoveFailed(self._key, sending.error or f"the move was {sending.status}")
        async with asyncio.timeout(ARRIVING):
            while await self._word(self._target, self._want.key) == WAITS:
                await asyncio.sleep(BETWEEN_LOOKS)

    async def _leave(self) -> None:
        """End what is left of it where it was; only what has been taken over is ever ended here."""
        if not _has_arrived(*await self._words()):
            raise MoveFailed(self._key, "it has not arrived")
        await self._end(self._source, self._key)

    async def _end(self, host: QemuHost, key: str) -> None:
        await host.act(MachineAction.TERMINATE, [MachineRef(key)])

    # --- looking -----------------------------------------------------------------------------------------------------

    async def _is_sending(self) -> bool:
        return (await self._sending()).status in UNDER_WAY

    async def _sending(self) -> Sending:
        return await self._source.tell(self._key, _sending)

    async def _words(self) -> tuple[str | None, str | None]:
        return await self._word(self._source, self._key), await self._word(self._target, self._want.key)

    async def _word(self, host: QemuHost, key: str) -> str | None:
        """Return QEMU's word for a machine that is not just switching over, or None if there is no such process."""
        while (word := await self._word_now(host, key)) == SWITCHING:
            await asyncio.sleep(BETWEEN_LOOKS)
        return word

    async def _word_now(self, host: QemuHost, key: str) -> str | None:
        listing = await host.observe([key])
        if not listing.complete:
            raise TimeoutError(listing.problem)
        ended = (MachineState.TERMINATED, MachineState.TERMINATING, MachineState.FAILED)
        return next((one.native_state for one in listing.machines if one.state not in ended), None)

    async def _reached(self, host: QemuHost, key: str, words: Callable[[Monitor], Awaitable[str | None]]) -> str:
        """Have a conversation with a machine that may just be coming up."""
        deadline = asyncio.get_running_loop().time() + ARRIVING
        while True:
            try:
                return await host.tell(key, words) or ""
            except NotReached:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(BETWEEN_LOOKS)


def _has_arrived(here: str | None, there: str | None) -> bool:
    return here in (None, SENT) and there in GOES_ON


async def _sending(monitor: Monitor) -> Sending:
    return msgspec.convert(await monitor.ask("query-migrate"), Sending)


async def _listening(monitor: Monitor) -> str:
    """Let a machine listen for the memory of another one; return where."""
    if not (await _sending(monitor)).addresses:
        await monitor.ask("migrate-incoming", {"uri": "tcp:127.0.0.1:0"})
    return str((await _sending(monitor)).addresses[0]["port"])
