"""The hardware of QEMU machines: the command line that boots our guest, for each architecture.

A machine has no more devices than the guest needs, so that it starts quickly and takes little memory.
"""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from shutil import which
from typing import ClassVar

from msgspec import Struct

from stateward.drivers.port import ProviderRegion
from stateward.drivers.process.machine_dir import MachineRecord
from stateward.drivers.process.shell_machine import MachineSize, size_of
from stateward.drivers.qemu.guest import GUESTS
from stateward.drivers.qemu.guest_images import (
    GUEST_BOARDS,
    LEAST_MIB,
    TRANSLATION_CACHE_MIB,
    guest_images,
    network_arguments,
)
from stateward.drivers.qemu.monitor import COMMANDS, EVENTS
from stateward.errors import BadInput
from stateward.workloads.confinement import PATH, Sandbox

OWN_GUEST, FROM_DISK = "tick", "disk"
"""The images of a machine that boots our guest, and of one that boots what is on its first disk."""

CONSOLE = "console"
GUEST = "guest"
HOST_ARCH = platform.machine()
MAX_PROCESSORS = 8
IN_ITS_FOLDER = 'cd "$0" && exec "$@"'


class Accel(StrEnum):
    """What executes the guest's instructions.

    Software is the default, because our guest needs little speed. Under nested virtualization the kernel is slower:
    the hypervisor emulates each instruction of the real mode (measured: a boot takes 5 s instead of 0.14 s).
    """

    SOFTWARE = "tcg"
    KERNEL = "kvm"
    BEST = "auto"


class Board(Struct, frozen=True):
    """The program, devices and options of one architecture."""

    program: str
    package: str
    machine: str
    processor: Mapping[str, str]
    boot: Sequence[str]
    least_mib: int


BOARDS = {
    "x86_64": Board(
        program="qemu-system-x86_64",
        package="qemu-system-x86",
        machine="pc,usb=off,hpet=off,vmport=off",
        processor={"tcg": "qemu64", "kvm": "host"},
        boot=("-vga", "none", "-drive", f"file={GUEST},format=raw,if=floppy,readonly=on"),
        least_mib=2,
    ),
    "aarch64": Board(
        program="qemu-system-aarch64",
        package="qemu-system-arm",
        machine="virt,gic-version=2",
        processor={"tcg": "cortex-a53", "kvm": "host"},
        boot=("-kernel", GUEST),
        least_mib=4,
    ),
}


class Hardware:
    """The kinds of machine that a region offers: our own guest, and the images of the option `images`.

    The options `arch` and `accel` choose another architecture or accelerator. QEMU itself is found in the server's
    PATH: it runs unconfined, so nothing that is stored names it.
    """

    built_in_images: ClassVar[tuple[str, ...]] = (OWN_GUEST,)

    def __init__(self, provider_region: ProviderRegion, program: str | None = None) -> None:
        self.arch = provider_region.options.get("arch", HOST_ARCH)
        if self.arch not in BOARDS:
            raise BadInput("arch", self.arch, f"one of {', '.join(BOARDS)}")
        self.board = BOARDS[self.arch]
        self.program = which(program or self.board.program)
        self.images = guest_images(provider_region.options.get("images", ""))
        self._accel = _accel(provider_region.options.get("accel", Accel.SOFTWARE), self.arch)

    def mark(self, record: MachineRecord) -> str:
        """Return the argument that identifies its process."""
        return record.native_id

    def command(self, record: MachineRecord, box: Sandbox) -> Sequence[str]:
        """Return the command to start; its file names are relative to the machine's folder."""
        size = size_of(record.spec) or MachineSize(1, self.board.least_mib)
        return ["/bin/sh", "-c", IN_ITS_FOLDER, str(box.folder), str(self.program), *self._arguments(record, size)]

    def _arguments(self, record: MachineRecord, size: MachineSize) -> list[str]:
        return [
            *("-nodefaults", "-no-user-config", "-display", "none"),
            *("-name", f"guest={record.name.replace(',', ',,')}", "-uuid", record.native_id),
            *("-smp", str(size.processors)),
            *("-rtc", "clock=vm"),  # the clock of a suspended machine stands still
            *("-qmp", f"unix:{COMMANDS},server=on,wait=off", "-qmp", f"unix:{EVENTS},server=on,wait=off"),
            *("-chardev", f"file,id=console,path={CONSOLE},append=on", "-serial", "chardev:console"),
            *self._guest(record, size),
        ]

    def _guest(self, record: MachineRecord, size: MachineSize) -> list[str]:
        if record.image in self.images:
            boot = [*self.images[record.image].boot_arguments(self.arch), *network_arguments(record)]
            return [*self._large_board(size), *boot]
        firmware = GUEST_BOARDS[self.arch].firmware
        if record.image == FROM_DISK and firmware:  # other boards have firmware, and their disk comes first
            return [*self._large_board(size), "-bios", firmware]
        return self._own_guest(size)

    def _own_guest(self, size: MachineSize) -> list[str]:
        """Return the arguments for our own guest, which needs little of everything."""
        accel = "tcg,tb-size=1" if self._accel == Accel.SOFTWARE else self._accel
        return [
            *("-machine", self.board.machine, "-accel", accel, "-cpu", self.board.processor[self._accel]),
            *("-m", f"{max(size.mib, self.board.least_mib)}M", *self.board.boot),
        ]

    def _large_board(self, size: MachineSize) -> list[str]:
        """Return the arguments for a guest that is a whole operating system."""
        is_software = self._accel == Accel.SOFTWARE
        accel = f"tcg,tb-size={TRANSLATION_CACHE_MIB}" if is_software else self._accel
        board = GUEST_BOARDS[self.arch]
        processor = board.processor if is_software else self.board.processor[self._accel]
        return [
            *("-machine", board.machine, "-accel", accel, "-cpu", processor),
            *("-m", f"{max(size.mib, LEAST_MIB)}M"),
        ]

    def environment(self, record: MachineRecord, box: Sandbox) -> Mapping[str, str]:
        """Return the environment of the command, without any variable of ours."""
        return {"PATH": PATH, "HOME": str(box.folder), "STATEWARD_KEY": record.key}

    def prepare(self, folder: Path) -> Sandbox:
        """Write the boot image of our guest, and return a sandbox without a user of its own."""
        (folder / GUEST).write_bytes(GUESTS[self.arch])
        return Sandbox(folder)

    def start(self, box: Sandbox, start: Callable[[], int]) -> int:  # noqa: ARG002 - other kinds need it
        """Start it unconfined: QEMU is our program, and a tenant's programs run inside the guest."""
        return start()

    def end(self, record: MachineRecord, folder: Path) -> None:
        """Do nothing: a guest starts no processes on this host."""


def _accel(word: str, arch: str) -> Accel:
    try:
        accel = Accel(word)
    except ValueError:
        raise BadInput("accel", word, f"one of {', '.join(Accel)}") from None
    if accel is not Accel.BEST:
        return accel
    usable = arch == HOST_ARCH and os.access("/dev/kvm", os.R_OK | os.W_OK)
    return Accel.KERNEL if usable else Accel.SOFTWARE
