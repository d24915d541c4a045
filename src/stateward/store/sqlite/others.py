"""Noticing what other processes do to the database; while there are none, there is nothing to look at."""

import sqlite3

from stateward.store.sqlite.lockfile import LockFile

LOOK_EVERY = 0.02
LOOK_WHEN_ALONE_EVERY = 0.25
TEST_EVERY = 50  # looks: about once a second, see whether the others have left


class Others:
    """The other users of a database file, as seen from the connection that writes."""

    def __init__(self, connection: sqlite3.Connection, lock: LockFile) -> None:
        self._connection = connection
        self._lock = lock
        self._version = self._data_version()
        self._looks = 0
        self.every = LOOK_EVERY
        """How often to look while there is nothing else to do."""

    def have_written(self) -> bool:
        """Look, and tell whether somebody else may have committed something since the last look."""
        if self._lock.undisturbed():
            self.every = LOOK_WHEN_ALONE_EVERY
            return False
        self.every = LOOK_EVERY
        self._looks += 1
        try:
            if self._looks % TEST_EVERY == 0:
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
            self._lock.test()
        finally:
            self._connection.execute("ROLLBACK")
