"""A small Linux guest with an SSH server, built from Debian's packages: nothing is installed, and no image downloaded.

The packages are downloaded by an apt-get with a state of its own, and unpacked into a folder. Busybox is the system,
dropbear the SSH server. The guest reads its seed as cloud-init does: user, keys and host key from the volume `cidata`.
"""

import fcntl
import gzip
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
PACKAGES = ("busybox-static", "dropbear-bin", "openssh-sftp-server", "libc6", "libtomcrypt1", "libtommath1",
            "libgmp10", "libcrypt1", "zlib1g")  # fmt: skip
MODULES = ("virtio_pci", "virtio_net", "virtio_blk", "virtio_rng", "isofs")
APPLETS = ("sh", "mount", "umount", "insmod", "ip", "udhcpc", "sed", "cat", "echo", "printf", "mkdir", "chmod", "cut",
           "hostname", "id", "sleep", "poweroff", "init", "grep", "tr")  # fmt: skip
FILES = ("bin/busybox", "usr/sbin/dropbear", "usr/bin/dropbearkey", "usr/lib/dropbear/dropbearconvert",
         "usr/lib/openssh/sftp-server")  # fmt: skip

START = r"""#!/bin/sh
export PATH=/bin:/usr/bin:/usr/sbin
mount -t devtmpfs dev /dev; mkdir -p /dev/pts /proc /sys /seed /home /run /tmp
mount -t devpts pts /dev/pts; mount -t proc proc /proc; mount -t sysfs sys /sys
while read -r name; do insmod /lib/modules/$name.ko; done </etc/modules
for disk in /dev/vd?; do mount -t iso9660 -o ro $disk /seed 2>/dev/null && [ -f /seed/user-data ] && break; done
data=$(sed -n 2p /seed/user-data)
user=$(echo "$data" | sed 's/.*"users":\[{"name":"\([^"]*\)".*/\1/')
mkdir -p /home/$user/.ssh; chmod 700 /home/$user /home/$user/.ssh
keys=$(echo "$data" | sed 's/.*"ssh_authorized_keys":\[\([^]]*\)\].*/\1/' | tr -d '"' | tr , '\n')
echo "$keys" >/home/$user/.ssh/authorized_keys
echo "$user:x:0:0::/home/$user:/bin/sh" >/etc/passwd; echo "root:x:0:" >/etc/group; echo /bin/sh >/etc/shells
printf '%b' "$(echo "$data" | sed 's/.*"ed25519_private":"\([^"]*\)".*/\1/')" >/run/host_key
dropbearconvert openssh dropbear /run/host_key /etc/dropbear_key
hostname "$(sed 's/.*"local-hostname":"\([^"]*\)".*/\1/' /seed/meta-data)"
ip link set lo up; ip link set eth0 up; udhcpc -i eth0 -n -q -t 10 -T 1 -s /etc/lease
dropbear -s -r /etc/dropbear_key
echo "guest is ready" >/dev/console
"""
LEASE = '#!/bin/sh\n[ "$1" = bound ] && ip addr add $ip/$mask dev $interface\nexit 0\n'
WRITTEN = {
    "etc/start": (START, 0o755),
    "etc/lease": (LEASE, 0o755),
    "etc/inittab": ("::sysinit:/etc/start\n::shutdown:/bin/sync\n", 0o644),
}
LOCK = "lock"


def built_guest(folder: Path) -> Path:
    """Return the guest's kernel and first root file system, in a folder; it is built once for each environment."""
    kept = Path(sys.prefix) / "linux-guest" / sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    kept.parent.mkdir(exist_ok=True)
    with (kept.parent / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the processes of a run would build it at the same time
        if not kept.exists():
            new = kept.with_name(f"{kept.name}.new")
            shutil.rmtree(new, ignore_errors=True)  # of a process that was killed
            build_guest(folder, new)
            new.rename(kept)
    return kept


def build_guest(folder: Path, image: Path) -> None:
    """Build the guest; skips the test if Debian's packages cannot be had."""
    root = _unpack(folder)
    image.mkdir()
    kernel = next((root / "boot").glob("vmlinuz-*"))
    (image / "vmlinuz").write_bytes(kernel.read_bytes())
    with gzip.GzipFile(image / "initrd.img", "wb", compresslevel=1, mtime=0) as file:
        for entry in _archive(root):
            file.write(entry)


def _unpack(folder: Path) -> Path:
    arch, packages, root = ARCHITECTURES[platform.machine()], folder / "packages", folder / "root"
    packages.mkdir(parents=True)
    try:
        _apt_get(folder, arch, "update")
        plan = _apt_get(folder, arch, "-s", "install", "--no-install-recommends", f"linux-image-cloud-{arch}")
        kernel = re.findall(r"^Inst (linux-image-\d\S+)", plan, re.MULTILINE)
        _apt_get(folder, arch, "download", kernel[0], *PACKAGES)
    except (OSError, IndexError, subprocess.SubprocessError) as error:
        pytest.skip(f"Debian's packages for the guest cannot be had: {error}")
    for package in packages.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    return root


def _apt_get(folder: Path, arch: str, *words: str) -> str:
    """Run apt-get with a state of its own: the host's packages and lists stay as they are."""
    state, cache = folder / "state", folder / "cache"
    for path in (state / "lists/partial", cache / "archives/partial"):
        path.mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    options = {
        "APT::Architecture": arch,
        "APT::Architectures": arch,
        "Dir::State": state,
        "Dir::State::status": state / "status",
        "Dir::Cache": cache,
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    given = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    command = ["apt-get", "-qq", *given, *words]
    return subprocess.run(
        command, cwd=folder / "packages", check=True, text=True, capture_output=True, timeout=240
    ).stdout


# --- the archive -----------------------------------------------------------------------------------------------------


def _archive(root: Path) -> Iterator[bytes]:
    """Yield the entries of the first root file system, in the kernel's format `newc`."""
    files = dict(_modules(root)) | {name: _read(root, name) for name in (*FILES, *_libraries(root))}
    names = list(files)
    files["etc/modules"] = "".join(f"{Path(one).stem}\n" for one in names if one.endswith(".ko")).encode()
    folders = {
        str(parent) for name in (*files, *WRITTEN, "dev/x") for parent in Path(name).parents if str(parent) != "."
    }
    for name in sorted(folders, key=len):
        yield _entry(name, stat.S_IFDIR | 0o755)
    for name, data in files.items():
        yield _entry(name, stat.S_IFREG | 0o755, data)
    for name, (text, mode) in WRITTEN.items():
        yield _entry(name, stat.S_IFREG | mode, text.encode())
    for name in APPLETS:
        yield _entry(f"bin/{name}", stat.S_IFLNK | 0o777, b"busybox")
    yield _entry("init", stat.S_IFLNK | 0o777, b"bin/busybox")
    yield _entry("usr/bin/dropbearconvert", stat.S_IFLNK | 0o777, b"/usr/lib/dropbear/dropbearconvert")
    yield _entry("usr/lib/sftp-server", stat.S_IFLNK | 0o777, b"openssh/sftp-server")
    yield _entry("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    yield _entry("TRAILER!!!", 0)


def _entry(name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)) -> bytes:
    path = name.encode() + b"\0"
    numbers = (0, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(path), 0)
    head = b"070701" + b"".join(b"%08X" % number for number in numbers) + path
    return _aligned(head) + _aligned(data)


def _aligned(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _modules(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the kernel's modules, each after those that it needs."""
    files = {one.stem.replace("-", "_"): one for one in root.glob("lib/modules/**/*.ko")}
    done: set[str] = set()

    def load(name: str) -> Iterator[tuple[str, bytes]]:
        if name in done or name not in files:  # the others are part of the kernel
            return
        done.add(name)
        data = files[name].read_bytes()
        for other in re.findall(rb"\0depends=([^\0]*)\0", b"\0" + data)[0].decode().split(","):
            yield from load(other.replace("-", "_"))
        yield f"lib/modules/{name}.ko", data

    for name in MODULES:
        yield from load(name)


def _libraries(root: Path) -> list[str]:
    """Return the shared libraries and their loader, by the names that programs ask for."""
    found = [one for pattern in ("lib/*/*.so*", "usr/lib/*/*.so*", "lib*/ld-linux*") for one in root.glob(pattern)]
    wanted = re.compile(r"lib(c|m|crypt|z|gmp|tomcrypt|tommath|nss_files|dl|pthread|util|resolv)\.so\.\d+$|ld-linux.*")
    return [str(one.relative_to(root)) for one in found if wanted.match(one.name)]


def _read(root: Path, name: str) -> bytes:
    """Read a file of the unpacked packages; a link in them may have an absolute target."""
    path = root / name
    for _ in range(5):
        if not path.is_symlink():
            break
        target = os.readlink(path)  # noqa: PTH115 - text
        path = root / target.lstrip("/") if target.startswith("/") else path.parent / target
    return path.read_bytes()
