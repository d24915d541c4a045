"""What writing takes: a connection, the schema, and a place among the other users of the file."""

import sqlite3
from collections.abc import Callable

from msgspec import Struct

from stateward.store.sqlite.batches import install
from stateward.store.sqlite.connections import open_writer
from stateward.store.sqlite.faults import fault
from stateward.store.sqlite.identity import FileIdentity
from stateward.store.sqlite.lockfile import LockFile
from stateward.store.sqlite.schema import migrate
from stateward.store.sqlite.settings import Settings
from stateward.store.sqlite.transactions import Transactions
from stateward.store.sqlite.turns import begin


class WriterConnection(Struct, frozen=True):
    """Everything that whoever writes has before them; a database in memory has no lock file."""

    connection: sqlite3.Connection
    transactions: Transactions
    lock: LockFile | None

    def close(self) -> None:
        """Close the database, then leave."""
        self.connection.close()
        if self.lock is not None:
            self.lock.close()


def open_writer_connection(settings: Settings, clock: Callable[[], float], files: FileIdentity) -> WriterConnection:
    """Open a database, bring it to this version's schema, and join its users."""
    connection, lock = open_writer(settings), None
    try:
        begin(connection, settings.busy_timeout)
        if not settings.in_memory:
            lock = LockFile(settings.lock_path)
            lock.enter()
        migrate(connection)
        connection.execute("UPDATE numbers SET work = work WHERE false")  # a read-only file shows only now
        connection.execute("COMMIT")
        install(connection)
        if lock is not None:
            files.remember()
    except BaseException as error:
        connection.close()
        if lock is not None:
            lock.close()
        raise (fault(error) if isinstance(error, sqlite3.Error) else error) from None
    return WriterConnection(connection, Transactions(connection, clock, settings.busy_timeout, files), lock)
