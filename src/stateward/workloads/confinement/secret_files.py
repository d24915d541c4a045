"""Files with secrets for a confined program, in memory and not on a disk.

A program with a mount namespace of its own gets a file system of its own: nobody else can reach its files, and they
are gone with its last process. Otherwise the files are in a folder below /dev/shm that only the server's user can read,
and that Landlock opens for this one program. A host without /dev/shm has them in the folder of the program.
"""

import os
import shutil
import stat
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from stateward.workloads.confinement import syscalls

MEMORY = Path("/dev/shm")  # noqa: S108 - in a folder that is checked to be ours


def host_dir(folder: Path) -> Path:
    """Return the folder of the secret files of a program that has no mount namespace of its own."""
    base = MEMORY / f"stateward-{os.geteuid()}"
    try:
        base.mkdir(mode=0o700, exist_ok=True)
        status = base.lstat()
    except OSError:
        return folder / "secrets"
    is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
    return base / blake2b(os.fsencode(folder), digest_size=16).hexdigest() if is_ours else folder / "secrets"


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Replace the secret files of a program; a reader finds the former content of a file, or the new one."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in set(os.listdir(folder)) - files.keys():  # noqa: PTH208 - names, not paths
        (folder / name).unlink(missing_ok=True)
    for name, text in files.items():
        _write(folder / name, text)


def mount_files(target: Path, files: Mapping[str, str], uid: int) -> None:
    """Mount a file system in memory, in this thread's mount namespace, with files that only a user can read."""
    room_kib = 64 + sum(len(text.encode()) // 1024 + 8 for text in files.values())
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("none", str(target), "tmpfs", flags, f"mode=500,uid={uid},gid={uid},size={room_kib}k")
    for name, text in files.items():
        _write(target / name, text, uid)


def remove_files(folder: Path) -> None:
    """Remove the secret files of a program that has ended."""
    shutil.rmtree(host_dir(folder), ignore_errors=True)


def _write(file: Path, text: str, uid: int | None = None) -> None:
    new = file.with_name(f".{file.name}.new")
    with suppress(FileNotFoundError):
        new.unlink()
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o400), "wb") as stream:
        stream.write(text.encode())
        if uid is not None:
            os.fchown(stream.fileno(), uid, uid)
    new.replace(file)
