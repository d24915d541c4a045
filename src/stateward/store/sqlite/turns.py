"""Beginning a transaction: to write, when it is our turn; to read, at any time.

SQLite's own way of waiting sleeps longer and longer, up to a tenth of a second, and whoever has just written begins
again before it wakes: with three busy processes one of them waits for seconds. We look again every half millisecond.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import uniform

SHORTEST, LONGEST = 0.0001, 0.001


def begin(connection: sqlite3.Connection, patience: float) -> None:
    """Begin a transaction that writes, waiting for other processes for so many seconds and no longer."""
    retry_while_busy(connection, "BEGIN IMMEDIATE", patience)


def retry_while_busy(connection: sqlite3.Connection, statement: str, patience: float) -> None:
    """Execute a statement that needs a lock of the file, again and again while other processes hold it."""
    until = time.monotonic() + patience
    while True:
        try:
            connection.execute(statement).fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
        else:
            return
        time.sleep(uniform(SHORTEST, LONGEST))  # noqa: S311 - only spreads attempts


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Let several statements see the same state, and no longer than they need: the log cannot be cleared meanwhile."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
