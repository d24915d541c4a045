"""The errors of Compute Engine's calls and operations as outcomes of the port.

An answer has an HTTP status and a reason (`quotaExceeded`); an operation that failed has a code (`QUOTA_EXCEEDED`).
Both are one vocabulary in two spellings.
"""

from collections.abc import Mapping
from typing import Any

from stateward.drivers.cloud import errors
from stateward.drivers.gcp.sdk import (
    AUTH_ERRORS,
    UNSENDABLE,
    TokenServerError,
    VendorCallError,
    was_never_sent,
)
from stateward.drivers.port import RefusalReason

READS = frozenset({"get", "list", "aggregated_list", "get_from_family"})

NOT_READY = "resourcenotready"
"""The resource is in the middle of another operation: nothing was done, and later it may be possible."""

TABLE = errors.ErrorTable(
    codes={
        "ratelimitexceeded": errors.NoRefusal.THROTTLED,
        "userratelimitexceeded": errors.NoRefusal.THROTTLED,
        "resourceoperationrateexceeded": errors.NoRefusal.THROTTLED,
        NOT_READY: errors.NoRefusal.NOT_DONE,
        "internalerror": errors.NoRefusal.UNKNOWN,
        "alreadyexists": RefusalReason.CONFLICT,
        "resourcealreadyexists": RefusalReason.CONFLICT,
        "conditionnotmet": RefusalReason.CONFLICT,
        "quotaexceeded": RefusalReason.QUOTA,
        "limitexceeded": RefusalReason.QUOTA,
        "ipspaceexhausted": RefusalReason.CAPACITY,
        "stockout": RefusalReason.CAPACITY,
        "notfound": RefusalReason.NOT_FOUND,
        "resourcenotfound": RefusalReason.NOT_FOUND,
        "resourceinuse": RefusalReason.IN_USE,
        "resourceinusebyanotherresource": RefusalReason.IN_USE,
        "permissionserror": RefusalReason.AUTH,
        "invalidfieldvalue": RefusalReason.INVALID,
        "invalidusage": RefusalReason.INVALID,
        "unsupportedoperation": RefusalReason.INVALID,
    },
    patterns={r"(?i)^\S*resource_?pool_?exhausted": RefusalReason.CAPACITY},  # with and without details in the code
    statuses={
        errors.REJECTED: RefusalReason.AUTH,
        403: RefusalReason.AUTH,
        404: RefusalReason.NOT_FOUND,
        409: RefusalReason.CONFLICT,
        412: RefusalReason.CONFLICT,
    },
    has_codes_in_5xx=True,
)
"""The meaning of reasons and codes in their one form."""


def is_read_only(call: str) -> bool:
    """Tell whether a call changes nothing."""
    return call.rpartition(".")[2] in READS


def normalise_code(code: str) -> str:
    """Return the one form of a reason (`quotaExceeded`) and of a code (`QUOTA_EXCEEDED`)."""
    return code.replace("_", "").lower()


def is_not_ready(failed: errors.CloudCallFailed) -> bool:
    """Tell whether a call failed because the resource was in the middle of another operation."""
    return normalise_code(failed.code) == NOT_READY


def classify_error(call: str, error: Exception) -> errors.CloudCallFailed:
    """Return the failure that an error of the library means."""
    if isinstance(error, VendorCallError) and error.code is not None:
        details = error.errors[0] if error.errors else {}
        code = str(details.get("reason", "")) if isinstance(details, Mapping) else ""
        after = errors.retry_after_s(getattr(error.response, "headers", {}))
        return classify_code(call, code, int(error.code), str(error.message), after)
    if isinstance(error, AUTH_ERRORS) and not isinstance(error, TokenServerError):
        return errors.not_connected(call, error, AUTH_ERRORS, errors.REJECTED)
    if is_read_only(call) and isinstance(error, UNSENDABLE):
        return errors.not_connected(call, error)
    return errors.not_answered(call, error, is_harmless=is_read_only(call) or was_never_sent(error))


def failed_operation(call: str, operation: Any) -> errors.CloudCallFailed | None:  # noqa: ANN401 - the library's type
    """Return the failure of an operation; None if it has none so far.

    The library itself looks at the HTTP fields alone: an operation with errors and without them would count as done.
    """
    faults = list(operation.error.errors)
    status = int(operation.http_error_status_code or 0)
    if not faults and status < 400:
        return None
    code = str(faults[0].code) if faults else str(status)
    message = str(faults[0].message) if faults else str(operation.http_error_message)
    return classify_code(call, code, status or 400, message)


def classify_code(
    call: str, code: str, status: int, message: str, after: float | None = None
) -> errors.CloudCallFailed:
    """Return the failure that a status and a code mean; a 503 that says how long to wait is throttling."""
    text = f"{code or status}: {errors.first_line(message)}"
    is_throttled = status == 503 and after is not None
    outcome = TABLE.outcome(
        429 if is_throttled else status, normalise_code(code), text, reads=is_read_only(call), retry_after_s=after
    )
    return errors.CloudCallFailed(call, code, outcome, status)
