"""A node of QEMU machines: disks that are attached while a machine runs, and live migration."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from msgspec.structs import replace

from stateward.domains.ovc.nodes import port
from stateward.domains.ovc.nodes.driver_node import POLL_MIN_S, DriverNode
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

    def _machine_spec(self, machine: port.NodeMachine) -> MachineSpec:
        return replace(super()._machine_spec(machine), image=FROM_DISK if machine.boots_disk else OWN_GUEST)

    async def _create(self, machine: port.NodeMachine) -> Outcome:
        return await finish_call(self.host.boot(self._machine_spec(machine), [*map(_to_qemu_disk, machine.disks)]))

    async def stop(self, key: str) -> None:
        """Press the power button, and terminate the process if the guest does not obey in time.

        The guest may obey the button at any time. So a stop that has begun runs to its end, even if it is cancelled.
        """
        if await self.get_power(key) is port.Power.ON:
            await finish_call(self._power_off(key))
        else:
            await super().stop(key)

    async def _power_off(self, key: str) -> None:
        with suppress(TimeoutError, MonitorError):
            async with asyncio.timeout(POWER_BUTTON_TIMEOUT_S):
                await self.host.press_power_button(key)
                while await self.get_power(key) is not port.Power.OFF:
                    await asyncio.sleep(POLL_MIN_S)
        await super().stop(key)

    async def get_settled_power(self, key: str, seconds: float) -> port.Power:
        """Return the power of a machine; also wait for a guest that may be about to switch itself off."""
        deadline = time.monotonic() + seconds
        while (
            power := await super().get_settled_power(key, seconds)
        ) is port.Power.ON and await self.host.may_still_power_off(key):
            if time.monotonic() > deadline:
                return port.Power.CHANGING
            await asyncio.sleep(POLL_MIN_S)
        return power

    async def list_machines(self) -> port.NodeInventory:
        """Return the machines by their processes, whether or not their monitors answer."""
        keys, complete = await self.host.running_machines()
        return port.NodeInventory(keys, complete)

    async def attach(self, key: str, disk: port.AttachedDisk) -> None:
        """Attach a disk to a running machine."""
        with _as_work_errors():
            await finish_call(self.host.attach(key, _to_qemu_disk(disk)))

    async def detach(self, key: str, disk: port.AttachedDisk) -> None:
        """Detach a disk from a running machine."""
        with _as_work_errors():
            await finish_call(self.host.detach(key, _to_qemu_disk(disk)))

    async def has_disk(self, key: str, disk: port.AttachedDisk) -> bool:
        """Tell whether a running machine has a disk in its slot."""
        with _as_work_errors():
            return disk.slot in await self.host.slots(key)

    async def move(
        self, key: str, to: port.Hypervisor, machine: port.NodeMachine, on_progress: port.ProgressCallback
    ) -> None:
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

    async def has_moved(self, key: str, to: port.Hypervisor, machine: port.NodeMachine) -> bool:
        """Tell whether a machine runs on the other node, and no longer here."""
        move = self._move(key, to, machine)
        return await super().has_moved(key, to, machine) if move is None else await move.is_done()

    async def stop_moving(self, key: str, to: port.Hypervisor, machine: port.NodeMachine) -> bool:
        """Stop a move; tells whether it is too late for that."""
        move = self._move(key, to, machine)
        with _as_work_errors():
            return await super().stop_moving(key, to, machine) if move is None else await move.stop()

    def _move(self, key: str, to: port.Hypervisor, machine: port.NodeMachine) -> LiveMigration | None:
        if not isinstance(to, QemuNode):
            return None
        return LiveMigration(self.host, key, to.host, to._machine_spec(machine), [*map(_to_qemu_disk, machine.disks)])  # noqa: SLF001 - its twin


def _to_qemu_disk(disk: port.AttachedDisk) -> QemuDisk:
    return QemuDisk(disk.file, disk.slot, disk.boot)


@contextmanager
def _as_work_errors() -> Iterator[None]:
    """Raise the engine's errors for a machine that did not carry out a command."""
    try:
        yield
    except (CommandRejected, DiskError) as error:
        raise Permanent(str(error)) from error
    except MonitorNotReached as error:
        raise Temporary(str(error)) from error
    except MonitorError as error:
        raise Unknown(str(error)) from error
