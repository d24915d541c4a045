"""Errors by which a handler says what happens next, and the policy after which a failed step is tried again."""

import asyncio
from collections.abc import Iterator

from msgspec import Struct

from stateward.engine.transitions import time_text
from stateward.errors import BadInput, StatewardError
from stateward.store.errors import StoreError

UNCLEAR_ERRORS = (OSError, EOFError, asyncio.TimeoutError)
"""Errors of a broken connection: the call may or may not have been carried out."""


class WorkError(StatewardError):
    """The base of the errors by which a handler says what happens next."""

    def __init__(self, message: str, *, after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.after = after

    def __str__(self) -> str:
        return self.message


class Temporary(WorkError):
    """The attempt failed, and certainly had no effect: try again later."""


class Permanent(WorkError):
    """The attempt failed, and every other attempt would: end the operation."""


class Unknown(WorkError):
    """The attempt may or may not have had an effect: observe first, then try again."""


class Throttled(WorkError):
    """The provider throttles: back off the whole lane."""


class StepFailed(Permanent):
    """A step has failed as often as its retry policy allows, or there is no time for another attempt."""


class PastDeadline(Permanent):
    """A sleep or a wait would last longer than the operation may take."""

    def __init__(self, until: float, deadline: float) -> None:
        super().__init__(f"it would wait until {time_text(until)}, but its deadline is {time_text(deadline)}")
        self.until, self.deadline = until, deadline


class SignalTimedOut(Permanent):
    """A signal did not come in time."""

    def __init__(self, signal: str) -> None:
        super().__init__(f"the signal {signal} did not come in time")
        self.signal = signal


class Suspended(BaseException):
    """A job gives its claim back, and its handler is called again later; only a worker raises and catches it.

    It is no `Exception`, because a handler that catches all exceptions of a step must not go on without its result.
    """


class Parked(StatewardError):
    """The operation waits until another party moves the object on, or until its deadline."""

    text = "waits to be moved on"


class WaitingForChildren(StatewardError):
    """Child operations carry out the next step; the operation is claimed again when they have ended."""

    text = "waits for its children"


class Fenced(StatewardError):
    """The worker no longer owns the operation: its reports do not count."""

    op: str
    text = "operation {op} belongs to another worker now, or has ended"


DECISIVE = (KeyboardInterrupt, GeneratorExit, Fenced, StoreError, Suspended, WaitingForChildren)
"""Errors that say who may continue an operation, or when: in a group of errors, they have the last word."""


def merge_errors(error: BaseException) -> BaseException:
    """Return the one error that says what the parts of a group say together; another error is returned as it is.

    If a part may have had an effect, the whole may. Only if each part is temporary, so is the whole.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    parts = list(parts_of(error))
    if (decisive := next((part for part in parts if isinstance(part, DECISIVE)), None)) is not None:
        return decisive
    text = "; ".join(dict.fromkeys(map(describe_error, parts)))
    after = max((part.after for part in parts if isinstance(part, WorkError) and part.after is not None), default=None)
    if any(isinstance(part, (Unknown, asyncio.CancelledError, *UNCLEAR_ERRORS)) for part in parts):
        return Unknown(text, after=after)
    if not all(isinstance(part, Temporary | Throttled) for part in parts):
        return Permanent(text)
    is_throttled = any(isinstance(part, Throttled) for part in parts)
    return (Throttled if is_throttled else Temporary)(text, after=after)


def source_of(error: BaseException) -> BaseException:
    """Return the group of which an error is the merged one; of any other error, the error itself."""
    return error.__cause__ if isinstance(error.__cause__, BaseExceptionGroup) else error


def parts_of(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors of a group, also of groups in it; of any other error, the error itself."""
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for part in error.exceptions:
        yield from parts_of(part)


def describe_error(error: BaseException) -> str:
    """Return an error as text: its own if it says what happens next, else its class too; a text may fail to be made."""
    try:
        return str(error) if isinstance(error, WorkError) and str(error) else f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


class Retry(Struct, frozen=True, kw_only=True):
    """When a failed step is tried again: after errors of the types `on`, up to so many attempts, at growing intervals.

    The first interval is `first_s`, each further one `factor` times as long, and none is longer than `most_s`. An error
    that says itself how long to wait (`after`) has the last word.
    """

    attempts: int = 5
    first_s: float = 1.0
    factor: float = 2.0
    most_s: float = 60.0
    on: tuple[type[Exception], ...] = (Temporary, Unknown, OSError, EOFError)

    def __post_init__(self) -> None:
        for field, least in {"attempts": 1, "first_s": 0.0, "factor": 1.0, "most_s": 0.0}.items():
            value = getattr(self, field)
            if not value >= least:
                raise BadInput(field, value, f"{least:g} or more")

    def delay_s(self, failures: int, error: BaseException) -> float:
        """Return the seconds to wait after so many failures."""
        if (asked := getattr(error, "after", None)) is not None:
            return float(asked)
        delay_s = min(self.first_s, self.most_s)
        for _ in range(1, failures):
            if delay_s >= self.most_s:
                break
            delay_s = min(self.most_s, delay_s * self.factor)
        return delay_s
