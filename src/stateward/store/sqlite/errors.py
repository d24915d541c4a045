"""Translation of SQLite errors into errors of the store."""

import sqlite3

from stateward.store.errors import NotADatabase, ReadOnly, StoreBusy, StoreError, StoreFull, Unavailable, WriteConflict

BY_CODE: dict[int, type[StoreError]] = {
    sqlite3.SQLITE_AUTH: ReadOnly,
    sqlite3.SQLITE_BUSY: StoreBusy,
    sqlite3.SQLITE_CANTOPEN: Unavailable,
    sqlite3.SQLITE_CORRUPT: NotADatabase,
    sqlite3.SQLITE_FULL: StoreFull,
    sqlite3.SQLITE_IOERR: Unavailable,
    sqlite3.SQLITE_LOCKED: StoreBusy,
    sqlite3.SQLITE_NOMEM: Unavailable,
    sqlite3.SQLITE_NOTADB: NotADatabase,
    sqlite3.SQLITE_PERM: ReadOnly,
    sqlite3.SQLITE_PROTOCOL: StoreBusy,
    sqlite3.SQLITE_READONLY: ReadOnly,
    sqlite3.SQLITE_TOOBIG: StoreError,
}
TAKEN = frozenset(
    (sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_ROWID)
)
"""Constraint violations that mean a lost race. Any other violation is a programming error and stays as it is."""


def translate_error(error: sqlite3.Error) -> Exception:
    """Return the store's error for an error of SQLite; an error without a known code is returned as it is."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return error
    if code in TAKEN:
        return WriteConflict(str(error))
    kind = BY_CODE.get(code & 0xFF)  # the upper bits are extended codes of the same error
    return error if kind is None else kind(f"{error} ({error.sqlite_errorname})")
