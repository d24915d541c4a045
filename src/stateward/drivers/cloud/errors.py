"""Failed calls to a cloud, and the tables that say what a cloud's codes mean.

Every cloud has its own codes, and the questions are the same: did it refuse the call, and why? Does it throttle? Is it
certain that nothing was done? If none of these is certain, a call that only reads has done nothing, and the result of
any other call is unknown. A driver has one `ErrorTable`, and writes down only what is special about its cloud.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from enum import Enum
from math import isfinite
from time import time
from typing import TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from stateward.credential_fields import CredentialMissing
from stateward.drivers import port
from stateward.errors import BadInput, StatewardError

FailedOutcome: TypeAlias = port.CallRefused | port.CallThrottled | port.TransientFailure | port.CallUnanswered

Answer = TypeVar("Answer")

REJECTED = 401
"""The status of an answer to a call whose credential is not, or no longer, valid."""


class CloudCallFailed(StatewardError):
    """A call that failed: the code and the status of the answer, if there was one, and the outcome that they mean."""

    call: str
    code: str
    outcome: FailedOutcome
    status: int = 0
    text = "{call}: {outcome.message}"

    def outcome_for(self, key: str) -> FailedOutcome:
        """Return the outcome for a key."""
        return replace(self.outcome, key=key)

    @property
    def why(self) -> port.RefusalReason | None:
        """The reason of a refusal, or None if the call was not refused."""
        return self.outcome.why if isinstance(self.outcome, port.CallRefused) else None

    def hiding(self, hide: Callable[[str], str]) -> "CloudCallFailed":
        """Return the failure without the secrets of a credential."""
        outcome = replace(self.outcome, message=hide(self.outcome.message))
        return CloudCallFailed(self.call, self.code, outcome, self.status)

    def listing(self, machines: Sequence[port.Observation] = ()) -> port.MachineListing:
        """Return the listing that the failure has ended."""
        after = self.outcome.retry_after_s if isinstance(self.outcome, port.CallThrottled) else 0.0
        return port.MachineListing(machines, complete=False, problem=str(self), retry_after_s=after)


class NoRefusal(Enum):
    """What an answer with an error can mean, other than a refusal."""

    THROTTLED = "throttled"
    NOT_DONE = "nothing was done, and a repetition may succeed"
    UNKNOWN = "the call may have been carried out"


Meaning: TypeAlias = port.RefusalReason | NoRefusal


class ErrorTable(Struct, frozen=True):
    """What the codes and statuses of a cloud's answers mean.

    Patterns are searched in the text of a failure, which begins with its code. Without `has_codes_in_5xx`, a status of
    500 or more outweighs the code; some clouds answer with it when they have no capacity. A redirection is a refusal,
    unless `statuses` says otherwise: nobody has carried the call out.
    """

    codes: Mapping[str, Meaning]
    patterns: Mapping[str, Meaning] = {}
    statuses: Mapping[int, Meaning] = {}
    has_codes_in_5xx: bool = False
    retry_after_s: float = 1.0  # for a cloud that throttles, and does not say for how long

    def outcome(
        self, status: int, code: str, text: str, *, reads: bool, retry_after_s: float | None = None
    ) -> FailedOutcome:
        """Return the outcome that an answer with an error means; `reads`: the call changes nothing."""
        meaning = self._meaning(status, code, text)
        if isinstance(meaning, port.RefusalReason):
            return port.CallRefused("", meaning, text)
        if meaning is NoRefusal.THROTTLED:
            return port.CallThrottled("", self.retry_after_s if retry_after_s is None else retry_after_s, text)
        return (port.TransientFailure if reads or meaning is NoRefusal.NOT_DONE else port.CallUnanswered)("", text)

    def _meaning(self, status: int, code: str, text: str) -> Meaning:
        by_status = NoRefusal.THROTTLED if status == 429 else self.statuses.get(status)
        if by_status is None and (status < 300 or status == 408 or status >= 500):
            by_status = NoRefusal.UNKNOWN
        if by_status is NoRefusal.THROTTLED or (by_status is NoRefusal.UNKNOWN and not self.has_codes_in_5xx):
            return by_status
        by_pattern = (meaning for pattern, meaning in self.patterns.items() if re.search(pattern, text))
        return self.codes.get(code) or next(by_pattern, None) or by_status or port.RefusalReason.INVALID


async def outcome_of(key: str, work: Awaitable[port.Outcome]) -> port.Outcome:
    """Return the outcome of work for a key, also if it fails."""
    try:
        return await work
    except CloudCallFailed as failed:
        return failed.outcome_for(key)
    except BadInput as error:
        return port.CallRefused(key, port.RefusalReason.INVALID, str(error))


async def found_or_none(call: Awaitable[Answer]) -> Answer | None:
    """Return the answer of a call about something; None if that does not exist."""
    try:
        return await call
    except CloudCallFailed as failed:
        if failed.why is port.RefusalReason.NOT_FOUND:
            return None
        raise


def refusal(call: str, why: port.RefusalReason, message: str) -> CloudCallFailed:
    """Return the failure of a call that the driver itself refuses."""
    return CloudCallFailed(call, "Refused", port.CallRefused("", why, message))


def not_connected(
    call: str, error: Exception, login_errors: tuple[type[Exception], ...] = (), status: int = 0
) -> CloudCallFailed:
    """Return the failure of a call that could not be prepared, and never will be without a change."""
    is_login = isinstance(error, (CredentialMissing, *login_errors))
    why = port.RefusalReason.AUTH if is_login else port.RefusalReason.INVALID
    return CloudCallFailed(call, type(error).__name__, port.CallRefused("", why, message_of(error)), status)


def not_answered(call: str, error: Exception, *, is_harmless: bool) -> CloudCallFailed:
    """Return the failure of a call without an answer; `is_harmless`: it only reads, or was certainly never sent."""
    outcome = (port.TransientFailure if is_harmless else port.CallUnanswered)("", message_of(error))
    return CloudCallFailed(call, type(error).__name__, outcome)


def driver_closed(call: str) -> CloudCallFailed:
    """Return the failure of a call that a closed driver does not send."""
    return CloudCallFailed(call, "Closed", port.TransientFailure("", "the driver is closed"))


def message_of(error: Exception) -> str:
    """Return an error of a library as one line."""
    return first_line(f"{type(error).__name__}: {error}")


def first_line(text: str) -> str:
    """Return the first line of a message: what follows may be a traceback, the request, or headers with a token."""
    return text.strip().splitlines()[0].strip() if text.strip() else "no message"


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return how long to wait, from the seconds or the date of a `Retry-After`; None if there is none to read."""
    written = next((value for name, value in headers.items() if name.lower() == "retry-after"), "")
    try:
        seconds = float(written)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(written).timestamp() - time()
        except (TypeError, ValueError):
            return None
    return max(seconds, 0.0) if isfinite(seconds) else None
