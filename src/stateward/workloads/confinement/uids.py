"""Claims of user numbers for programs on this host, if the server is root.

A user is a number of a range that no account has. Several servers may run on one host, so a number is claimed for the
whole host, below `/run`, and the claims disappear with all processes at a reboot.

Two owners never have the same number at a time: a number is released only after all its processes were killed.
"""

import os
import pwd
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from stateward.errors import BadInput
from stateward.workloads.confinement import syscalls
from stateward.workloads.number_claims import NumberClaims

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


class UidClaims(NumberClaims):
    """Claims user numbers for owners on this host."""

    exhausted = "no user number of {} is free (setting machine_uids)"

    def __init__(self, numbers: range, claims: Path = CLAIMS) -> None:
        super().__init__(numbers, claims)
        self._running: set[int] = set()
        self._scanned = -SCAN_INTERVAL_S

    def kill_all_of(self, uid: int, owner: Path) -> None:
        """Kill every process that runs as an owner's number."""
        if self._is_claimed(uid, owner):
            _kill_all_as(uid)

    def _end_use(self, number: int) -> None:
        _kill_all_as(number)

    def _is_taken(self, number: int) -> bool:
        """Tell whether an account, the subordinate range of an account, or a process has a number."""
        if time.monotonic() > self._scanned + SCAN_INTERVAL_S:  # a scan of /proc for each start would be slow
            self._running, self._scanned = _running(), time.monotonic()
        with suppress(KeyError):
            pwd.getpwuid(number)
            return True
        return number in self._running or any(number in uids for uids in _subordinate())


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
