"""Errors of the store, one class for each reaction: retry, restart, repair, or change the input."""

from stateward.errors import StatewardError


class StoreError(StatewardError):
    """The base of all errors of the store; `detail` is the text of the database."""

    what = "the store failed"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.what}: {self.detail}"


class WriteConflict(StoreError):
    """A row changed after it was read. The store runs the transaction function again."""

    what = "a row has changed meanwhile"
    retry = True


class Unavailable(StoreError):
    """The database does not answer, or the connection was lost. The last commit may or may not have taken effect."""

    what = "the database is not available"
    retry = True


class StoreTimeout(Unavailable):
    """A statement or a transaction exceeded its time limit. It may or may not have taken effect."""

    what = "the database did not answer in time"


class StoreBusy(StoreError):
    """Another process held the database lock for longer than the busy timeout."""

    what = "the database is locked by another process"
    retry = True


class StoreFull(StoreError):
    """The disk, or the size limit of the database, is full."""

    what = "the disk is full"
    retry = True


class DatabaseReplaced(StoreError):
    """The database file was removed or replaced while in use. An operator must restart the process on the right file.

    The last commit may be missing in the file that is there now.
    """

    what = "the database file was removed or replaced while in use"


class UnstorableValue(StoreError):
    """A value cannot be stored in its column, such as a NUL in a text on PostgreSQL."""

    what = "the database cannot hold what was given"


class ReadOnly(StoreError):
    """The database is read-only: by its permissions, or as a standby."""

    what = "the database is read-only"


class WrongSchema(StoreError):
    """The database was written by another version of Stateward."""

    what = "the database's schema does not fit this version"


class NotADatabase(StoreError):
    """The file or schema belongs to another program, or is damaged."""

    what = "this is not a Stateward database"
