"""The errors of Azure calls as outcomes of the port.

The code of an answer says whether Azure refused the call, and why. Without an answer the question is whether Azure can
have done something. A call that only reads, or was never sent, has done nothing; the result of any other call is
unknown.
"""

from collections.abc import Mapping
from typing import TypeAlias

from msgspec.structs import replace

from stateward.drivers.azure.arm_sdk import (
    NEVER_SENT,
    ClientAuthenticationError,
    DecodeError,
    HttpResponseError,
    TokenFailed,
)
from stateward.drivers.port import CallRefused, CallThrottled, CallUnanswered, RefusalReason, TransientFailure
from stateward.errors import StatewardError

AzureFailure: TypeAlias = CallRefused | CallThrottled | TransientFailure | CallUnanswered

DEFAULT_RETRY_AFTER_S = 5.0
"""The delay after throttling if Azure sends no `Retry-After`."""

TRANSIENT = frozenset(
    {
        "AnotherOperationInProgress",
        "NicReservedForAnotherVm",  # for three minutes after a virtual machine could not be created
        "ReferencedResourceNotProvisioned",
        "RetryableError",
        "RetryableErrorDueToAnotherOperation",
    }
)
"""The codes of answers that mean: not done, and a repetition may succeed."""

CAPACITY = frozenset(
    {
        "AllocationFailed",
        "OverconstrainedAllocationRequest",
        "OverconstrainedZonalAllocationRequest",
        "SkuNotAvailable",
        "SubnetIsFull",
        "ZonalAllocationFailed",
    }
)
NO_SUCH_SCOPE = frozenset({"ResourceGroupNotFound", "SubscriptionNotFound", "InvalidSubscriptionId"})
"""The codes that say nothing about a resource: its whole scope is missing, or is not shown to this credential."""

REASONS = {
    **dict.fromkeys(CAPACITY, RefusalReason.CAPACITY),
    **dict.fromkeys(NO_SUCH_SCOPE, RefusalReason.INVALID),
    "AuthorizationFailed": RefusalReason.AUTH,
    "InvalidResourceReference": RefusalReason.NOT_FOUND,
    "LinkedAuthorizationFailed": RefusalReason.AUTH,
    "MissingSubscriptionRegistration": RefusalReason.AUTH,
    "NetworkSecurityGroupInUse": RefusalReason.IN_USE,
    "PublicIPAddressCannotBeDeleted": RefusalReason.IN_USE,
}
REASON_PREFIXES = (("InUse", RefusalReason.IN_USE),)
REASON_SUFFIXES = (
    ("QuotaExceeded", RefusalReason.QUOTA),
    ("LimitReached", RefusalReason.QUOTA),
    ("LimitExceeded", RefusalReason.QUOTA),
    ("NotFound", RefusalReason.NOT_FOUND),
    ("InUse", RefusalReason.IN_USE),
)
STATUS_REASONS = {
    401: RefusalReason.AUTH,
    403: RefusalReason.AUTH,
    409: RefusalReason.CONFLICT,
    412: RefusalReason.CONFLICT,
}


class AzureCallFailed(StatewardError):
    """A call that failed: the status and code of Azure's answer, if there was one, and the outcome that it means."""

    call: str
    status: int
    code: str
    outcome: AzureFailure
    text = "{call}: {outcome.message}"

    def outcome_for(self, key: str) -> AzureFailure:
        """Return the outcome for a key."""
        return replace(self.outcome, key=key)

    @property
    def why(self) -> RefusalReason | None:
        """The reason of a refusal, or None if Azure did not refuse."""
        return self.outcome.why if isinstance(self.outcome, CallRefused) else None


def is_read_only(call: str) -> bool:
    """Tell whether a call changes nothing: `compute.virtual_machines.get`, `..._skus.list`."""
    return call.rpartition(".")[2].startswith(("get", "list"))


def classify_error(call: str, error: Exception) -> AzureCallFailed:
    """Return the failure that an error of the libraries means."""
    if isinstance(error, TokenFailed):
        return _without_token(call, error)
    if isinstance(error, HttpResponseError) and not isinstance(error, DecodeError) and error.response is not None:
        return _from_answer(call, error)
    message = first_line(f"{type(error).__name__}: {error}")
    sent = not isinstance(getattr(error, "inner_exception", None) or error, NEVER_SENT)
    outcome: AzureFailure = CallUnanswered("", message)
    if is_read_only(call) or not sent:
        outcome = TransientFailure("", message)
    return AzureCallFailed(call, 0, type(error).__name__, outcome)


def not_connected(call: str, error: Exception, why: RefusalReason) -> AzureCallFailed:
    """Return the failure of a call that could not be prepared, and never will be without a change."""
    message = first_line(f"{type(error).__name__}: {error}")
    return AzureCallFailed(call, 0, type(error).__name__, CallRefused("", why, message))


def classify_answer(call: str, status: int, code: str, message: str, after: float) -> AzureFailure:
    """Return the outcome that an answer of Azure means."""
    text = f"{code or status}: {first_line(message)}"
    if status == 429:
        return CallThrottled("", after, text)
    if status >= 500 or status < 400 or status == 408:
        return TransientFailure("", text) if is_read_only(call) else CallUnanswered("", text)
    if code in TRANSIENT:
        return TransientFailure("", text)
    return CallRefused("", _reason(status, code, message), text)


def first_line(text: str) -> str:
    """Return the first line of a message: more may quote headers."""
    return text.strip().splitlines()[0] if text.strip() else "no message"


def _without_token(call: str, error: TokenFailed) -> AzureCallFailed:
    cause = error.__cause__
    status = getattr(getattr(cause, "response", None), "status_code", None) or 0
    if isinstance(cause, (ClientAuthenticationError, ValueError)) and status != 429 and status < 500:
        return not_connected(call, error, RefusalReason.AUTH)
    return AzureCallFailed(call, 0, type(cause).__name__, TransientFailure("", first_line(f"no token: {error}")))


def _from_answer(call: str, error: HttpResponseError) -> AzureCallFailed:
    code, message = str(getattr(error.error, "code", "") or ""), str(getattr(error.error, "message", "") or "")
    status = error.status_code or 0
    after = _retry_after(getattr(error.response, "headers", {}))
    outcome = classify_answer(call, status, code, message or str(error.reason or ""), after)
    return AzureCallFailed(call, status, code, outcome)


def _reason(status: int, code: str, message: str) -> RefusalReason:
    if code in REASONS:
        return REASONS[code]
    if code == "OperationNotAllowed" and "quota" in message.lower():
        return RefusalReason.QUOTA
    found = [why for start, why in REASON_PREFIXES if code.startswith(start)]
    found += [why for end, why in REASON_SUFFIXES if code.endswith(end)]
    return found[0] if found else STATUS_REASONS.get(status, RefusalReason.INVALID)


def _retry_after(headers: Mapping[str, str]) -> float:
    try:
        return max(float(headers.get("Retry-After", "")), 0.0)
    except ValueError:
        return DEFAULT_RETRY_AFTER_S
