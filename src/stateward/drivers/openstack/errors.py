"""The errors of OpenStack's APIs as outcomes of the port.

The status of an answer says whether the call was refused; the reason is often in its text only. Nova refuses a quota
with 403, as it refuses what a user may not do; Neutron refuses it with 409. Without an answer the question is whether
the service can have done something. A call that only reads, or was never sent, has done nothing; the result of any
other call is unknown.
"""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time
from typing import Any, TypeAlias

from msgspec.structs import replace

from stateward.drivers.credential_fields import CredentialMissing
from stateward.drivers.openstack.openstack_sdk import (
    ABSENCE_ERRORS,
    LOGIN_ERRORS,
    HttpAnswer,
    HttpError,
    NotSent,
    Unauthorized,
    was_never_sent,
)
from stateward.drivers.port import CallRefused, CallThrottled, CallUnanswered, RefusalReason, TransientFailure
from stateward.errors import StatewardError

FailedOutcome: TypeAlias = CallRefused | CallThrottled | TransientFailure | CallUnanswered

DEFAULT_RETRY_AFTER_S = 1.0
"""The delay after throttling without a `Retry-After`."""

THROTTLING = frozenset({413, 429})
QUOTA = re.compile(r"quota|limit exceeded|maximum number of [\w ]+ exceeded", re.IGNORECASE)
CAPACITY = re.compile(
    r"no valid host|not enough hosts|exhausted all hosts|no more ip addresses|no more ip available|"
    r"insufficient compute resources",
    re.IGNORECASE,
)
REASONS = {
    400: RefusalReason.INVALID,
    401: RefusalReason.AUTH,
    403: RefusalReason.AUTH,
    404: RefusalReason.NOT_FOUND,
    405: RefusalReason.UNABLE,
    406: RefusalReason.UNABLE,
    409: RefusalReason.CONFLICT,
    501: RefusalReason.UNABLE,
}
ZERO_DISK = "zero disk"
"""Part of the text of a 403 that has nothing to do with rights: the flavor has no disk."""


class OpenStackCallFailed(StatewardError):
    """A call that failed: the error's code, and the outcome that it means."""

    call: str
    code: str
    outcome: FailedOutcome
    text = "{call}: {outcome.message}"

    def outcome_for(self, key: str) -> FailedOutcome:
        """Return the outcome for a key."""
        return replace(self.outcome, key=key)

    @property
    def why(self) -> RefusalReason | None:
        """The reason of a refusal, or None if nothing was refused."""
        return self.outcome.why if isinstance(self.outcome, CallRefused) else None


def fault_reason(text: str) -> RefusalReason | None:
    """Return the reason in the text of an error or of a server's fault, if it is quota or capacity."""
    if QUOTA.search(text):
        return RefusalReason.QUOTA
    return RefusalReason.CAPACITY if CAPACITY.search(text) else None


def classify_answer(call: str, answer: HttpAnswer, *, reads: bool) -> OpenStackCallFailed:
    """Return the failure that an answer with an error status means."""
    kind, message = error_of(answer)
    text = f"{answer.status} {kind}: {message}" if kind else f"{answer.status}: {message}"
    outcome = _outcome(answer, kind, message, text, reads=reads)
    return OpenStackCallFailed(call, kind or str(answer.status), outcome)


def _outcome(answer: HttpAnswer, kind: str, message: str, text: str, *, reads: bool) -> FailedOutcome:
    status, found = answer.status, fault_reason(f"{kind} {message}")
    if status in THROTTLING and (found is not RefusalReason.QUOTA or "retry-after" in answer.headers):
        return CallThrottled("", retry_after_s(answer.headers), text)
    if status >= 500 and status != 501:
        return TransientFailure("", text) if reads else CallUnanswered("", text)
    if status < 400:  # a redirection: nobody has carried the call out
        return CallRefused("", RefusalReason.INVALID, text)
    if found is not None and status != 401:
        return CallRefused("", found, text)
    if kind.endswith("InUse"):
        return CallRefused("", RefusalReason.IN_USE, text)
    if status == 403 and ZERO_DISK in message:
        return CallRefused("", RefusalReason.INVALID, text)
    return CallRefused("", REASONS.get(status, RefusalReason.INVALID), text)


def classify_error(call: str, error: Exception, *, reads: bool) -> OpenStackCallFailed:
    """Return the failure that an error of the SDK means."""
    if isinstance(error, NotSent):
        return _not_sent(call, error.error)
    name, message = type(error).__name__, first_line(f"{type(error).__name__}: {error}")
    if reads or was_never_sent(error):
        return OpenStackCallFailed(call, name, TransientFailure("", message))
    return OpenStackCallFailed(call, name, CallUnanswered("", message))


def _not_sent(call: str, error: Exception) -> OpenStackCallFailed:
    """Return the failure of a call whose token or endpoint could not be fetched; certainly nothing was done."""
    name, message = type(error).__name__, first_line(f"{type(error).__name__}: {error}")
    if isinstance(error, HttpError) and not isinstance(error, Unauthorized):
        status = int(error.http_status or 0)
        if status in THROTTLING:
            headers = {one.lower(): value for one, value in getattr(error.response, "headers", {}).items()}
            return OpenStackCallFailed(call, name, CallThrottled("", retry_after_s(headers), message))
        if status < 500:
            return OpenStackCallFailed(call, name, CallRefused("", RefusalReason.AUTH, message))
    elif isinstance(error, (Unauthorized, StatewardError, *LOGIN_ERRORS, *ABSENCE_ERRORS)):
        return not_connected(call, error)
    return OpenStackCallFailed(call, name, TransientFailure("", message))


def not_connected(call: str, error: Exception) -> OpenStackCallFailed:
    """Return the failure of a call that could not be prepared, and never will be without a change."""
    is_login = isinstance(error, (CredentialMissing, Unauthorized, *LOGIN_ERRORS))
    why = RefusalReason.AUTH if is_login else RefusalReason.INVALID
    text = first_line(f"{type(error).__name__}: {error}")
    return OpenStackCallFailed(call, type(error).__name__, CallRefused("", why, text))


def error_of(answer: HttpAnswer) -> tuple[str, str]:
    """Return the type and the message of an error: each service puts them into its own shape of JSON."""
    body: Any = answer.body
    for inner in body.values() if isinstance(body, Mapping) else ():
        if isinstance(inner, Mapping) and "message" in inner:
            return str(inner.get("type") or ""), first_line(str(inner["message"]))
    return "", first_line(answer.text[:500])


def retry_after_s(headers: Mapping[str, str]) -> float:
    """Return how long to wait, from seconds or from a date."""
    written = headers.get("retry-after", "")
    try:
        return max(float(written), 0.0)
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(written).timestamp() - time(), 0.0)
    except (TypeError, ValueError):
        return DEFAULT_RETRY_AFTER_S


def first_line(text: str) -> str:
    """Return the first line: the further ones of an error may be a traceback or a page."""
    return text.strip().splitlines()[0].strip() if text.strip() else "no message"
