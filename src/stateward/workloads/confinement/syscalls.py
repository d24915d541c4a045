"""System calls that Python does not offer, or that must change one thread and not the whole process.

The C library changes the user, the group and the groups of all threads at once. The kernel keeps them per thread, like
capabilities, the mount namespace, seccomp filters and Landlock domains. A process that is started by a changed thread
inherits them; the other threads stay unchanged.
"""

import ctypes
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long

CLONE_FS, CLONE_NEWNS, CLONE_NEWIPC = 0x200, 0x20000, 0x8000000
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_BIND, MS_REC, MS_SLAVE = 4096, 16384, 1 << 19
PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 4, 24, 38
CAP_SETPCAP, CAP_SYS_ADMIN = 8, 21
CAPABILITY_VERSION_3 = 0x20080522

NUMBERS = {
    #                     x86_64  aarch64
    "capset":             (126,    91),
    "io_uring_setup":     (425,    425),
    "ioprio_set":         (251,    30),
    "mq_open":            (240,    180),
    "mq_unlink":          (241,    181),
    "msgctl":             (71,     187),
    "msgget":             (68,     186),
    "msgrcv":             (70,     188),
    "msgsnd":             (69,     189),
    "prlimit64":          (302,    261),
    "sched_setaffinity":  (203,    122),
    "sched_setattr":      (314,    274),
    "sched_setparam":     (142,    118),
    "sched_setscheduler": (144,    119),
    "seccomp":            (317,    277),
    "semctl":             (66,     191),
    "semget":             (64,     190),
    "semop":              (65,     193),
    "semtimedop":         (220,    192),
    "setgroups":          (116,    159),
    "setpriority":        (141,    140),
    "setresgid":          (119,    149),
    "setresuid":          (117,    147),
    "setrlimit":          (160,    164),
    "shmat":              (30,     196),
    "shmctl":             (31,     195),
    "shmget":             (29,     194),
    "socket":             (41,     198),
    "socketpair":         (53,     199),
    "truncate":           (76,     45),
}  # fmt: skip
"""The numbers of system calls on each of the architectures."""
ARCHITECTURES = ("x86_64", "aarch64")
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
"""The numbers of newer system calls, which are the same on all architectures."""


def number_of(name: str) -> int:
    """Return the number of a system call on this machine's architecture."""
    if platform.machine() not in ARCHITECTURES:
        raise OSError(f"programs cannot be confined on {platform.machine()}: it must be x86_64 or aarch64")
    return NUMBERS[name][ARCHITECTURES.index(platform.machine())]


def call(number: int, *arguments: Any, doing: str) -> int:  # noqa: ANN401 - whatever ctypes takes
    """Make a system call of this thread."""
    return _checked(LIBC.syscall(ctypes.c_long(number), *arguments), doing)


def unshare(flags: int) -> None:
    """Give this thread namespaces of its own."""
    _checked(LIBC.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Mount something in this thread's mount namespace."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    given = None if data is None else data.encode()
    _checked(LIBC.mount(*encoded, ctypes.c_ulong(flags), given), f"mount {target}")


def prctl(option: int, argument: int) -> int:
    """Set or read a property of this thread."""
    zero = ctypes.c_ulong(0)
    return _checked(LIBC.prctl(option, ctypes.c_ulong(argument), zero, zero, zero), f"prctl {option}")


def become(uid: int) -> None:
    """Change this thread to a user and the group with the same number, without further groups."""
    call(number_of("setgroups"), 0, None, doing="setgroups")
    call(number_of("setresgid"), uid, uid, uid, doing="setresgid")
    call(number_of("setresuid"), uid, uid, uid, doing="setresuid")


def drop_bounding_set() -> None:
    """Prevent processes of this thread from ever getting a capability; without CAP_SETPCAP there is nothing to drop."""
    if has_capability(CAP_SETPCAP):
        for capability in range(last_capability() + 1):
            prctl(PR_CAPBSET_DROP, capability)


@cache
def last_capability() -> int:
    """Return the highest number of a capability that the kernel knows."""
    return int(Path("/proc/sys/kernel/cap_last_cap").read_text())


def clear_capabilities() -> None:
    """Drop all capabilities of this thread."""
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    call(number_of("capset"), header, (ctypes.c_uint32 * 6)(), doing="capset")


def has_capability(number: int) -> bool:
    """Tell whether this thread has a capability in effect."""
    with open("/proc/thread-self/status") as status:  # noqa: PTH123 - read for every process that is started
        effective = next((line.split()[1] for line in status if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> number & 1)


def _checked(result: int, doing: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{doing}: {os.strerror(number)}")
    return result


@contextmanager
def open_handle(path: Path | str, flags: int, mode: int = 0o777, parent: int | None = None) -> Iterator[int]:
    """Open a file or folder, below the folder of another handle if there is one, and close it at the end."""
    handle = os.open(path, flags, mode, dir_fd=parent)
    try:
        yield handle
    finally:
        os.close(handle)


def run_in_new_thread(function: Callable[[], T], name: str) -> T:
    """Call a function in a thread of its own, which may change itself; return or raise what the function does."""
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(function())
        except BaseException as error:
            failed.append(error)

    thread = Thread(target=run, name=name)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]
