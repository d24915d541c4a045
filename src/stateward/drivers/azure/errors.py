"""The errors of Azure calls as outcomes of the port: the code of an answer says why Azure refused the call."""

from stateward.drivers.azure.sdk import (
    NEVER_SENT,
    ClientAuthenticationError,
    DecodeError,
    HttpResponseError,
    TokenFailed,
)
from stateward.drivers.cloud import errors
from stateward.drivers.port import CallRefused, RefusalReason, TransientFailure

NOT_DONE = (
    "AnotherOperationInProgress",
    "NicReservedForAnotherVm",  # for three minutes after a virtual machine could not be created
    "ReferencedResourceNotProvisioned",
    "RetryableError",
    "RetryableErrorDueToAnotherOperation",
)
CAPACITY = (
    "AllocationFailed",
    "OverconstrainedAllocationRequest",
    "OverconstrainedZonalAllocationRequest",
    "SkuNotAvailable",
    "SubnetIsFull",
    "ZonalAllocationFailed",
)
NO_SUCH_SCOPE = ("ResourceGroupNotFound", "SubscriptionNotFound", "InvalidSubscriptionId")
"""The codes that say nothing about a resource: its whole scope is missing, or is not shown to this credential."""

TABLE = errors.ErrorTable(
    codes={
        **dict.fromkeys(NOT_DONE, errors.NoRefusal.NOT_DONE),
        **dict.fromkeys(CAPACITY, RefusalReason.CAPACITY),
        **dict.fromkeys(NO_SUCH_SCOPE, RefusalReason.INVALID),
        "AuthorizationFailed": RefusalReason.AUTH,
        "InvalidResourceReference": RefusalReason.NOT_FOUND,
        "LinkedAuthorizationFailed": RefusalReason.AUTH,
        "MissingSubscriptionRegistration": RefusalReason.AUTH,
        "NetworkSecurityGroupInUse": RefusalReason.IN_USE,
        "PublicIPAddressCannotBeDeleted": RefusalReason.IN_USE,
    },
    patterns={
        r"(?i)^OperationNotAllowed: .*quota": RefusalReason.QUOTA,
        r"^InUse|^\S*InUse:": RefusalReason.IN_USE,
        r"^\S*(QuotaExceeded|LimitReached|LimitExceeded):": RefusalReason.QUOTA,
        r"^\S*NotFound:": RefusalReason.NOT_FOUND,
    },
    statuses={
        **dict.fromkeys(range(300, 400), errors.NoRefusal.UNKNOWN),
        errors.REJECTED: RefusalReason.AUTH,
        403: RefusalReason.AUTH,
        409: RefusalReason.CONFLICT,
        412: RefusalReason.CONFLICT,
    },
    retry_after_s=5.0,
)


def is_read_only(call: str) -> bool:
    """Tell whether a call changes nothing: `compute.virtual_machines.get`, `..._skus.list`."""
    return call.rpartition(".")[2].startswith(("get", "list"))


def classify_error(call: str, error: Exception) -> errors.CloudCallFailed:
    """Return the failure that an error of the libraries means."""
    if isinstance(error, TokenFailed):
        cause = error.__cause__
        status = getattr(getattr(cause, "response", None), "status_code", None) or 0
        text = errors.first_line(f"no token: {error}")
        if isinstance(cause, (ClientAuthenticationError, ValueError)) and status != 429 and status < 500:
            return errors.CloudCallFailed(
                call, type(cause).__name__, CallRefused("", RefusalReason.AUTH, text), errors.REJECTED
            )
        return errors.CloudCallFailed(call, type(cause).__name__, TransientFailure("", text))
    if isinstance(error, HttpResponseError) and not isinstance(error, DecodeError) and error.response is not None:
        code, message = str(getattr(error.error, "code", "") or ""), str(getattr(error.error, "message", "") or "")
        after = errors.retry_after_s(getattr(error.response, "headers", {}))
        return classify_answer(call, error.status_code or 0, code, message or str(error.reason or ""), after)
    was_never_sent = isinstance(getattr(error, "inner_exception", None) or error, NEVER_SENT)
    return errors.not_answered(call, error, is_harmless=is_read_only(call) or was_never_sent)


def classify_answer(call: str, status: int, code: str, message: str, after: float | None) -> errors.CloudCallFailed:
    """Return the failure that an answer with an error means."""
    text = f"{code or status}: {errors.first_line(message)}"
    outcome = TABLE.outcome(status, code, text, reads=is_read_only(call), retry_after_s=after)
    return errors.CloudCallFailed(call, code, outcome, status)
