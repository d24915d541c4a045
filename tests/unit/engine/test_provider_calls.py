"""The records of provider calls: bounded, equal ones merged, without secrets."""

import asyncio

import pytest

from stateward.drivers import CallAccepted, CallRefused, CallThrottled, CallUnanswered, RefusalReason, TransientFailure
from stateward.engine.job_steps import CALLS_DROPPED, Steps
from stateward.engine.provider_calls import MAX_CALLS_KEPT, MAX_ERROR_CHARS, CallLog, CallRecord, RecordedCall, error_of


class Log(CallLog):
    """A log whose clock is set by the test."""

    def __init__(self, steps: Steps | None = None) -> None:
        self.steps: Steps = {} if steps is None else steps
        self.now = 100.0
        super().__init__(lambda: self.steps, lambda: self.now, lambda text: text.replace("hunter2", "***"))

    def call(self, name: str, took: float, error: str | None = None) -> None:
        key = self.begin(name, "aws/here", "vm-1")
        self.now += took
        self.end(key, error)


def test_calls_that_differ_only_in_their_times_are_one_record() -> None:
    log = Log()
    log.call("create", 0.5, "throttled")
    log.call("create", 2.0, "throttled")
    log.call("create", 1.0)
    assert log.steps == {
        "call: 1": CallRecord("aws/here", "create", "vm-1", 100.0, 102.5, "throttled", 2, 2.0),
        "call: 3": CallRecord("aws/here", "create", "vm-1", 102.5, 103.5, None, 1, 1.0),
    }


def test_the_calls_of_an_earlier_attempt_stay_as_they_were_stored() -> None:
    stored = ["aws/here", "create", "vm-1", 90.0, 91.0, None, 1, 1.0]
    log = Log({"call: 7": stored})
    log.call("create", 1.0)
    assert list(log.steps) == ["call: 7", "call: 8"]
    assert list(log.records) == ["call: 8"]


def test_the_latest_calls_are_kept_and_the_others_counted() -> None:
    log = Log({"call: 1": ["aws/here", "create", "vm-1", 90.0, 91.0, None, 3, 1.0], "step": 1})
    for number in range(MAX_CALLS_KEPT + 4):
        log.call(f"call {number}", 1.0)
    assert log.steps[CALLS_DROPPED] == 3 + 4
    assert len(log.steps) == MAX_CALLS_KEPT + 2
    late = log.begin("late", "", "")
    for number in range(MAX_CALLS_KEPT):
        log.call(f"again {number}", 1.0)
    log.end(late, None)  # its record is gone
    assert log.steps.keys() - {"step"} == log.records.keys()


def test_errors_are_masked_and_short() -> None:
    log = Log()
    log.call("create", 1.0, "the password hunter2 is wrong\0" + "x" * 1000)
    error = log.steps["call: 1"].error
    assert error.startswith("the password *** is wrong?x")
    assert len(error) == MAX_ERROR_CHARS


def test_a_call_that_was_stopped_and_one_that_failed_have_their_errors() -> None:
    log = Log()
    for error in (asyncio.CancelledError(), OSError("no route")):
        with pytest.raises(type(error)), RecordedCall(log, "observe", "", ""):
            raise error
    assert [one.error for one in log.steps.values()] == ["stopped before an answer came", "OSError: no route"]


def test_each_outcome_of_a_driver_tells_its_problem() -> None:
    outcomes = [
        CallAccepted("k"),
        CallRefused("k", RefusalReason.QUOTA, "no more"),
        CallThrottled("k", 1.0),
        TransientFailure("k", "try later"),
        CallUnanswered("k", "timed out"),
    ]
    problems = [None, "quota: no more", "throttled", "try later", "no answer: timed out"]
    assert [error_of(one) for one in outcomes] == problems
