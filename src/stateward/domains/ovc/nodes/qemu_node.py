"""A node of QEMU machines: disks that are attached while a machine runs, and live migration."""

import asyncio
import time
from collections.abc import Sequence

from msgspec.structs import replace

from stateward.domains.ovc.nodes.driver_node import POLL_MIN_S, DriverNode
from stateward.domains.ovc.nodes.port import (
    AttachedDisk,
    Hypervisor,
    NodeInventory,
    NodeMachine,
    Power,
    ProgressCallback,
)
from stateward.drivers import MachineSpec, Outcome
from stateward.drivers.qemu.disks import QemuDisk
from stateward.drivers.qemu.errors import CommandRejected, DiskError, MigrationFailed, MonitorError, MonitorNotReached
from stateward.drivers.qemu.hardware import FROM_DISK, OWN_GUEST
from stateward.drivers.qemu.host import QemuHost
from stateward.drivers.qemu.migration import LiveMigration, MemoryProgress
from stateward.engine import Permanent, Temporary, Unknown
from stateward.engine.job import finish_call

POWER_BUTTON_TIMEOUT_S = 1.5
"""Seconds that a machine has to switch itself off after its power button was pressed."""


class QemuNode(DriverNode):
    """A node of QEMU machines in a folder of this host."""

    def __init__(self, host: QemuHost) -> None:
        super().__init__(host, OWN_GUEST)
        self.host = host

    def _machine_spec(self, machine: NodeMachine) -> MachineSpec:
        return replace(super()._machine_spec(machine), image=FROM_DISK if machine.boots_disk else OWN_GUEST)

    async def _create(self, machine: NodeMachine) -> Outcome:
        return await finish_call(self.host.boot(self._machine_spec(machine), to_qemu_disks(machine.disks)))

    async def stop(self, key: str) -> None:
        """Press the power button, and terminate the process if the guest does not obey in time.

        The guest may obey the button at any time. So a stop that has begun runs to its end, even if it is cancelled.
        """
        if await self.get_power(key) is Power.ON:
            await finish_call(self._power_off(key))
        else:
            await super().stop(key)

    async def _power_off(self, key: str) -> None:
        await self._press_power_button(key)
        await super().stop(key)

    async def _press_power_button(self, key: str) -> None:
        try:
            async with asyncio.timeout(POWER_BUTTON_TIMEOUT_S):
                await self.host.press_power_button(key)
                while await self.get_power(key) is not Power.OFF:
                    await asyncio.sleep(POLL_MIN_S)
        except (TimeoutError, MonitorError):
            return

    async def get_settled_power(self, key: str, seconds: float) -> Power:
        """Return the power of a machine; also wait for a guest that may be about to switch itself off."""
        deadline = time.monotonic() + seconds
        while (
            power := await super().get_settled_power(key, seconds)
        ) is Power.ON and await self.host.may_still_power_off(key):
            if time.monotonic() > deadline:
                return Power.CHANGING
            await asyncio.sleep(POLL_MIN_S)
        return power

    async def list_machines(self) -> NodeInventory:
        """Return the machines by their processes, whether or not their monitors answer."""
        keys, complete = await self.host.running_machines()
        return NodeInventory(keys, complete)

    async def attach(self, key: str, disk: AttachedDisk) -> None:
        """Attach a disk to a running machine."""
        try:
            await finish_call(self.host.attach(key, _to_qemu_disk(disk)))
        except (MonitorError, DiskError) as error:
            raise to_work_error(error) from error

    async def detach(self, key: str, disk: AttachedDisk) -> None:
        """Detach a disk from a running machine."""
        try:
            await finish_call(self.host.detach(key, _to_qemu_disk(disk)))
        except (MonitorError, DiskError) as error:
            raise to_work_error(error) from error

    async def has_disk(self, key: str, disk: AttachedDisk) -> bool:
        """Tell whether a running machine has a disk in its slot."""
        try:
            return disk.slot in await self.host.slots(key)
        except MonitorError as error:
            raise to_work_error(error) from error

    async def move(self, key: str, to: Hypervisor, machine: NodeMachine, on_progress: ProgressCallback) -> None:
        """Move a machine to another node while it runs."""
        move = self._move(key, to, machine)
        if move is None:
            await super().move(key, to, machine, on_progress)
            return

        async def report(memory: MemoryProgress) -> None:
            await on_progress(memory.total - memory.remaining, memory.total)

        try:
            await move.run(report)
        except MigrationFailed as error:
            raise Permanent(str(error)) from error
        except MonitorError as error:
            raise Unknown(str(error)) from error

    async def has_moved(self, key: str, to: Hypervisor, machine: NodeMachine) -> bool:
        """Tell whether a machine runs on the other node, and no longer here."""
        move = self._move(key, to, machine)
        return await super().has_moved(key, to, machine) if move is None else await move.is_done()

    async def stop_moving(self, key: str, to: Hypervisor, machine: NodeMachine) -> bool:
        """Stop a move; tells whether it is too late for that."""
        move = self._move(key, to, machine)
        try:
            return await super().stop_moving(key, to, machine) if move is None else await move.stop()
        except MonitorError as error:
            raise to_work_error(error) from error

    def _move(self, key: str, to: Hypervisor, machine: NodeMachine) -> LiveMigration | None:
        if not isinstance(to, QemuNode):
            return None
        return LiveMigration(self.host, key, to.host, to._machine_spec(machine), to_qemu_disks(machine.disks))  # noqa: SLF001 - its twin


def _to_qemu_disk(disk: AttachedDisk) -> QemuDisk:
    return QemuDisk(disk.file, disk.slot, disk.boot)


def to_qemu_disks(disks: Sequence[AttachedDisk]) -> list[QemuDisk]:
    """Return the disks of a machine as QEMU gets them."""
    return [_to_qemu_disk(disk) for disk in disks]


def to_work_error(error: MonitorError | DiskError) -> Exception:
    """Return the engine's error for a machine that did not carry out a command."""
    match error:
        case CommandRejected() | DiskError():
            return Permanent(str(error))
        case MonitorNotReached():
            return Temporary(str(error))
        case _:
            return Unknown(str(error))
