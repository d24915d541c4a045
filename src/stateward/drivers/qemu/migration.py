"""Live migration of a machine between two hosts: its memory is copied while it runs, then it continues there.

QEMU copies on its own. So the next controller can resume a migration at any point: the states of the source and the
target machine show how far it is. The source machine is ended only after the target runs; before that, every failure
and every cancellation leaves the machine on the source.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec import Struct, field

from stateward.drivers.port import CallRefused, MachineAction, MachineHandle, MachineSpec, MachineState
from stateward.drivers.qemu.disks import QemuDisk
from stateward.drivers.qemu.errors import MigrationFailed, MonitorError, MonitorNotReached
from stateward.drivers.qemu.host import QemuHost
from stateward.drivers.qemu.monitor import Monitor

POLL_INTERVAL_S = 0.05
ARRIVAL_TIMEOUT_S = 10.0
"""How long the target machine may take to continue after all memory has been sent."""

UNDER_WAY = frozenset({"setup", "active", "pre-switchover", "device", "wait-unplug", "cancelling"})
WAITS, SWITCHING, SENT = "inmigrate", "finish-migrate", "postmigrate"
"""QEMU's states of a target that waits for memory, and of a source that sends the last of it, or has sent it."""
CONTINUES = frozenset({"running", "paused"})


class MemoryProgress(Struct, frozen=True):
    """How many bytes of a machine's memory have been sent, and how many remain."""

    transferred: int = 0
    remaining: int = 0
    total: int = 0


class MigrationStatus(Struct, frozen=True):
    """The answer to `query-migrate`."""

    status: str = "none"
    ram: MemoryProgress = MemoryProgress()
    error: str = field(name="error-desc", default="")
    addresses: tuple[dict[str, object], ...] = field(name="socket-address", default=())


OnProgress = Callable[[MemoryProgress], Awaitable[None]]


class LiveMigration:
    """The migration of one machine from a source host to a target host."""

    def __init__(
        self, source: QemuHost, key: str, target: QemuHost, machine_spec: MachineSpec, disks: Sequence[QemuDisk]
    ) -> None:
        self._source, self._key = source, key
        self._target, self._machine_spec, self._disks = target, machine_spec, disks

    async def run(self, on_progress: OnProgress) -> None:
        """Migrate the machine, or resume a migration; after a `MigrationFailed` it still runs on its source host."""
        here, there = await self._states()
        if _has_arrived(here, there):
            await self._end(self._source, self._key)
            return
        if here is None:
            await self._end(self._target, self._machine_spec.key)
            raise MigrationFailed(self._key, "it is not running")
        if here != SENT and not await self._is_sending() and await self._state(self._source, self._key) != SENT:
            await self._begin(there)  # checked twice: the first answer may be from just before the end
        await self._wait_until_sent(on_progress)
        await self._end_source()

    async def is_done(self) -> bool:
        """Tell whether the machine runs on the target host, and only there."""
        here, there = await self._states()
        return here is None and there in CONTINUES

    async def stop(self) -> bool:
        """Cancel the migration; returns True if it is too late, because the machine already runs on the target host."""
        here, there = await self._states()
        if here not in (None, SENT):
            await self._source.use_monitor(self._key, lambda monitor: monitor.execute("migrate_cancel"))
            while await self._is_sending():
                await asyncio.sleep(POLL_INTERVAL_S)
            here, there = await self._states()
        if _has_arrived(here, there) or here == SENT:
            return True
        await self._end(self._target, self._machine_spec.key)
        return False

    # --- steps -------------------------------------------------------------------------------------------------------

    async def _begin(self, there: str | None) -> None:
        if there is None:
            outcome = await self._target.receive(self._machine_spec, self._disks)
            if isinstance(outcome, CallRefused):
                raise MigrationFailed(self._key, f"{outcome.why}: {outcome.message}")
        try:
            port = await self._use_monitor_when_up(self._target, self._machine_spec.key, _listen)
            await self._use_monitor_when_up(self._source, self._key, lambda monitor: self._send(monitor, port))
        except MonitorError as error:
            if await self._has_begun():
                raise  # another controller has begun it meanwhile: the target belongs to that migration
            await self._end(self._target, self._machine_spec.key)
            raise MigrationFailed(self._key, str(error)) from error

    async def _send(self, monitor: Monitor, port: str) -> None:
        if self._source.bandwidth:
            await monitor.execute("migrate-set-parameters", {"max-bandwidth": self._source.bandwidth})
        await monitor.execute("migrate", {"uri": f"tcp:127.0.0.1:{port}"})

    async def _wait_until_sent(self, on_progress: OnProgress) -> None:
        """Wait until all memory has been sent, and the machine continues on the target host."""
        while (sending := await self._sending()).status in UNDER_WAY:
            await on_progress(sending.ram)
            await asyncio.sleep(POLL_INTERVAL_S)
        if sending.status != "completed":
            await self._end(self._target, self._machine_spec.key)
            raise MigrationFailed(self._key, sending.error or f"the move was {sending.status}")
        async with asyncio.timeout(ARRIVAL_TIMEOUT_S):
            while await self._state(self._target, self._machine_spec.key) == WAITS:
                await asyncio.sleep(POLL_INTERVAL_S)

    async def _end_source(self) -> None:
        """End the machine on the source host, but only if it runs on the target host."""
        if not _has_arrived(*await self._states()):
            raise MigrationFailed(self._key, "it has not arrived")
        await self._end(self._source, self._key)

    async def _end(self, host: QemuHost, key: str) -> None:
        await host.act(MachineAction.TERMINATE, [MachineHandle(key)])

    # --- states ------------------------------------------------------------------------------------------------------

    async def _has_begun(self) -> bool:
        """Tell whether the source sends or has sent its memory, or the target does not wait for it any more."""
        here, there = await self._states()
        return here in (None, SENT) or there not in (None, WAITS) or await self._is_sending()

    async def _is_sending(self) -> bool:
        return (await self._sending()).status in UNDER_WAY

    async def _sending(self) -> MigrationStatus:
        return await self._source.use_monitor(self._key, _sending)

    async def _states(self) -> tuple[str | None, str | None]:
        return await self._state(self._source, self._key), await self._state(self._target, self._machine_spec.key)

    async def _state(self, host: QemuHost, key: str) -> str | None:
        """Return QEMU's state of a machine once it does not switch over, or None if it has no process."""
        while (state := await self._state_now(host, key)) == SWITCHING:
            await asyncio.sleep(POLL_INTERVAL_S)
        return state

    async def _state_now(self, host: QemuHost, key: str) -> str | None:
        listing = await host.observe([key])
        if not listing.complete:
            raise TimeoutError(listing.problem)
        ended = (MachineState.TERMINATED, MachineState.TERMINATING, MachineState.FAILED)
        return next((machine.native_state for machine in listing.machines if machine.state not in ended), None)

    async def _use_monitor_when_up(
        self, host: QemuHost, key: str, commands: Callable[[Monitor], Awaitable[str | None]]
    ) -> str:
        """Run commands on the monitor of a machine that may still be starting."""
        deadline = asyncio.get_running_loop().time() + ARRIVAL_TIMEOUT_S
        while True:
            try:
                return await host.use_monitor(key, commands) or ""
            except MonitorNotReached:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(POLL_INTERVAL_S)


def _has_arrived(here: str | None, there: str | None) -> bool:
    return here in (None, SENT) and there in CONTINUES


async def _sending(monitor: Monitor) -> MigrationStatus:
    return msgspec.convert(await monitor.execute("query-migrate"), MigrationStatus)


async def _listen(monitor: Monitor) -> str:
    """Let a machine listen for the memory of another one; return the port."""
    if not (await _sending(monitor)).addresses:
        await monitor.execute("migrate-incoming", {"uri": "tcp:127.0.0.1:0"})
    return str((await _sending(monitor)).addresses[0]["port"])
