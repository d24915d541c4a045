"""The errors of EC2 calls as outcomes of the port.

The code of an answer says whether EC2 refused the call, and why. Without an answer the question is whether EC2 can have
done something. A call that only reads, or was never sent, has done nothing; the result of any other call is unknown.
"""

from typing import TypeAlias

from msgspec.structs import replace

from stateward.drivers.aws.credential_refs import CredentialMissing
from stateward.drivers.aws.sdk import CREDENTIAL_ERRORS, NEVER_SENT, ClientError, ParamValidationError
from stateward.drivers.port import CallRefused, CallThrottled, CallUnanswered, RefusalReason, TransientFailure
from stateward.errors import StatewardError

FailedOutcome: TypeAlias = CallRefused | CallThrottled | TransientFailure | CallUnanswered

DEFAULT_RETRY_AFTER_S = 1.0
"""The delay after throttling: EC2 sends no `Retry-After`."""

THROTTLING = frozenset(
    {
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "PriorRequestNotComplete",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
SERVER_ERRORS = frozenset({"InternalError", "InternalFailure", "ServerInternal", "ServiceUnavailable", "Unavailable"})
STALE_CREDENTIAL = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
"""The codes for a credential that may have been renewed meanwhile."""

NOT_ALLOWED = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "Blocked",
        "IncompleteSignature",
        "MissingAuthenticationToken",
        "OptInRequired",
        "PendingVerification",
        "UnauthorizedOperation",
    }
)
REASONS = {
    **dict.fromkeys(STALE_CREDENTIAL | NOT_ALLOWED, RefusalReason.AUTH),
    "DependencyViolation": RefusalReason.IN_USE,
    "IdempotentInstanceTerminated": RefusalReason.CONFLICT,
    "IdempotentParameterMismatch": RefusalReason.CONFLICT,
    "OperationNotPermitted": RefusalReason.CONFLICT,
    "ResourceCountExceeded": RefusalReason.QUOTA,
}
REASON_PREFIXES = (("Insufficient", RefusalReason.CAPACITY), ("Incorrect", RefusalReason.CONFLICT))
REASON_SUFFIXES = (
    ("LimitExceeded", RefusalReason.QUOTA),
    ("NotFound", RefusalReason.NOT_FOUND),
    ("InUse", RefusalReason.IN_USE),
    ("Duplicate", RefusalReason.CONFLICT),
    ("Conflict", RefusalReason.CONFLICT),
)


class Ec2CallFailed(StatewardError):
    """A call that failed: EC2's code, and the outcome that it means."""

    call: str
    code: str
    outcome: FailedOutcome
    text = "{call}: {outcome.message}"

    def outcome_for(self, key: str) -> FailedOutcome:
        """Return the outcome for a key."""
        return replace(self.outcome, key=key)

    @property
    def why(self) -> RefusalReason | None:
        """The reason of a refusal, or None if EC2 did not refuse."""
        return self.outcome.why if isinstance(self.outcome, CallRefused) else None


def is_read_only(call: str) -> bool:
    """Tell whether a call changes nothing."""
    return call.startswith("describe_")


def classify_error(call: str, error: Exception) -> Ec2CallFailed:
    """Return the failure that an error of the SDK means."""
    if isinstance(error, ClientError):
        return _from_response(call, error.response)
    if isinstance(error, (*CREDENTIAL_ERRORS, ParamValidationError)):
        return not_connected(call, error)
    name, message = type(error).__name__, _first_line(f"{type(error).__name__}: {error}")
    if is_read_only(call) or isinstance(error, NEVER_SENT):
        return Ec2CallFailed(call, name, TransientFailure("", message))
    return Ec2CallFailed(call, name, CallUnanswered("", message))


def not_connected(call: str, error: Exception) -> Ec2CallFailed:
    """Return the failure of a call that could not be prepared, and never will be without a change."""
    why = RefusalReason.AUTH if isinstance(error, (CredentialMissing, *CREDENTIAL_ERRORS)) else RefusalReason.INVALID
    return Ec2CallFailed(call, type(error).__name__, CallRefused("", why, f"{type(error).__name__}: {error}"))


def classify_code(
    call: str, code: str, status: int, message: str, after: float = DEFAULT_RETRY_AFTER_S
) -> FailedOutcome:
    """Return the outcome that an error code of EC2 means."""
    text = f"{code}: {_first_line(message)}"
    if code in THROTTLING:
        return CallThrottled("", after, text)
    why = None if code in SERVER_ERRORS else _reason(code)
    if why is None and (code in SERVER_ERRORS or status >= 500):
        return TransientFailure("", text) if is_read_only(call) else CallUnanswered("", text)
    return CallRefused("", why or RefusalReason.INVALID, text)


def _from_response(call: str, response: dict[str, dict[str, str]]) -> Ec2CallFailed:
    error, metadata = response.get("Error", {}), response.get("ResponseMetadata", {})
    code, status = str(error.get("Code", "")), int(metadata.get("HTTPStatusCode", 0))
    outcome = classify_code(
        call, code, status, str(error.get("Message", "")), _retry_after(metadata.get("HTTPHeaders", {}))
    )
    return Ec2CallFailed(call, code, outcome)


def _reason(code: str) -> RefusalReason | None:
    if code in REASONS:
        return REASONS[code]
    found = [why for start, why in REASON_PREFIXES if code.startswith(start)]
    found += [why for end, why in REASON_SUFFIXES if code.endswith(end)]
    return found[0] if found else None


def _retry_after(headers: object) -> float:
    seconds = headers.get("retry-after", "") if isinstance(headers, dict) else ""
    try:
        return max(float(seconds), 0.0)
    except ValueError:
        return DEFAULT_RETRY_AFTER_S


def _first_line(text: str) -> str:
    """Return the first line: the message of a bad signature goes on with the signed headers and the session token."""
    return text.strip().splitlines()[0] if text.strip() else "no message"
