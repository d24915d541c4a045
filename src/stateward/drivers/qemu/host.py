"""Hosts whose machines have disks and can move to another host while they run."""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from stateward.drivers.port import CallAccepted, MachineSpec, Meter, Outcome, ProviderRegion
from stateward.drivers.process.machine_dir import MachineRecord
from stateward.drivers.process.shell_machine import MachineSize
from stateward.drivers.process.supervisor import Milestone, ignore_milestone
from stateward.drivers.qemu import disks as devices
from stateward.drivers.qemu.disks import QemuDisk
from stateward.drivers.qemu.driver import QemuDriver
from stateward.drivers.qemu.hardware import Hardware
from stateward.drivers.qemu.monitor import Monitor, open_monitor

DISKS, INCOMING = "disks", "incoming"
"""The tags by which a machine's record tells its disks, and that it comes from another host."""

POWER_BUTTON = "power button pressed"
"""What the record keeps the time under at which the power button was last pressed."""
POWER_OFF_TIMEOUT_S = 60.0
"""How many seconds after a press a guest may still switch itself off."""

T = TypeVar("T")


class DiskHardware(Hardware):
    """Machines with the disks that their records tell of."""

    def _arguments(self, record: MachineRecord, size: MachineSize) -> list[str]:
        disks = msgspec.json.decode(record.tags.get(DISKS, "[]"), type=list[QemuDisk])
        comes = ("-incoming", "defer") if INCOMING in record.tags else ()
        return [*super()._arguments(record, size), *devices.arguments(disks), *comes]


class QemuHost(QemuDriver):
    """QEMU machines with disks on this host."""

    def __init__(
        self, provider_region: ProviderRegion, meter: Meter = ignore_milestone, milestone: Milestone = ignore_milestone
    ) -> None:
        super().__init__(provider_region, meter, milestone, DiskHardware(provider_region))
        self.bandwidth = int(provider_region.options.get("bandwidth", 0))
        """How many bytes a second a machine that leaves may use; 0: as many as it can."""

    async def boot(self, machine_spec: MachineSpec, disks: Sequence[QemuDisk]) -> Outcome:
        """Make a machine with disks."""
        return await self._make(machine_spec, {DISKS: msgspec.json.encode(disks).decode()})

    async def receive(self, machine_spec: MachineSpec, disks: Sequence[QemuDisk]) -> Outcome:
        """Make a machine that waits for the memory of another one, on another host, with the same disks."""
        return await self._make(machine_spec, {DISKS: msgspec.json.encode(disks).decode(), INCOMING: "yes"})

    async def _make(self, machine_spec: MachineSpec, tags: dict[str, str]) -> Outcome:
        (outcome,) = await self.create([replace(machine_spec, tags={**machine_spec.tags, **tags})])
        return outcome

    async def converse(self, key: str, words: Callable[[Monitor], Awaitable[T]]) -> T:
        """Have a conversation with a machine; raises a `MonitorError`."""
        async with open_monitor(self.folder_of(key), self._meter) as monitor:
            return await words(monitor)

    async def attach(self, key: str, disk: QemuDisk) -> None:
        """Give a disk to a running machine."""
        await self.converse(key, lambda monitor: devices.attach(monitor, disk))

    async def detach(self, key: str, disk: QemuDisk) -> None:
        """Take a disk from a running machine."""
        await self.converse(key, lambda monitor: devices.detach(monitor, disk))

    async def slots(self, key: str) -> set[int]:
        """Return the slots of a running machine that have a disk."""
        return await self.converse(key, devices.slots)

    async def press_power_button(self, key: str) -> None:
        """Press a machine's power button. The record says so first: the guest may obey after the caller has gone."""

        async def press(record: MachineRecord) -> Outcome:
            noted = replace(record, more={**record.more, POWER_BUTTON: str(time.time())})
            await self._in_thread(self._supervisor.machine_dir.write, noted)
            await self.converse(key, lambda monitor: monitor.execute("system_powerdown"))
            return CallAccepted(key)

        await self._change(key, press)

    async def may_still_power_off(self, key: str) -> bool:
        """Tell whether a machine's power button was pressed so recently that its guest may still obey."""
        record = await self._in_thread(self._supervisor.machine_dir.read, key)
        return record is not None and time.time() < float(record.more.get(POWER_BUTTON, "0")) + POWER_OFF_TIMEOUT_S

    async def running_machines(self) -> tuple[frozenset[str], bool]:
        """Return the machines that have a process here, and whether all could be looked at; no monitor is asked."""
        scan = await self._scan()
        return frozenset(one.record.key for one in scan.machines if one.process is not None), not scan.problems
