"""Claims of user numbers for programs on this host, if the server is root.

A user is a number of a range that no account has. Several servers may run on one host, so a number is claimed for the
whole host, by a symbolic link below `/run` to its owner, the program's folder. A link is created and read atomically,
is void if the folder is gone, and disappears with all processes at a reboot. Claims are changed under the lock of their
folder; otherwise two servers could take over a void claim at once.

Two owners never have the same number at a time: a number is released only after all its processes were killed.
"""

import fcntl
import os
import pwd
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from zlib import crc32

from stateward.drivers.confinement import syscalls
from stateward.errors import BadInput

CLAIMS = Path("/run/stateward/uids")
SCAN_INTERVAL_S = 5.0
SUBORDINATE = (Path("/etc/subuid"), Path("/etc/subgid"))


def uid_range(text: str) -> range:
    """Read a range of user numbers such as `70000-79999`."""
    first, dash, last = text.partition("-")
    if not dash or not first.strip().isdecimal() or not last.strip().isdecimal():
        raise BadInput("machine_uids", text, "two numbers with a - between them, such as 70000-79999")
    uids = range(int(first), int(last) + 1)
    if not uids or uids[0] < 1000 or uids[-1] >= 2**31:
        raise BadInput("machine_uids", text, f"a range from 1000 to {2**31 - 1}, the lower number first")
    return uids


class UidClaims:
    """Claims user numbers for owners on this host."""

    def __init__(self, numbers: range, claims: Path = CLAIMS) -> None:
        self._numbers, self._claims = numbers, claims
        self._running: set[int] = set()
        self._scanned = -SCAN_INTERVAL_S

    def claim(self, owner: Path) -> int:
        """Return the number of an owner; an owner without one gets a free one."""
        self._claims.mkdir(mode=0o700, exist_ok=True)
        with self._lock():
            for uid in self._candidates(owner):
                file = self._claims / str(uid)
                if _linked(file) == str(owner):
                    return uid
                self._reclaim_if_orphaned(uid)
                if self._is_taken(uid):
                    continue
                with suppress(FileExistsError):
                    file.symlink_to(owner)
                    return uid
        span = f"{self._numbers[0]}-{self._numbers[-1]}"
        raise OSError(f"no user number of {span} is free (setting machine_uids)")

    def kill_all_of(self, uid: int, owner: Path) -> None:
        """Kill every process that runs as an owner's number."""
        if _linked(self._claims / str(uid)) == str(owner):
            _kill_all_as(uid)

    def release(self, uid: int, owner: Path) -> None:
        """Kill every process that runs as an owner's number, and release the number; raises OSError on a failure."""
        if _linked(self._claims / str(uid)) == str(owner):
            with self._lock():
                self._release(uid, str(owner))

    def _release(self, uid: int, owner: str) -> None:
        if _linked(self._claims / str(uid)) == owner:
            _kill_all_as(uid)
            (self._claims / str(uid)).unlink(missing_ok=True)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Lock the claims of the host against other threads and processes."""
        with syscalls.open_handle(self._claims, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def _candidates(self, owner: Path) -> Iterator[int]:
        """Yield all numbers, from one that depends on the owner: so an owner finds its own number first."""
        begin, size = crc32(os.fsencode(owner)) % len(self._numbers), len(self._numbers)
        return (self._numbers[(begin + step) % size] for step in range(size))

    def _is_taken(self, uid: int) -> bool:
        """Tell whether an account, the subordinate range of an account, or a process has a number."""
        if time.monotonic() > self._scanned + SCAN_INTERVAL_S:  # a scan of /proc for each start would be slow
            self._running, self._scanned = _running(), time.monotonic()
        with suppress(KeyError):
            pwd.getpwuid(uid)
            return True
        return uid in self._running or any(uid in uids for uids in _subordinate())

    def _reclaim_if_orphaned(self, uid: int) -> None:
        """Release a claim whose owner is gone."""
        owner = _linked(self._claims / str(uid))
        if owner is not None and not os.path.lexists(owner):
            self._release(uid, owner)


def _kill_all_as(uid: int) -> None:
    """Kill all processes of a user: a thread becomes the user, and signals every process that it may signal."""

    def kill() -> None:
        syscalls.become(uid)
        with suppress(ProcessLookupError, PermissionError):
            os.kill(-1, signal.SIGKILL)

    syscalls.run_in_new_thread(kill, f"as user {uid}")


def _running() -> set[int]:
    """Return the user numbers of all processes of this host."""
    uids: set[int] = set()
    with os.scandir("/proc") as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.name.isdecimal():
                    uids.add(entry.stat().st_uid)
    return uids


def _subordinate() -> Iterator[range]:
    for file in SUBORDINATE:
        with suppress(OSError, ValueError):
            for line in file.read_text().splitlines():
                _, first, count = line.split(":")
                yield range(int(first), int(first) + int(count))


def _linked(file: Path) -> str | None:
    try:
        return os.readlink(file)  # noqa: PTH115 - text
    except OSError:
        return None
