"""A node of QEMU machines: real disks, given and taken while they run, and machines that move while they run."""

import asyncio
import time
from collections.abc import Sequence

from stateward.domains.ovc.nodes.driver_node import BETWEEN_LOOKS, Driven
from stateward.domains.ovc.nodes.port import Hypervisor, Machine, Plugged, Power, Presence, Told
from stateward.drivers import Outcome
from stateward.drivers.qemu.disks import Disk, DiskError
from stateward.drivers.qemu.host import QemuHost
from stateward.drivers.qemu.migration import Memory, Move, MoveFailed
from stateward.drivers.qemu.monitor import Denied, MonitorError, NotReached
from stateward.engine import Permanent, Temporary, Unknown
from stateward.engine.handlers import finish_call

IMAGE = "tick"
POLITELY = 1.5
"""How long a machine has to switch itself off when its power button is pressed, in seconds."""


class Emulated(Driven):
    """A folder of QEMU machines on this host."""

    def __init__(self, host: QemuHost) -> None:
        super().__init__(host, IMAGE)
        self.host = host

    async def _create(self, machine: Machine) -> Outcome:
        return await finish_call(self.host.boot(self._want(machine), disks_of(machine.disks)))

    async def stop(self, key: str) -> None:
        """Press the power button, and pull the plug if that does not help.

        The guest may obey the button at any time. So what was begun is brought to its end, also if it is cancelled.
        """
        if await self.look(key) is Power.ON:
            await finish_call(self._power_off(key))
        else:
            await super().stop(key)

    async def _power_off(self, key: str) -> None:
        await self._press(key)
        await super().stop(key)

    async def _press(self, key: str) -> None:
        try:
            async with asyncio.timeout(POLITELY):
                await self.host.press(key)
                while await self.look(key) is not Power.OFF:
                    await asyncio.sleep(BETWEEN_LOOKS)
        except (TimeoutError, MonitorError):
            return

    async def look_settled(self, key: str, seconds: float) -> Power:
        """Say what a machine is; one whose guest may be about to switch itself off is waited for, too."""
        deadline = time.monotonic() + seconds
        while (power := await super().look_settled(key, seconds)) is Power.ON and await self.host.may_obey(key):
            if time.monotonic() > deadline:
                return Power.CHANGING
            await asyncio.sleep(BETWEEN_LOOKS)
        return power

    async def present(self) -> Presence:
        """Say which machines are there, by their processes: whether their monitors answer does not matter."""
        keys, complete = await self.host.alive()
        return Presence(keys, complete)

    async def attach(self, key: str, disk: Plugged) -> None:
        """Give a disk to a running machine."""
        try:
            await finish_call(self.host.attach(key, _disk(disk)))
        except (MonitorError, DiskError) as error:
            raise read(error) from error

    async def detach(self, key: str, disk: Plugged) -> None:
        """Take a disk from a running machine."""
        try:
            await finish_call(self.host.detach(key, _disk(disk)))
        except (MonitorError, DiskError) as error:
            raise read(error) from error

    async def has_disk(self, key: str, disk: Plugged) -> bool:
        """Tell whether a running machine has a disk in its slot."""
        try:
            return disk.slot in await self.host.slots(key)
        except MonitorError as error:
            raise read(error) from error

    async def move(self, key: str, to: Hypervisor, machine: Machine, told: Told) -> None:
        """Send a machine to another node while it runs."""
        move = self._move(key, to, machine)
        if move is None:
            await super().move(key, to, machine, told)
            return

        async def hear(memory: Memory) -> None:
            await told(memory.total - memory.remaining, memory.total)

        try:
            await move.run(hear)
        except MoveFailed as error:
            raise Permanent(str(error)) from error
        except MonitorError as error:
            raise Unknown(str(error)) from error

    async def has_moved(self, key: str, to: Hypervisor, machine: Machine) -> bool:
        """Tell whether a machine goes on at another node."""
        move = self._move(key, to, machine)
        return await super().has_moved(key, to, machine) if move is None else await move.is_done()

    async def stop_moving(self, key: str, to: Hypervisor, machine: Machine) -> bool:
        """Give a move up."""
        move = self._move(key, to, machine)
        try:
            return await super().stop_moving(key, to, machine) if move is None else await move.stop()
        except MonitorError as error:
            raise read(error) from error

    def _move(self, key: str, to: Hypervisor, machine: Machine) -> Move | None:
        if not isinstance(to, Emulated):
            return None
        return Move(self.host, key, to.host, to._want(machine), disks_of(machine.disks))  # noqa: SLF001 - its twin


def _disk(disk: Plugged) -> Disk:
    return Disk(disk.file, disk.slot, disk.boot)


def disks_of(disks: Sequence[Plugged]) -> list[Disk]:
    """Return the disks of a machine as QEMU gets them."""
    return [_disk(one) for one in disks]


def read(error: MonitorError | DiskError) -> Exception:
    """Return what is to follow when a machine did not do as it was told."""
    match error:
        case Denied() | DiskError():
            return Permanent(str(error))
        case NotReached():
            return Temporary(str(error))
        case _:
            return Unknown(str(error))
