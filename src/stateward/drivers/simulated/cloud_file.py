"""The file in which a simulated cloud outlives its server.

What the provider has accepted is in the file before the answer goes out, so that a killed server finds it there. The
system's cache is enough for that: a simulated machine need not outlive a power cut, and so nothing waits for the disk.
One server at a time has the file; a second one is told so, because it would not see what the first one does.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol, TypeAlias

from stateward.errors import StatewardError

CloudRow: TypeAlias = tuple[str, str, str, bytes | None]
"""Of what sort, of which region, by which key, and what is to be written: nothing removes it."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS things (
    sort TEXT NOT NULL, place TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (sort, place, key)
) WITHOUT ROWID
"""


class CloudUnavailable(StatewardError):
    """The file of a simulated cloud cannot be used, mostly because another server has it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"the simulated cloud in {self.path} cannot be used: {self.reason}"


class CloudStorage(Protocol):
    """Where things are kept."""

    def load(self, sort: str) -> Iterator[tuple[str, str, bytes]]:
        """Yield all things of a sort: the region, the key, and what was written."""

    def save(self, rows: Iterable[CloudRow]) -> None:
        """Write all of this or nothing."""

    def close(self) -> None:
        """Let go of the file."""


class NoStorage:
    """Keeps nothing: the cloud is gone with its process."""

    def load(self, sort: str) -> Iterator[tuple[str, str, bytes]]:  # noqa: ARG002 - there is nothing of any sort
        yield from ()

    def save(self, rows: Iterable[CloudRow]) -> None:
        """Write nothing."""

    def close(self) -> None:
        """Have nothing to let go of."""


class CloudFile:
    """Keeps everything in one file."""

    def __init__(self, path: Path) -> None:
        try:
            self._db = _open(path)
        except sqlite3.Error as error:
            taken = error.sqlite_errorcode == sqlite3.SQLITE_BUSY
            raise CloudUnavailable(str(path), "another process uses it" if taken else str(error)) from error

    def load(self, sort: str) -> Iterator[tuple[str, str, bytes]]:
        yield from self._db.execute("SELECT place, key, body FROM things WHERE sort = ?", [sort])

    def save(self, rows: Iterable[CloudRow]) -> None:
        rows = list(rows)
        written = [row for row in rows if row[3] is not None]
        removed = [row[:3] for row in rows if row[3] is None]
        with self._db:
            self._db.execute("BEGIN")
            self._db.executemany("INSERT OR REPLACE INTO things VALUES (?, ?, ?, ?)", written)
            self._db.executemany("DELETE FROM things WHERE sort = ? AND place = ? AND key = ?", removed)

    def close(self) -> None:
        self._db.close()


def _open(path: Path) -> sqlite3.Connection:
    """Open a file for this process alone."""
    db = sqlite3.connect(path, timeout=0.0, isolation_level=None)  # whoever has it has it until its end
    try:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")  # before WAL, so that it is held from the first write on
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = OFF")
        db.execute("BEGIN IMMEDIATE")
        db.execute(SCHEMA)
        db.execute("COMMIT")
    except sqlite3.Error:
        db.close()
        raise
    return db
