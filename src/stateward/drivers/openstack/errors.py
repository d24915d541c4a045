"""The errors of OpenStack's APIs as outcomes of the port.

The status of an answer says whether the call was refused; the reason is often in its text only. Nova refuses a quota
with 403, as it refuses what a user may not do; Neutron refuses it with 409.
"""

import re
from collections.abc import Mapping
from typing import Any

from stateward.drivers.cloud import errors
from stateward.drivers.openstack import sdk
from stateward.drivers.port import CallRefused, RefusalReason
from stateward.errors import StatewardError

FAULTS = {
    r"(?i)quota|limit exceeded|maximum number of [\w ]+ exceeded": RefusalReason.QUOTA,
    r"(?i)no valid host|not enough hosts|exhausted all hosts|no more ip addresses|no more ip available"
    r"|insufficient compute resources": RefusalReason.CAPACITY,
}
"""The reasons that only the text of an error shows, or that of a server's fault."""

TABLE = errors.ErrorTable(
    codes={},
    patterns={
        **FAULTS,
        r"^\S+ \S*InUse:": RefusalReason.IN_USE,
        "^403.*zero disk": RefusalReason.INVALID,  # it has nothing to do with rights: the flavor has no disk
    },
    statuses={
        400: RefusalReason.INVALID,
        403: RefusalReason.AUTH,
        404: RefusalReason.NOT_FOUND,
        405: RefusalReason.UNABLE,
        406: RefusalReason.UNABLE,
        409: RefusalReason.CONFLICT,
        413: errors.NoRefusal.THROTTLED,
        501: RefusalReason.UNABLE,
    },
)

LOGIN_TABLE = errors.ErrorTable(
    codes={}, statuses={**dict.fromkeys(range(500), RefusalReason.AUTH), 413: errors.NoRefusal.THROTTLED}
)
"""The meaning of Keystone's answers to a login."""


def fault_reason(text: str) -> RefusalReason | None:
    """Return the reason in the text of an error or of a server's fault, if it is quota or capacity."""
    return next((why for pattern, why in FAULTS.items() if re.search(pattern, text)), None)


def classify_answer(call: str, answer: sdk.HttpAnswer, *, reads: bool) -> errors.CloudCallFailed:
    """Return the failure that an answer with an error status means."""
    kind, message = error_of(answer)
    status, after = answer.status, errors.retry_after_s(answer.headers)
    text = f"{status} {kind}: {message}" if kind else f"{status}: {message}"
    if status == errors.REJECTED:
        outcome: errors.FailedOutcome = CallRefused("", RefusalReason.AUTH, text)
    elif status in (413, 429) and after is None and fault_reason(text) is RefusalReason.QUOTA:
        outcome = CallRefused("", RefusalReason.QUOTA, text)
    else:
        outcome = TABLE.outcome(status, kind, text, reads=reads, retry_after_s=after)
    return errors.CloudCallFailed(call, kind or str(status), outcome, status)


def classify_error(call: str, error: Exception, *, reads: bool) -> errors.CloudCallFailed:
    """Return the failure that an error of the SDK means."""
    if isinstance(error, sdk.NotSent):
        return _not_sent(call, error.error)
    return errors.not_answered(call, error, is_harmless=reads or sdk.was_never_sent(error))


def _not_sent(call: str, error: Exception) -> errors.CloudCallFailed:
    """Return the failure of a call whose token or endpoint could not be fetched; certainly nothing was done."""
    if isinstance(error, sdk.Unauthorized):
        return errors.not_connected(call, error, (sdk.Unauthorized,), errors.REJECTED)
    if isinstance(error, (StatewardError, *sdk.LOGIN_ERRORS, *sdk.ABSENCE_ERRORS)):
        return errors.not_connected(call, error, sdk.LOGIN_ERRORS)
    if not isinstance(error, sdk.HttpError):
        return errors.not_answered(call, error, is_harmless=True)
    after, status = errors.retry_after_s(getattr(error.response, "headers", {})), int(error.http_status or 0)
    outcome = LOGIN_TABLE.outcome(status, "", errors.message_of(error), reads=True, retry_after_s=after)
    return errors.CloudCallFailed(call, type(error).__name__, outcome)


def error_of(answer: sdk.HttpAnswer) -> tuple[str, str]:
    """Return the type and the message of an error: each service puts them into its own shape of JSON."""
    body: Any = answer.body
    for inner in body.values() if isinstance(body, Mapping) else ():
        if isinstance(inner, Mapping) and "message" in inner:
            return str(inner.get("type") or ""), errors.first_line(str(inner["message"]))
    return "", errors.first_line(answer.text[:500])
