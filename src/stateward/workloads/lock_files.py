"""Locks of files: the kernel releases one when its process ends, however it ends."""

import fcntl
import os
from pathlib import Path


def try_lock_file(file: Path) -> int | None:
    """Return a descriptor that holds a lock file until it is closed; None if another task or process holds it."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    if try_flock(handle) and _is_same_file(handle, file):
        return handle
    os.close(handle)
    return None


def try_flock(handle: int, how: int = fcntl.LOCK_EX) -> bool:
    """Take the lock of an open file; false if another one has it."""
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_same_file(handle: int, file: Path) -> bool:
    """Tell whether the locked file is still the one at its path; it may have been removed meanwhile."""
    try:
        return os.path.samestat(os.fstat(handle), file.stat())
    except FileNotFoundError:
        return False
