"""The provider calls of an operation, as its timeline shows them: where, what, on what, when, and how each ended.

A handler may poll a provider for an hour, and one action may create 10,000 VMs. So the calls are records among the
steps of their operation, which are written with what is written anyway: a step, a line of progress, the end. Calls of
one attempt that differ only in their times are one record with their number, and the oldest records are dropped.

A call whose worker was killed before it wrote anything is not recorded.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from stateward.aio.coalescer import CallWitness
from stateward.engine.job_steps import CALL, CALLS_DROPPED, Steps
from stateward.engine.stored_texts import sanitize_text
from stateward.engine.work_errors import describe_error

MAX_CALLS_KEPT = 50
"""How many records of calls an operation keeps, the latest ones."""

MAX_ERROR_CHARS = 500
"""How much of the error of a call is kept."""

STOPPED = "stopped before an answer came"


class CallRecord(Struct, array_like=True):
    """A call, or several that differ only in their times; without an end, its answer has not come."""

    at: str
    name: str
    target: str
    began: float
    ended: float | None = None
    error: str | None = None
    count: int = 1
    slowest_s: float = 0.0


class CallLog:
    """The calls of one attempt; it keeps their records among the steps of the job."""

    __slots__ = ("_clock", "_equal", "_mask", "_number", "_steps", "records")

    def __init__(self, steps: Callable[[], Steps], clock: Callable[[], float], mask: Callable[[str], str]) -> None:
        self._steps, self._clock, self._mask = steps, clock, mask
        self._equal: dict[tuple[str, str, str, str | None], str] = {}  # bounded by: the calls of one attempt
        taken = steps()
        self._number = max((int(key.removeprefix(CALL)) for key in taken if _is_call(key)), default=0) if taken else 0
        self.records: Steps = {}
        """The records of this attempt, and the number of those that were dropped."""

    def begin(self, name: str, at: str, target: str) -> str:
        """Record that a call begins; returns the key of its record."""
        self._number += 1
        key, steps = f"{CALL}{self._number}", self._steps()
        steps[key] = self.records[key] = CallRecord(at, name, target, self._clock())
        if len(steps) > MAX_CALLS_KEPT:
            for oldest in [key for key in steps if _is_call(key)][:-MAX_CALLS_KEPT]:
                dropped = msgspec.convert(steps.pop(oldest), CallRecord)
                self.records.pop(oldest, None)
                steps[CALLS_DROPPED] = self.records[CALLS_DROPPED] = steps.get(CALLS_DROPPED, 0) + dropped.count
        return key

    def end(self, key: str, error: str | None) -> None:
        """Record how a call has ended."""
        ended: CallRecord | None = self.records.get(key)
        if ended is None:  # dropped
            return
        ended.ended = self._clock()
        ended.slowest_s = ended.ended - ended.began
        ended.error = None if error is None else sanitize_text(self._mask(error))[:MAX_ERROR_CHARS]
        same = (ended.at, ended.name, ended.target, ended.error)
        first: CallRecord | None = self.records.get(self._equal.get(same, ""))
        if first is None:
            self._equal[same] = key
        else:
            first.count, first.ended = first.count + 1, ended.ended
            first.slowest_s = max(first.slowest_s, ended.slowest_s)
            del self.records[key]
            self._steps().pop(key, None)


class RecordedCall:
    """The record of one call while its block runs; a class, because a generator takes twice the time."""

    __slots__ = ("_at", "_key", "_log", "_name", "_target")

    def __init__(self, log: CallLog, name: str, at: str, target: str) -> None:
        self._log, self._name, self._at, self._target = log, name, at, target
        self._key = ""

    def __enter__(self) -> None:
        self._key = self._log.begin(self._name, self._at, self._target)

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if error is None or isinstance(error, Exception):
            self._log.end(self._key, error_of(error))
        elif isinstance(error, asyncio.CancelledError):
            self._log.end(self._key, STOPPED)


class WatchedCall:
    """The witness of one call, also after its job has stopped waiting."""

    __slots__ = ("_at", "_job", "_key", "_log", "_name", "_target")

    def __init__(self, log: CallLog, job: CallWitness, name: str, at: str, target: str) -> None:
        self._log, self._job, self._name, self._at, self._target = log, job, name, at, target
        self._key = ""

    def note_sent(self) -> None:
        """Note that the call was sent."""
        self._job.note_sent()
        self._key = self._log.begin(self._name, self._at, self._target)

    def note_answer(self, answer: object) -> None:
        """Note the answer, or the error that the call ended with."""
        self._job.note_answer(answer)
        self._log.end(self._key, error_of(answer))

    def note_end(self, call: asyncio.Future[Any]) -> None:
        """Note the end of a call that was a task."""
        if call.cancelled():
            self._job.note_answer(None)
            self._log.end(self._key, STOPPED)
        else:
            self.note_answer(call.exception() or call.result())


def _is_call(key: str) -> bool:
    return key.startswith(CALL) and key != CALLS_DROPPED


def error_of(answer: object) -> str | None:
    """Return the error that an answer is or tells; drivers tell it in an attribute `problem`."""
    if isinstance(answer, BaseException):
        return describe_error(answer)
    problem = getattr(answer, "problem", None)
    return problem if isinstance(problem, str) and problem else None
