"""Backup and restore of an embedded database.

A backup is one consistent state. It is read beside the writer and never blocks it. The file gets its name after it was
checked, so it is complete or absent. A restore is one transaction: if it fails, the database is unchanged. It needs
that no server runs, and holds the servers' lock, so that none can start meanwhile.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from secrets import token_hex

from msgspec import Struct

from stateward.config import masked
from stateward.errors import StatewardError
from stateward.server.data_dir import create_private
from stateward.store.errors import NotADatabase, WrongSchema
from stateward.store.migrations import newest
from stateward.store.sqlite.connections import APPLICATION, SqliteSettings, begin_write

IN_USE = "a server or a worker is using it; stop it first"

WRITE_LOCK_TIMEOUT_S = 5.0
"""How many seconds a restore waits for the end of another process's transaction."""


class BackupInfo(Struct, frozen=True):
    """The size of a backup, the number of its objects, and its last journal entry."""

    file: str
    bytes: int
    objects: int
    seq: int


class BackupError(StatewardError):
    """A backup cannot be made or restored, and why."""

    file: str
    why: str
    text = "{file}: {why}"


def embedded_file(store_url: str) -> Path:
    """Return the file of an embedded database; raises for PostgreSQL, which has tools of its own."""
    path = store_url.removeprefix("sqlite:///")
    if "://" in path:
        raise BackupError(masked(store_url), "this is for embedded databases; PostgreSQL has pg_dump and pg_basebackup")
    return Path(path)


def back_up(database: Path, file: Path) -> BackupInfo:
    """Copy a database into a file, while servers may use it."""
    if not database.exists():
        raise BackupError(str(database), "there is no database")
    if file.exists():
        raise BackupError(str(file), "the file exists already; choose a new one")
    new = file.with_name(f".{file.name}.{token_hex(8)}")
    try:
        with closing(_connected(database, "ro")) as source, closing(_created(new)) as target:
            _check_ours(source, database)
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE").fetchone()  # one file, without a write-ahead log
            info = _check_content(target, file)
        for path in (new, new.absolute().parent):
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        os.link(new, file)  # unlike a rename, it never replaces what another backup has written
    except FileExistsError as error:
        raise BackupError(str(file), "the file exists already; choose a new one") from error
    except sqlite3.Error as error:
        raise BackupError(str(file), str(error)) from error
    except OSError as error:
        raise BackupError(str(file), error.strerror or str(error)) from error
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)
    return info


def restore(file: Path, database: Path, *, replace: bool) -> BackupInfo:
    """Replace a database, which no server may use, by a backup."""
    if not file.is_file():
        raise BackupError(str(file), "the file does not exist")
    if database.exists() and not replace:
        raise BackupError(str(database), "a database exists already; --replace overwrites it")
    if database.exists() and file.samefile(database):
        raise BackupError(str(file), "it is the database itself; a copy is another file")
    try:
        with closing(_connected(file, "ro")) as source:
            _check_ours(source, file)
            _check_content(source, file)
            with _exclusive_lock(database):
                return _overwrite(source, database)
    except sqlite3.Error as error:
        raise BackupError(str(database), str(error)) from error
    except OSError as error:
        raise BackupError(str(database), error.strerror or str(error)) from error


def _overwrite(source: sqlite3.Connection, database: Path) -> BackupInfo:
    create_private(database)
    with closing(_connected(database, "rwc")) as target:
        source.backup(target)
        return _check_content(target, database)


@contextmanager
def _exclusive_lock(database: Path) -> Iterator[None]:
    """Hold the lock that every server holds while it runs; raises if a server has it."""
    lock = os.open(SqliteSettings(str(database)).lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        with _write_lock(database):  # first, as servers do, which may be without their lock for a moment under it
            flock(lock, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        raise BackupError(str(database), IN_USE) from None
    else:
        yield
    finally:
        os.close(lock)


@contextmanager
def _write_lock(database: Path) -> Iterator[None]:
    """Hold the write lock of a database; one that is missing or damaged has none."""
    if not database.exists():
        yield
        return
    with closing(_connected(database, "rw")) as connection:
        try:
            begin_write(connection, WRITE_LOCK_TIMEOUT_S)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                raise BackupError(str(database), IN_USE) from None
        yield


def _connected(file: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None)


def _created(file: Path) -> sqlite3.Connection:
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    return _connected(file, "rw")


def _check_ours(connection: sqlite3.Connection, file: Path) -> None:
    """Raise if a file is not a database of ours, or has a newer schema."""
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.OperationalError as error:  # locked or unreadable, which says nothing about its content
        raise BackupError(str(file), str(error)) from error
    except sqlite3.DatabaseError as error:
        raise NotADatabase(f"{file}: {error}") from error
    if application != APPLICATION:
        raise NotADatabase(f"{file} is a file of another program")
    if version > newest("sqlite"):
        raise WrongSchema(f"{file} is version {version}, and this program knows versions up to {newest('sqlite')}")


def _check_content(connection: sqlite3.Connection, file: Path) -> BackupInfo:
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise NotADatabase(f"{file} is damaged: {verdict}")
    (objects,) = connection.execute("SELECT count(*) FROM objects WHERE NOT removed").fetchone()
    (seq,) = connection.execute("SELECT coalesce(max(seq), 0) FROM journal").fetchone()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    return BackupInfo(str(file), pages * size, objects, seq)
