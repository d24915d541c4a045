"""Translation of errors of PostgreSQL and its driver into errors of the store."""

import asyncpg

from stateward.store.errors import (
    NotADatabase,
    ReadOnly,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreTimeout,
    Unavailable,
    UnstorableValue,
    WriteConflict,
    WrongSchema,
)

DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
"""All errors that the driver raises, including timeouts of commands and broken sockets."""

BY_STATE: dict[str, type[StoreError]] = {
    "0A000": WriteConflict,  # feature_not_supported: a prepared statement whose tables were migrated meanwhile
    "23505": WriteConflict,  # unique_violation: another was first
    "25006": ReadOnly,  # read_only_sql_transaction: a standby, or made so
    "25P03": Unavailable,  # idle_in_transaction_session_timeout: we stood still for too long
    "25P04": Unavailable,  # transaction_timeout
    "3D000": NotADatabase,  # invalid_catalog_name: no such database
    "40001": WriteConflict,  # serialization_failure
    "40P01": WriteConflict,  # deadlock_detected
    "42703": WrongSchema,  # undefined_column
    "42704": WrongSchema,  # undefined_object
    "42P01": WrongSchema,  # undefined_table
    "42P07": NotADatabase,  # duplicate_table: the schema has tables of another program
    "53100": StoreFull,  # disk_full
    "55P03": StoreBusy,  # lock_not_available
    "57014": StoreTimeout,  # query_canceled: by statement_timeout, or by an administrator
    "XX001": NotADatabase,  # data_corrupted
    "XX002": NotADatabase,  # index_corrupted
}
BY_CLASS: dict[str, type[StoreError]] = {
    "08": Unavailable,  # connection exceptions
    "22": UnstorableValue,  # data exceptions: a NUL in a text, a number that is too large
    "53": Unavailable,  # insufficient resources: memory, connections
    "57": Unavailable,  # operator intervention: shutting down, starting up
    "58": Unavailable,  # system errors
}


DRIVER_DATA_ERROR = "22000"  # data_exception: what the driver itself refuses to send, with the value in its text


def translate_error(error: BaseException) -> StoreError:
    """Return the store's error for an error of the driver, without stored values, which may be secret."""
    detail = str(error) or type(error).__name__
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        if state == DRIVER_DATA_ERROR:
            return UnstorableValue("a value of a kind or size that its column has not")
        return BY_STATE.get(state, BY_CLASS.get(state[:2], StoreError))(detail)
    return StoreTimeout("no answer within the limit") if isinstance(error, TimeoutError) else Unavailable(detail)


def is_lost(error: StoreError) -> bool:
    """Return whether the connection is unusable after this error."""
    return isinstance(error, Unavailable | ReadOnly)


def is_worth_reconnecting(error: StoreError) -> bool:
    """Return whether another connection may succeed; not after a timeout, which would be waited for twice."""
    return is_lost(error) and not isinstance(error, StoreTimeout)
