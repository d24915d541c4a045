"""Hosts whose machines have disks and can move to another host while they run."""

import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from stateward.drivers.port import CallAccepted, MachineRef, MachineSpec, Meter, Outcome, ProviderRegion
from stateward.drivers.process.machine_dir import MachineRecord
from stateward.drivers.process.shell_machine import MachineSize
from stateward.drivers.process.supervisor import Milestone, ignore_milestone
from stateward.drivers.qemu import disks as devices
from stateward.drivers.qemu.disks import Disk
from stateward.drivers.qemu.driver import QemuDriver
from stateward.drivers.qemu.hardware import Hardware
from stateward.drivers.qemu.monitor import Monitor, talk

DISKS, INCOMING = "disks", "incoming"
"""The tags by which a machine's record tells its disks, and that it comes from another host."""

PRESSED = "power button pressed"
"""What the record keeps the time under at which the power button was last pressed."""
OBEYS = 60.0
"""How many seconds after a press a guest may still switch itself off."""

T = TypeVar("T")


class DiskedHardware(Hardware):
    """Machines with the disks that their records tell of."""

    def _arguments(self, record: MachineRecord, size: MachineSize) -> list[str]:
        disks = msgspec.json.decode(record.tags.get(DISKS, "[]"), type=list[Disk])
        comes = ("-incoming", "defer") if INCOMING in record.tags else ()
        return [*super()._arguments(record, size), *devices.arguments(disks), *comes]


class QemuHost(QemuDriver):
    """QEMU machines with disks on this host."""

    def __init__(
        self, place: ProviderRegion, meter: Meter = ignore_milestone, milestone: Milestone = ignore_milestone
    ) -> None:
        super().__init__(place, meter, milestone, DiskedHardware(place))
        self.bandwidth = int(place.options.get("bandwidth", 0))
        """How many bytes a second a machine that leaves may use; 0: as many as it can."""

    async def boot(self, want: MachineSpec, disks: Sequence[Disk]) -> Outcome:
        """Make a machine with disks."""
        return await self._make(want, {DISKS: msgspec.json.encode(disks).decode()})

    async def receive(self, want: MachineSpec, disks: Sequence[Disk]) -> Outcome:
        """Make a machine that waits for the memory of another one, on another host, with the same disks."""
        return await self._make(want, {DISKS: msgspec.json.encode(disks).decode(), INCOMING: "yes"})

    async def _make(self, want: MachineSpec, tags: dict[str, str]) -> Outcome:
        (outcome,) = await self.create([replace(want, tags={**want.tags, **tags})])
        return outcome

    async def tell(self, key: str, words: Callable[[Monitor], Awaitable[T]]) -> T:
        """Have a conversation with a machine; raises a `MonitorError`."""
        async with talk(self._machine(key), self._reception.meter) as monitor:
            return await words(monitor)

    async def attach(self, key: str, disk: Disk) -> None:
        """Give a disk to a running machine."""
        await self.tell(key, lambda monitor: devices.attach(monitor, disk))

    async def detach(self, key: str, disk: Disk) -> None:
        """Take a disk from a running machine."""
        await self.tell(key, lambda monitor: devices.detach(monitor, disk))

    async def slots(self, key: str) -> set[int]:
        """Return the slots of a running machine that have a disk."""
        return await self.tell(key, devices.slots)

    async def press(self, key: str) -> None:
        """Press a machine's power button. The record says so first: the guest may obey after the caller has gone."""

        async def press(_: MachineRef, record: MachineRecord) -> Outcome:
            noted = replace(record, more={**record.more, PRESSED: str(time.time())})
            await self._reception.in_thread(self._lodging.machine_dir.write, noted)
            await self.tell(key, lambda monitor: monitor.ask("system_powerdown"))
            return CallAccepted(key)

        await self._reception.act([MachineRef(key)], press)

    async def may_obey(self, key: str) -> bool:
        """Tell whether a machine's power button was pressed so recently that its guest may still obey."""
        record = await self._reception.in_thread(self._lodging.machine_dir.read, key)
        return record is not None and time.time() < float(record.more.get(PRESSED, "0")) + OBEYS

    async def alive(self) -> tuple[frozenset[str], bool]:
        """Return the machines that have a process here, and whether all could be looked at; no monitor is asked."""
        look = await self._look()
        return frozenset(one.record.key for one in look.machines if one.is_alive), not look.problems

    def folder_of(self, key: str) -> Path:
        """Return where a machine's files are."""
        return self._machine(key)
