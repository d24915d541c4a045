"""How processes that share a database file notice each other.

Each holds a shared lock on a file beside the database for as long as it lives; who can make the lock exclusive is
alone. Changing the kind of a lock is not atomic: for a moment there is none, and two processes that try at the same
time would each find itself alone. So a process tries only while it holds the database's write lock.

Everybody who comes in also leaves a mark in the file. Who was alone and still finds the own mark there is alone, and
needs no lock to see it.
"""

import logging
import os
import sqlite3
from collections.abc import Mapping
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path
from secrets import token_hex
from threading import Lock

from stateward.store.errors import DatabaseReplaced, ReadOnly, Unavailable
from stateward.store.sqlite.connections import SqliteSettings

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
        self._was_exclusive = False

    def join(self) -> bool:
        """Join those who use the database and tell whether there are none; call it holding the write lock."""
        alone = self.test_exclusive()
        self._write_mark()
        return alone

    def test_exclusive(self) -> bool:
        """Find out whether others use the database; call it holding the write lock."""
        try:
            flock(self._file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            self._was_exclusive = False
        else:
            self._was_exclusive = True
            self._write_mark()
        flock(self._file, LOCK_SH)
        return self._was_exclusive

    def is_undisturbed(self) -> bool:
        """Tell whether this store was alone and nobody has come since; takes no lock."""
        return self._was_exclusive and os.pread(self._file, MARK_BYTES, 0) == self._mark

    def close(self) -> None:
        """Leave; the file stays, because removing it could pull it from under somebody who is just coming."""
        os.close(self._file)

    def _write_mark(self) -> None:
        os.pwrite(self._file, self._mark, 0)


POLL_INTERVAL_S = 0.02
SOLE_USER_POLL_INTERVAL_S = 0.25
POLLS_PER_LOCK_TEST = 50  # looks: about once a second, see whether the others have left


class ExternalChanges:
    """The other users of a database file, as seen from the connection that writes."""

    def __init__(self, connection: sqlite3.Connection, lock: LockFile) -> None:
        self._connection = connection
        self._lock = lock
        self._version = self._data_version()
        self._polls = 0
        self.every = POLL_INTERVAL_S
        """How often to look while there is nothing else to do."""

    def detect(self) -> bool:
        """Look, and tell whether somebody else may have committed something since the last look."""
        if self._lock.is_undisturbed():
            self.every = SOLE_USER_POLL_INTERVAL_S
            return False
        self.every = POLL_INTERVAL_S
        self._polls += 1
        try:
            if self._polls % POLLS_PER_LOCK_TEST == 0:
                self._test()
            before, self._version = self._version, self._data_version()
        except sqlite3.OperationalError:
            return True  # the next program will learn what is wrong; until then, anything may have happened
        return before != self._version

    def _data_version(self) -> int:
        """Return a number that changes with the commits of other connections than this one."""
        version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        return version

    def _test(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")  # without waiting: who is kept out is not alone
        try:
            self._lock.test_exclusive()
        finally:
            self._connection.execute("ROLLBACK")


log = logging.getLogger("stateward.store")


class FileIdentity:
    """The files of one open database: itself, its log, its index of the log, and the lock file."""

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
        """Remember the files that are there; call it when the database and the lock file are open."""
        real = Path(self._database).resolve()  # SQLite keeps the log beside the file itself, not beside a link to it
        paths = (self._database, f"{real}-wal", f"{real}-shm", str(self._settings.lock_path.absolute()))
        self._known = {path: _identity(Path(path).stat()) for path in paths}
        self._bytes = Path(self._database).stat().st_size
        self._finding = ""

    def require(self) -> None:
        """Raise `Replaced` if a difference was found before; looks at no file."""
        if self._finding:
            raise DatabaseReplaced(self._finding)

    def check(self) -> None:
        """Compare the files with those that were opened; raises `Replaced`, from then on always. Takes a few µs."""
        self.require()
        least = self._bytes  # before looking: it may grow meanwhile, and another thread may see that first
        for path, known in self._known.items():
            try:
                found = os.stat(path)  # noqa: PTH116 - a third of what `Path.stat` takes, after each commit
            except (FileNotFoundError, NotADirectoryError):
                self._refuse(f"{path} is gone")
            except OSError as error:  # it may well be the same file
                raise Unavailable(str(error)) from error
            if _identity(found) != known:
                self._refuse(f"{path} is another file than the one that was opened")
            if path == self._database:
                if found.st_size < least:
                    self._refuse(f"{path} was overwritten or compacted: it has shrunk")
                self._bytes = found.st_size

    def is_only_database_replaced(self) -> bool:
        """Tell whether the log, its index and the lock file are the ones that were opened, and the database is not."""
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


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
