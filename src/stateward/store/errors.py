"""What can go wrong with a store, told apart by what to do about it."""

from stateward.errors import StatewardError


class StoreError(StatewardError):
    """The base of all errors of the store; `detail` is what the database said."""

    what = "the store failed"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.what}: {self.detail}"


class WriteConflict(StoreError):
    """A row had changed since it was read; the program is run again."""

    what = "a row has changed meanwhile"
    retry = True


class Unavailable(StoreError):
    """The database does not answer, or the connection was lost; whether the last commit took effect is not known."""

    what = "the database is not available"
    retry = True


class StoreTimeout(Unavailable):
    """A statement, or a whole transaction, took longer than it may; whether it took effect is not known."""

    what = "the database did not answer in time"


class StoreBusy(StoreError):
    """Another process holds the database for longer than we wait."""

    what = "the database is locked by another process"
    retry = True


class StoreFull(StoreError):
    """There is no room left to write."""

    what = "the disk is full"
    retry = True


class DatabaseReplaced(StoreError):
    """The database file was removed or replaced while in use; the process has to be restarted on the right one.

    Whether the last commit is in the file that is found then is not known.
    """

    what = "the database file was removed or replaced while in use"


class UnstorableValue(StoreError):
    """A value was given that the database cannot hold, such as a NUL in a text on PostgreSQL."""

    what = "the database cannot hold what was given"


class ReadOnly(StoreError):
    """The database cannot be written to."""

    what = "the database is read-only"


class WrongSchema(StoreError):
    """The database was written by another version of Stateward."""

    what = "the database's schema does not fit this version"


class NotADatabase(StoreError):
    """There is something else where the database should be, or it is damaged."""

    what = "this is not a Stateward database"
