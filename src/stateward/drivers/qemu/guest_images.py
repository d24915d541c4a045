"""The images of guests that one can log in to: what the option `images` of a connection names.

`NAME=PATH` names a folder with a kernel and a first root file system (`vmlinuz` and `initrd.img`; `cmdline` if it needs
more arguments), or the file of a disk that the machine's firmware boots (`.qcow2`, else raw). The image must have an
SSH server and read a NoCloud seed, as cloud images do.

Such a machine has a network in user mode: one port of this host leads to its SSH server, and nothing leads out. The
guest can reach neither this host nor anything beyond.
"""

from pathlib import Path
from shutil import which
from subprocess import run

from msgspec import Struct

from stateward.drivers.process.machine_dir import MachineRecord
from stateward.errors import BadInput
from stateward.workloads.host_ports import LOOPBACK

KERNEL, INITRD, COMMAND_LINE = "vmlinuz", "initrd.img", "cmdline"
SEED, DISK = "seed.iso", "disk.qcow2"
TOOL_TIMEOUT_S = 60.0
TRANSLATION_CACHE_MIB = 256
"""A smaller one makes a boot in software up to three times slower; a larger one is held in memory."""


class GuestBoard(Struct, frozen=True):
    """What such a guest needs on one architecture."""

    machine: str
    processor: str
    console: str
    firmware: str = ""  # for disks, if the board has none of its own
    firmware_package: str = ""


GUEST_BOARDS = {
    "x86_64": GuestBoard("q35,usb=off,vmport=off", "qemu64", "console=ttyS0 tsc=reliable no_timer_check"),
    "aarch64": GuestBoard(
        "virt,gic-version=3",
        "cortex-a57",
        "console=ttyAMA0",
        "/usr/share/qemu-efi-aarch64/QEMU_EFI.fd",
        "qemu-efi-aarch64",
    ),
}
LEAST_MIB = 256


class GuestImage(Struct, frozen=True):
    """An image that one can log in to."""

    name: str
    path: Path

    def problem(self, arch: str) -> str:
        """Return why no machine of this image can be created here; empty if one can."""
        if self.path.is_dir():
            missing = [name for name in (KERNEL, INITRD) if not (self.path / name).is_file()]
            return f"the image {self.name} has no {missing[0]}" if missing else ""
        if not self.path.is_file():
            return f"the image {self.name} is not there: its path must be a folder or a file"
        if why := firmware_problem(arch):
            return why
        return "" if which("qemu-img") else "qemu-img is not installed (Debian has it in qemu-utils)"

    def prepare(self, folder: Path) -> None:
        """Create the machine's own disk on top of the image's, unless it is there."""
        disk = folder / DISK
        if self.path.is_dir() or disk.exists():
            return
        form = "qcow2" if self.path.suffix == ".qcow2" else "raw"
        new = disk.with_suffix(".new")
        words = (which("qemu-img") or "qemu-img", "create", "-q", "-f", "qcow2", "-b", self.path, "-F", form, new)
        done = run(words, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)  # noqa: S603 - ours
        if done.returncode:
            raise OSError(f"{disk.name}: {done.stderr.strip()}")
        new.replace(disk)

    def boot_arguments(self, arch: str) -> list[str]:
        """Return the arguments that boot it."""
        board = GUEST_BOARDS[arch]
        if not self.path.is_dir():
            firmware = ["-bios", board.firmware] if board.firmware else []
            return [*firmware, *_drive("disk", DISK, "qcow2", ",bootindex=1")]
        more = self.path / COMMAND_LINE
        words = f"{board.console} quiet panic=-1 {more.read_text().strip() if more.is_file() else ''}".strip()
        return ["-kernel", str(self.path / KERNEL), "-initrd", str(self.path / INITRD), "-append", words]


def firmware_problem(arch: str) -> str:
    """Return why no disk can be booted here; empty if one can."""
    board = GUEST_BOARDS[arch]
    if not board.firmware or Path(board.firmware).is_file():
        return ""
    return f"disks do not boot without {board.firmware} (Debian has it in {board.firmware_package})"


def guest_images(text: str) -> dict[str, GuestImage]:
    """Read the option `images`: `NAME=PATH`, separated by commas."""
    images: dict[str, GuestImage] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, equals, path = entry.partition("=")
        if not name or not equals or not Path(path).is_absolute():
            raise BadInput("images", entry, "NAME=PATH, separated by commas, each with an absolute path")
        images[name] = GuestImage(name, Path(path))
    return images


def network_arguments(record: MachineRecord) -> list[str]:
    """Return the network of a machine: its SSH port, and nothing else."""
    forward = f"hostfwd=tcp:{LOOPBACK}:{record.ssh_port}-:22"
    return [
        *("-netdev", f"user,id=net0,restrict=on,{forward}", "-device", "virtio-net-pci,netdev=net0,romfile="),
        *("-device", "virtio-rng-pci"),
        *_drive("seed", SEED, "raw", "", ",read-only=on"),
    ]


def _drive(name: str, file: str, form: str, device: str, node: str = "") -> list[str]:
    blockdev = f"driver={form},node-name={name},file.driver=file,file.filename={file}{node}"
    return ["-blockdev", blockdev, "-device", f"virtio-blk-pci,drive={name}{device}"]
