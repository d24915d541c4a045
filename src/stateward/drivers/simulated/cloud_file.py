"""The SQLite file that keeps a simulated cloud across restarts of its server.

An accepted call is in the file before it is answered, so a killed server finds it there. Nothing waits for the disk
(`synchronous = OFF`): a simulated machine need not survive a power cut. One server at a time can open the file. A
second one is refused, because it would not see the changes of the first.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from stateward.errors import StatewardError

CloudRow: TypeAlias = tuple[str, str, str, bytes | None]
"""Sort, region, key and encoded body; a body of None deletes the row."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS things (
    sort TEXT NOT NULL, place TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (sort, place, key)
) WITHOUT ROWID
"""


class CloudUnavailable(StatewardError):
    """The file of a simulated cloud cannot be opened, mostly because another server has it."""

    path: str
    reason: str
    text = "the simulated cloud in {path} cannot be used: {reason}"


class CloudFile:
    """Stores everything in one SQLite file."""

    def __init__(self, path: Path) -> None:
        try:
            db = sqlite3.connect(path, timeout=0.0, isolation_level=None)  # the holder keeps it: no use to wait
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
            self._db = db
        except sqlite3.Error as error:
            taken = error.sqlite_errorcode == sqlite3.SQLITE_BUSY
            raise CloudUnavailable(str(path), "another process uses it" if taken else str(error)) from error

    def load(self, sort: str) -> Iterator[tuple[str, str, bytes]]:
        """Yield all rows of a sort: region, key and body."""
        yield from self._db.execute("SELECT place, key, body FROM things WHERE sort = ?", [sort])

    def save(self, rows: Iterable[CloudRow]) -> None:
        """Write all rows in one transaction."""
        rows = list(rows)
        written = [row for row in rows if row[3] is not None]
        removed = [row[:3] for row in rows if row[3] is None]
        with self._db:
            self._db.execute("BEGIN")
            self._db.executemany("INSERT OR REPLACE INTO things VALUES (?, ?, ?, ?)", written)
            self._db.executemany("DELETE FROM things WHERE sort = ? AND place = ? AND key = ?", removed)

    def close(self) -> None:
        """Close the file."""
        self._db.close()
