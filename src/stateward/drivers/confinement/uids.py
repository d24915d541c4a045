"""Users of their own for programs on this host, where we are root.

A user is a number of a range that no account has. Several servers may run on one host, so a number is claimed for the
whole host, by a symbolic link below `/run` that names its owner: a folder. A claim is made and read in one step, is
void when its owner is gone, and is lost with all processes when the host is started again. Whoever changes claims has
the lock of their folder: otherwise two could take over a void claim at once.

Two owners never have one number at a time. A number is given back after every process that runs as it was killed: the
kernel lets none of them start another one from then on.
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
    found = range(int(first), int(last) + 1)
    if not found or found[0] < 1000 or found[-1] >= 2**31:
        raise BadInput("machine_uids", text, f"a range from 1000 to {2**31 - 1}, the lower number first")
    return found


class UidClaims:
    """Claims user numbers for owners on this host."""

    def __init__(self, numbers: range, claims: Path = CLAIMS) -> None:
        self._numbers, self._claims = numbers, claims
        self._running: set[int] = set()
        self._looked = -SCAN_INTERVAL_S

    def claim(self, owner: Path) -> int:
        """Return the number of an owner: the one that it has, or a free one."""
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
        """Kill every process that runs as an owner's number, wherever it has gone to."""
        if _linked(self._claims / str(uid)) == str(owner):
            _kill_all_as(uid)

    def release(self, uid: int, owner: Path) -> None:
        """Kill what runs as an owner's number, and give the number back; raises OSError if that cannot be done."""
        if _linked(self._claims / str(uid)) == str(owner):
            with self._lock():
                self._release(uid, str(owner))

    def _release(self, uid: int, owner: str) -> None:
        if _linked(self._claims / str(uid)) == owner:
            _kill_all_as(uid)
            (self._claims / str(uid)).unlink(missing_ok=True)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Keep the claims of the whole host from others, in this process and in others."""
        with syscalls.open_handle(self._claims, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def _candidates(self, owner: Path) -> Iterator[int]:
        """Yield all numbers, beginning where few others do: an owner finds its own again at once."""
        begin, size = crc32(os.fsencode(owner)) % len(self._numbers), len(self._numbers)
        return (self._numbers[(begin + step) % size] for step in range(size))

    def _is_taken(self, uid: int) -> bool:
        """Tell whether an account, a subordinate range of one, or a process has a number."""
        if time.monotonic() > self._looked + SCAN_INTERVAL_S:  # a look at all processes for each start would be slow
            self._running, self._looked = _running(), time.monotonic()
        with suppress(KeyError):
            pwd.getpwuid(uid)
            return True
        return uid in self._running or any(uid in one for one in _subordinate())

    def _reclaim_if_orphaned(self, uid: int) -> None:
        """Take a claim back whose owner is gone."""
        owner = _linked(self._claims / str(uid))
        if owner is not None and not os.path.lexists(owner):
            self._release(uid, owner)


def _kill_all_as(uid: int) -> None:
    """Kill all processes of a user: the kernel finds them by who asks, so a thread asks as that user."""

    def kill() -> None:
        syscalls.become(uid)
        with suppress(ProcessLookupError, PermissionError):
            os.kill(-1, signal.SIGKILL)

    syscalls.run_in_new_thread(kill, f"as user {uid}")


def _running() -> set[int]:
    """Return the numbers that processes of this host run as."""
    found: set[int] = set()
    with os.scandir("/proc") as entries:
        for one in entries:
            with suppress(OSError):
                if one.name.isdecimal():
                    found.add(one.stat().st_uid)
    return found


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
