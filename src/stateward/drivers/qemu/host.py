"""QEMU hosts whose machines have disks, and can be migrated to another host while they run."""

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
from stateward.drivers.qemu.hardware import FROM_DISK, OWN_GUEST, Hardware
from stateward.drivers.qemu.monitor import Monitor, open_monitor

DISKS, INCOMING = "disks", "incoming"
"""The tags of a machine's record for its disks, and for a machine that is migrated from another host."""

POWER_BUTTON = "power button pressed"
"""The entry of the record with the time at which the power button was last pressed."""
POWER_OFF_TIMEOUT_S = 60.0
"""How long after a press the guest may still power off."""

T = TypeVar("T")
_DISKS_DECODER = msgspec.json.Decoder(list[QemuDisk])  # threads use it: see the one of `MachineRecord`


class DiskHardware(Hardware):
    """Machines with the disks that are in their records."""

    built_in_images = (OWN_GUEST, FROM_DISK)

    def _arguments(self, record: MachineRecord, size: MachineSize) -> list[str]:
        disks = _DISKS_DECODER.decode(record.tags.get(DISKS, "[]"))
        incoming = ("-incoming", "defer") if INCOMING in record.tags else ()
        return [*super()._arguments(record, size), *devices.arguments(disks), *incoming]


class QemuHost(QemuDriver):
    """QEMU machines with disks on this host."""

    def __init__(
        self, provider_region: ProviderRegion, meter: Meter = ignore_milestone, milestone: Milestone = ignore_milestone
    ) -> None:
        super().__init__(provider_region, meter, milestone, DiskHardware(provider_region))
        self.bandwidth = int(provider_region.options.get("bandwidth", 0))
        """The maximum bandwidth of a migration from this host, in bytes per second; 0: unlimited."""

    async def boot(self, machine_spec: MachineSpec, disks: Sequence[QemuDisk]) -> Outcome:
        """Create a machine with disks."""
        return await self._create_with_tags(machine_spec, {DISKS: msgspec.json.encode(disks).decode()})

    async def receive(self, machine_spec: MachineSpec, disks: Sequence[QemuDisk]) -> Outcome:
        """Create a machine with the disks of a machine on another host, that waits for that machine's memory."""
        return await self._create_with_tags(machine_spec, {DISKS: msgspec.json.encode(disks).decode(), INCOMING: "yes"})

    async def _create_with_tags(self, machine_spec: MachineSpec, tags: dict[str, str]) -> Outcome:
        (outcome,) = await self.create([replace(machine_spec, tags={**machine_spec.tags, **tags})])
        return outcome

    async def use_monitor(self, key: str, commands: Callable[[Monitor], Awaitable[T]]) -> T:
        """Run commands on the monitor of a machine; raises a `MonitorError`."""
        async with open_monitor(self.folder_of(key), self._meter) as monitor:
            return await commands(monitor)

    async def attach(self, key: str, disk: QemuDisk) -> None:
        """Attach a disk to a running machine."""
        await self.use_monitor(key, lambda monitor: devices.attach(monitor, disk))

    async def detach(self, key: str, disk: QemuDisk) -> None:
        """Detach a disk from a running machine."""
        await self.use_monitor(key, lambda monitor: devices.detach(monitor, disk))

    async def slots(self, key: str) -> set[int]:
        """Return the slots of a running machine that have a disk."""
        return await self.use_monitor(key, devices.slots)

    async def press_power_button(self, key: str) -> None:
        """Press a machine's power button. It is recorded first: the guest may react after the caller has died."""

        async def press(record: MachineRecord) -> Outcome:
            recorded = replace(record, more={**record.more, POWER_BUTTON: str(time.time())})
            await self._in_thread(self._supervisor.machine_dir.write, recorded)
            await self.use_monitor(key, lambda monitor: monitor.execute("system_powerdown"))
            return CallAccepted(key)

        await self._change(key, press)

    async def may_still_power_off(self, key: str) -> bool:
        """Tell whether a machine's power button was pressed so recently that the guest may still power off."""
        record = await self._in_thread(self._supervisor.machine_dir.read, key)
        return record is not None and time.time() < float(record.more.get(POWER_BUTTON, "0")) + POWER_OFF_TIMEOUT_S

    async def running_machines(self) -> tuple[frozenset[str], bool]:
        """Return the machines that have a process here, and whether all could be inspected; uses no monitor."""
        scan = await self._scan()
        return frozenset(
            machine.record.key for machine in scan.machines if machine.process is not None
        ), not scan.problems
