"""The database file as other processes see and change it: sole use, foreign commits, and replacement.

Sole use. Each process holds a shared lock on a lock file beside the database while it lives. A process that can upgrade
its lock to an exclusive one is the sole user. The upgrade is not atomic: for a moment there is no lock, and two
processes that tried at the same time would both succeed. So a process tries only while it holds the database's write
lock. Each process that opens the database also writes a mark into the lock file. A former sole user that still finds
its own mark is the sole user, and needs no lock to see it.

Replacement. A deleted or replaced file stays usable to the process that has it open. A store would go on committing
into it, while a restart opens another file, and everything acknowledged in between would be lost. So the store
remembers the identity (device, inode) of the files it has opened, and compares it with the files at those paths: after
each commit and before its acknowledgement, when it opens a further connection, and several times a second when idle.

The database file never shrinks while it is in use, so a shorter file was overwritten in place (`VACUUM` shrinks it too,
so run it only while the server is stopped). An overwritten file of the same length or longer is not detected. After a
difference the store refuses everything until it is opened again, because only an operator can tell which file is right.
"""

import logging
import os
import sqlite3
import time
from collections.abc import Mapping
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path
from secrets import token_hex
from threading import Lock

from stateward.store.errors import DatabaseReplaced, ReadOnly, StoreBusy, Unavailable
from stateward.store.sqlite.connections import SqliteSettings

MARK_BYTES = 64
SHARE_PAUSE_S = 0.01


class LockFile:
    """The lock file beside a database, as one store holds it."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except PermissionError as error:
            raise ReadOnly(str(error)) from error
        except OSError as error:
            raise Unavailable(str(error)) from error
        self._mark = f"{os.getpid()} {token_hex(8)}\n".encode().ljust(MARK_BYTES)
        self._was_exclusive = False

    def join(self) -> bool:
        """Register as a user, and return whether there is no other. The caller holds the write lock."""
        is_sole_user = self.test_exclusive()
        self._write_mark()
        return is_sole_user

    def test_exclusive(self) -> bool:
        """Return whether this store is the sole user. The caller holds the write lock."""
        try:
            flock(self._file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            self._was_exclusive = False
        else:
            self._was_exclusive = True
            self._write_mark()
        self._share()
        return self._was_exclusive

    def _share(self) -> None:
        """Take the shared lock; raises `StoreBusy` if another process keeps it to itself, as a restore does.

        The caller holds the write lock, for which the other one may be waiting: so this must not wait indefinitely.
        """
        until = time.monotonic() + self._timeout_s
        while True:
            try:
                flock(self._file, LOCK_SH | LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise StoreBusy("another process, such as a restore, uses the database alone") from None
            else:
                return
            time.sleep(SHARE_PAUSE_S)

    def is_undisturbed(self) -> bool:
        """Return whether this store was the sole user and no process has joined since; takes no lock."""
        return self._was_exclusive and os.pread(self._file, MARK_BYTES, 0) == self._mark

    def close(self) -> None:
        """Release the lock. The file stays, because another process may be opening it."""
        os.close(self._file)

    def _write_mark(self) -> None:
        os.pwrite(self._file, self._mark, 0)


POLL_INTERVAL_S = 0.02
SOLE_USER_POLL_INTERVAL_S = 0.25
POLLS_PER_LOCK_TEST = 50  # about once a second, test whether the other users have left


class ExternalChanges:
    """Detection of commits by other processes, on the writer connection; a sole user need not poll."""

    def __init__(self, connection: sqlite3.Connection, lock: LockFile) -> None:
        self._connection = connection
        self._lock = lock
        self._version = self._data_version()
        self._polls = 0
        self.interval_s = POLL_INTERVAL_S
        """The poll interval in seconds of an idle writer."""

    def detect(self) -> bool:
        """Return whether another process may have committed since the last call."""
        if self._lock.is_undisturbed():
            self.interval_s = SOLE_USER_POLL_INTERVAL_S
            return False
        self.interval_s = POLL_INTERVAL_S
        self._polls += 1
        try:
            if self._polls % POLLS_PER_LOCK_TEST == 0:
                self._connection.execute("BEGIN IMMEDIATE")  # no retry: a busy lock means other users
                try:
                    self._lock.test_exclusive()
                finally:
                    self._connection.execute("ROLLBACK")
            before, self._version = self._version, self._data_version()
        except sqlite3.OperationalError:
            return True  # the next transaction gets the error; until then assume a commit
        return before != self._version

    def _data_version(self) -> int:
        """Return a number that changes with commits of other connections."""
        version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        return version


log = logging.getLogger("stateward.store")


class FileIdentity:
    """The files of an open database: the database, its WAL, its WAL index, and the lock file."""

    def __init__(self, settings: SqliteSettings) -> None:
        self._settings = settings
        self._known: Mapping[str, tuple[int, int]] = {}
        self._database = str(Path(settings.path).absolute())
        self._bytes = 0
        self._finding = ""
        self._lock = Lock()

    @property
    def is_replaced(self) -> bool:
        """Whether a difference was found."""
        return bool(self._finding)

    def remember(self) -> None:
        """Remember the files at the paths. The caller has opened the database and the lock file."""
        real = Path(self._database).resolve()  # SQLite puts the WAL beside the file itself, not beside a link
        paths = (self._database, f"{real}-wal", f"{real}-shm", str(self._settings.lock_path.absolute()))
        self._known = {path: _identity(Path(path).stat()) for path in paths}
        self._bytes = Path(self._database).stat().st_size
        self._finding = ""

    def require(self) -> None:
        """Raise `DatabaseReplaced` if a difference was found before; reads no file."""
        if self._finding:
            raise DatabaseReplaced(self._finding)

    def check(self) -> None:
        """Compare the files with the opened ones; raises `DatabaseReplaced` now and on later calls. Takes a few µs."""
        self.require()
        least = self._bytes  # read first: the file may grow meanwhile, and another thread may see that first
        for path, known in self._known.items():
            try:
                status = os.stat(path)  # noqa: PTH116 - a third of what `Path.stat` takes, after each commit
            except (FileNotFoundError, NotADirectoryError):
                self._refuse(f"{path} is gone")
            except OSError as error:  # it may still be the same file
                raise Unavailable(str(error)) from error
            if _identity(status) != known:
                self._refuse(f"{path} is another file than the one that was opened")
            if path == self._database:
                if status.st_size < least:
                    self._refuse(f"{path} was overwritten or compacted: it has shrunk")
                self._bytes = status.st_size

    def is_only_database_replaced(self) -> bool:
        """Return whether the database was replaced, and the WAL, its index and the lock file were not."""
        return [path for path, known in self._known.items() if _identity_at(path) != known] == [self._database]

    def _refuse(self, finding: str) -> None:
        with self._lock:
            if not self._finding:
                self._finding = finding
                log.error(
                    "database %s was replaced while in use: %s; this process acknowledges nothing more. "
                    "Stop it, put the right files in place, and start it again.",
                    self._settings.path,
                    finding,
                )
        raise DatabaseReplaced(self._finding)


def _identity_at(path: str) -> tuple[int, int] | None:
    try:
        return _identity(Path(path).stat())
    except OSError:
        return None


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
