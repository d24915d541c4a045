"""How processes that share a database file notice each other.

Each holds a shared lock on a file beside the database for as long as it lives; who can make the lock exclusive is
alone. Changing the kind of a lock is not atomic: for a moment there is none, and two processes that try at the same
time would each find itself alone. So a process tries only while it holds the database's write lock.

Everybody who comes in also leaves a mark in the file. Who was alone and still finds the own mark there is alone, and
needs no lock to see it.
"""

import os
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path
from secrets import token_hex

from stateward.store.errors import ReadOnly, Unavailable

MARK_BYTES = 64


class LockFile:
    """This store's presence beside a database."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except PermissionError as error:
            raise ReadOnly(str(error)) from error
        except OSError as error:
            raise Unavailable(str(error)) from error
        self._mark = f"{os.getpid()} {token_hex(8)}\n".encode().ljust(MARK_BYTES)
        self._alone = False

    def enter(self) -> bool:
        """Join those who use the database and tell whether there are none; call it holding the write lock."""
        alone = self.test()
        self._leave_mark()
        return alone

    def test(self) -> bool:
        """Find out whether others use the database; call it holding the write lock."""
        try:
            flock(self._file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            self._alone = False
        else:
            self._alone = True
            self._leave_mark()
        flock(self._file, LOCK_SH)
        return self._alone

    def undisturbed(self) -> bool:
        """Tell whether this store was alone and nobody has come since; takes no lock."""
        return self._alone and os.pread(self._file, MARK_BYTES, 0) == self._mark

    def close(self) -> None:
        """Leave; the file stays, because removing it could pull it from under somebody who is just coming."""
        os.close(self._file)

    def _leave_mark(self) -> None:
        os.pwrite(self._file, self._mark, 0)
