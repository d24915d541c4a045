"""The errors of EC2 calls as outcomes of the port: the code of an answer says whether EC2 refused the call, and why."""

from typing import Any

from stateward.drivers.aws.sdk import CREDENTIAL_ERRORS, NEVER_SENT, ClientError, ParamValidationError
from stateward.drivers.cloud import errors
from stateward.drivers.port import RefusalReason

THROTTLING = (
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
)
SERVER_ERRORS = ("InternalError", "InternalFailure", "ServerInternal", "ServiceUnavailable", "Unavailable")
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

NOT_ALLOWED = (
    "AccessDenied",
    "AccessDeniedException",
    "Blocked",
    "IncompleteSignature",
    "MissingAuthenticationToken",
    "OptInRequired",
    "PendingVerification",
    "UnauthorizedOperation",
)
TABLE = errors.ErrorTable(
    codes={
        **dict.fromkeys(THROTTLING, errors.NoRefusal.THROTTLED),
        **dict.fromkeys(SERVER_ERRORS, errors.NoRefusal.UNKNOWN),
        **dict.fromkeys((*STALE_CREDENTIAL, *NOT_ALLOWED), RefusalReason.AUTH),
        "DependencyViolation": RefusalReason.IN_USE,
        "IdempotentInstanceTerminated": RefusalReason.CONFLICT,
        "IdempotentParameterMismatch": RefusalReason.CONFLICT,
        "OperationNotPermitted": RefusalReason.CONFLICT,
        "ResourceCountExceeded": RefusalReason.QUOTA,
    },
    patterns={
        r"^Insufficient": RefusalReason.CAPACITY,
        r"^Incorrect": RefusalReason.CONFLICT,
        r"^\S*LimitExceeded:": RefusalReason.QUOTA,
        r"^\S*NotFound:": RefusalReason.NOT_FOUND,
        r"^\S*InUse:": RefusalReason.IN_USE,
        r"^\S*(Duplicate|Conflict):": RefusalReason.CONFLICT,
    },
    has_codes_in_5xx=True,
)


def is_read_only(call: str) -> bool:
    """Tell whether a call changes nothing."""
    return call.startswith("describe_")


def classify_error(call: str, error: Exception) -> errors.CloudCallFailed:
    """Return the failure that an error of the SDK means."""
    if isinstance(error, ClientError):
        return classify_answer(call, error.response)
    if isinstance(error, (*CREDENTIAL_ERRORS, ParamValidationError)):
        return errors.not_connected(call, error, CREDENTIAL_ERRORS)
    return errors.not_answered(call, error, is_harmless=is_read_only(call) or isinstance(error, NEVER_SENT))


def classify_answer(call: str, answer: dict[str, Any]) -> errors.CloudCallFailed:
    """Return the failure that an answer with an error means."""
    error, metadata = answer.get("Error", {}), answer.get("ResponseMetadata", {})
    code, status = str(error.get("Code", "")), int(metadata.get("HTTPStatusCode", 0))
    text = f"{code}: {errors.first_line(str(error.get('Message', '')))}"
    after = errors.retry_after_s(metadata.get("HTTPHeaders", {}))
    outcome = TABLE.outcome(status, code, text, reads=is_read_only(call), retry_after_s=after)
    return errors.CloudCallFailed(call, code, outcome, errors.REJECTED if code in STALE_CREDENTIAL else status)
