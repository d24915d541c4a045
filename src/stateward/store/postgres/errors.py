"""Translation of errors of PostgreSQL and its driver into errors of the store."""

import asyncpg

from stateward.store import errors

DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
"""All errors that the driver raises, including timeouts of commands and broken sockets."""

BY_STATE: dict[str, type[errors.StoreError]] = {
    "0A000": errors.WriteConflict,  # feature_not_supported: a prepared statement whose tables were migrated meanwhile
    "23505": errors.WriteConflict,  # unique_violation: another was first
    "25006": errors.ReadOnly,  # read_only_sql_transaction: a standby, or made so
    "25P03": errors.Unavailable,  # idle_in_transaction_session_timeout: we stood still for too long
    "25P04": errors.Unavailable,  # transaction_timeout
    "3D000": errors.NotADatabase,  # invalid_catalog_name: no such database
    "40001": errors.WriteConflict,  # serialization_failure
    "40P01": errors.WriteConflict,  # deadlock_detected
    "42703": errors.WrongSchema,  # undefined_column
    "42704": errors.WrongSchema,  # undefined_object
    "42P01": errors.WrongSchema,  # undefined_table
    "42P07": errors.NotADatabase,  # duplicate_table: the schema has tables of another program
    "53100": errors.StoreFull,  # disk_full
    "55P03": errors.StoreBusy,  # lock_not_available
    "57014": errors.StoreTimeout,  # query_canceled: by statement_timeout, or by an administrator
    "XX001": errors.NotADatabase,  # data_corrupted
    "XX002": errors.NotADatabase,  # index_corrupted
}
BY_CLASS: dict[str, type[errors.StoreError]] = {
    "08": errors.Unavailable,  # connection exceptions
    "22": errors.UnstorableValue,  # data exceptions: a NUL in a text, a number that is too large
    "53": errors.Unavailable,  # insufficient resources: memory, connections
    "57": errors.Unavailable,  # operator intervention: shutting down, starting up
    "58": errors.Unavailable,  # system errors
}


DRIVER_DATA_ERROR = "22000"  # data_exception: what the driver itself refuses to send, with the value in its text


def translate_error(error: BaseException) -> errors.StoreError:
    """Return the store's error for an error of the driver, without stored values, which may be secret."""
    detail = str(error) or type(error).__name__
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        if state == DRIVER_DATA_ERROR:
            return errors.UnstorableValue("a value of a kind or size that its column has not")
        return BY_STATE.get(state, BY_CLASS.get(state[:2], errors.StoreError))(detail)
    return (
        errors.StoreTimeout("no answer within the limit")
        if isinstance(error, TimeoutError)
        else errors.Unavailable(detail)
    )


def is_lost(error: errors.StoreError) -> bool:
    """Return whether the connection is unusable after this error."""
    return isinstance(error, errors.Unavailable | errors.ReadOnly)


def is_worth_reconnecting(error: errors.StoreError) -> bool:
    """Return whether another connection may succeed; not after a timeout, which would be waited for twice."""
    return is_lost(error) and not isinstance(error, errors.StoreTimeout)
