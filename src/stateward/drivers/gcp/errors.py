"""The errors of Compute Engine's calls and operations as outcomes of the port.

An answer has an HTTP status and a reason (`quotaExceeded`); an operation that failed has a code (`QUOTA_EXCEEDED`).
Both are one vocabulary in two spellings. Without an answer the question is whether something can have been done: a call
that only reads, or was never sent, has done nothing; the result of any other call is unknown.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec.structs import replace

from stateward.drivers.gcp.google_sdk import (
    AUTH_ERRORS,
    UNSENDABLE,
    TokenServerError,
    VendorCallError,
    was_never_sent,
)
from stateward.drivers.gcp.service_accounts import ServiceAccountMissing
from stateward.drivers.port import CallRefused, CallThrottled, CallUnanswered, RefusalReason, TransientFailure
from stateward.errors import StatewardError

GceFailure: TypeAlias = CallRefused | CallThrottled | TransientFailure | CallUnanswered

DEFAULT_RETRY_AFTER_S = 1.0
"""The delay after throttling without a `Retry-After`."""

READS = frozenset({"get", "list", "aggregated_list", "get_from_family"})

THROTTLING = frozenset({"ratelimitexceeded", "userratelimitexceeded", "resourceoperationrateexceeded"})
NOT_READY = "resourcenotready"
"""The resource is in the middle of another operation: nothing was done, and later it may be possible."""

STALE_CREDENTIAL = 401
REASONS = {
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
}
REASON_PARTS = (("resourcepoolexhausted", RefusalReason.CAPACITY),)
"""Parts of codes: those of a zone that has no room come in several forms, with and without details."""

STATUS_REASONS = {
    401: RefusalReason.AUTH,
    403: RefusalReason.AUTH,
    404: RefusalReason.NOT_FOUND,
    409: RefusalReason.CONFLICT,
    412: RefusalReason.CONFLICT,
}


class GceCallFailed(StatewardError):
    """A call that failed: the status and the code of the answer, and the outcome that it means."""

    call: str
    status: int
    code: str
    outcome: GceFailure
    text = "{call}: {outcome.message}"

    def outcome_for(self, key: str) -> GceFailure:
        """Return the outcome for a key."""
        return replace(self.outcome, key=key)

    @property
    def why(self) -> RefusalReason | None:
        """The reason of a refusal, or None if the call was not refused."""
        return self.outcome.why if isinstance(self.outcome, CallRefused) else None

    @property
    def is_not_ready(self) -> bool:
        """Whether the resource was in the middle of another operation."""
        return normalise_code(self.code) == NOT_READY


def refuse(call: str, why: RefusalReason, message: str) -> GceCallFailed:
    """Return the failure of a call that the driver itself refuses."""
    return GceCallFailed(call, 0, "", CallRefused("", why, message))


def is_read_only(call: str) -> bool:
    """Tell whether a call changes nothing."""
    return call.rpartition(".")[2] in READS


def normalise_code(code: str) -> str:
    """Return the one form of a reason (`quotaExceeded`) and of a code (`QUOTA_EXCEEDED`)."""
    return code.replace("_", "").lower()


def classify_error(call: str, error: Exception) -> GceCallFailed:
    """Return the failure that an error of the library means."""
    if isinstance(error, VendorCallError) and error.code is not None:
        return _from_response(call, error)
    name, message = type(error).__name__, first_line(f"{type(error).__name__}: {error}")
    if isinstance(error, AUTH_ERRORS) and not isinstance(error, TokenServerError):
        return GceCallFailed(call, STALE_CREDENTIAL, name, CallRefused("", RefusalReason.AUTH, message))
    if is_read_only(call) and isinstance(error, UNSENDABLE):
        return GceCallFailed(call, 0, name, CallRefused("", RefusalReason.INVALID, message))
    if is_read_only(call) or was_never_sent(error):
        return GceCallFailed(call, 0, name, TransientFailure("", message))
    return GceCallFailed(call, 0, name, CallUnanswered("", message))


def not_connected(call: str, error: Exception) -> GceCallFailed:
    """Return the failure of a call that could not be prepared, and never will be without a change."""
    is_credential = isinstance(error, (ServiceAccountMissing, *AUTH_ERRORS))
    why = RefusalReason.AUTH if is_credential else RefusalReason.INVALID
    return GceCallFailed(call, 0, type(error).__name__, CallRefused("", why, f"{type(error).__name__}: {error}"))


def failed_operation(call: str, operation: Any) -> GceCallFailed | None:  # noqa: ANN401 - the library's type
    """Return the failure of an operation; None if it has none so far.

    The library itself looks at the HTTP fields alone: an operation with errors and without them would count as done.
    """
    errors = list(operation.error.errors)
    status = int(operation.http_error_status_code or 0)
    if not errors and status < 400:
        return None
    code = str(errors[0].code) if errors else str(status)
    message = str(errors[0].message) if errors else str(operation.http_error_message)
    return GceCallFailed(call, status, code, classify_code(call, code, status or 400, message))


def classify_code(call: str, code: str, status: int, message: str, retry_after_s: float | None = None) -> GceFailure:
    """Return the outcome that a status and a code mean; `retry_after_s` is the server's own word, if it has one."""
    text, plain = f"{code or status}: {first_line(message)}", normalise_code(code)
    if status == 429 or plain in THROTTLING or (status == 503 and retry_after_s is not None):
        return CallThrottled("", DEFAULT_RETRY_AFTER_S if retry_after_s is None else retry_after_s, text)
    if plain == NOT_READY:
        return TransientFailure("", text)
    why = _reason(plain)
    if why is None and (status >= 500 or status == 408 or plain == "internalerror"):
        return TransientFailure("", text) if is_read_only(call) else CallUnanswered("", text)
    return CallRefused("", why or STATUS_REASONS.get(status, RefusalReason.INVALID), text)


def _from_response(call: str, error: Any) -> GceCallFailed:  # noqa: ANN401 - the library's type
    details = error.errors[0] if error.errors else {}
    code = str(details.get("reason", "")) if isinstance(details, Mapping) else ""
    headers = getattr(error.response, "headers", {})
    outcome = classify_code(call, code, int(error.code), str(error.message), _retry_after(headers))
    return GceCallFailed(call, int(error.code), code, outcome)


def _reason(plain: str) -> RefusalReason | None:
    return REASONS.get(plain) or next((why for part, why in REASON_PARTS if part in plain), None)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a `Retry-After`; one with a date counts as one without a number."""
    written = headers.get("Retry-After", "")
    if not written:
        return None
    try:
        return max(float(written), 0.0)
    except ValueError:
        return DEFAULT_RETRY_AFTER_S


def first_line(text: str) -> str:
    """Return the first line of a message: what follows may repeat the request."""
    return text.strip().splitlines()[0] if text.strip() else "no message"
