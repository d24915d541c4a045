"""Bringing a database to this version's schema: as one transaction, by whichever process comes first."""

import sqlite3
from collections.abc import Iterator

from stateward.store.errors import NotADatabase
from stateward.store.migrations import Migration, pending

APPLICATION = 0x53574444
"""Marks the file as ours, in the field of the header that SQLite keeps for this."""


def migrate(connection: sqlite3.Connection) -> None:
    """Apply what is missing, within the transaction that is open; a schema newer than this program is refused."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION and tables:
        raise NotADatabase("it is an SQLite database of another program")
    for migration in pending("sqlite", version):
        _apply(connection, migration)


def _apply(connection: sqlite3.Connection, migration: Migration) -> None:
    for statement in _statements(migration.sql):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {migration.version}")


def _statements(script: str) -> Iterator[str]:
    """Split a script, because Python's own way to run one commits whatever is open."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
