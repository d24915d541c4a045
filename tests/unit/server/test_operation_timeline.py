"""The timeline of an operation: what waited, what worked, what was tried again."""

from typing import Any

from msgspec.structs import replace

from stateward.schemas.timeline import SpanKind, SpanStatus
from stateward.server.operation_timeline import Span, timeline
from stateward.store.records import Operation, Progress, Status, to_json
from tests.contract.samples import NS, an_entry, an_operation

ENDED: dict[str, Any] = {"status": Status.SUCCEEDED, "created": 100.0, "started": 103.0, "ended": 110.0, "attempts": 1}


def spans(operation: Operation, *kinds: SpanKind, parts: tuple[Operation, ...] = ()) -> list[tuple[Any, ...]]:
    """Return name, status and times of the spans of some kinds."""
    found = timeline(operation, [], [], parts)
    return [(one.name, one.status, one.began, one.ended) for one in found if one.kind in kinds]


def test_an_operation_waits_and_then_works() -> None:
    assert timeline(an_operation("op", **ENDED), [], [], []) == [
        Span(SpanKind.WAIT, "waits to begin", SpanStatus.DONE, 100.0, 103.0),
        Span(SpanKind.ATTEMPT, "works", SpanStatus.DONE, 103.0, 110.0),
    ]


def test_an_operation_that_nobody_has_begun_waits() -> None:
    waiting = an_operation("op", created=100.0)
    assert timeline(waiting, [], [], []) == [Span(SpanKind.WAIT, "waits to begin", SpanStatus.WAITING, 100.0)]
    cancelled = replace(waiting, status=Status.CANCELLED, ended=101.0)
    assert timeline(cancelled, [], [], []) == [Span(SpanKind.WAIT, "waits to begin", SpanStatus.DONE, 100.0, 101.0)]


def test_failed_attempts_have_their_reasons_and_the_waits_between_them() -> None:
    attempts = {
        "attempt: 1": {"began": 103.0, "ended": 104.0, "error": "no answer", "again": 106.0},
        "attempt: 2": {"began": 106.0, "ended": 107.0, "error": "throttled", "again": 109.0},
    }
    operation = an_operation("op", **{**ENDED, "attempts": 3}, steps=to_json(attempts))
    assert spans(operation, SpanKind.ATTEMPT, SpanKind.WAIT) == [
        ("waits to begin", SpanStatus.DONE, 100.0, 103.0),
        ("attempt 1", SpanStatus.FAILED, 103.0, 104.0),
        ("waits to be tried again", SpanStatus.DONE, 104.0, 106.0),
        ("attempt 2", SpanStatus.FAILED, 106.0, 107.0),
        ("waits to be tried again", SpanStatus.DONE, 107.0, 109.0),
        ("attempt 3", SpanStatus.DONE, 109.0, 110.0),
    ]
    waiting = replace(operation, status=Status.WAITING, ended=None, attempts=2)
    assert spans(waiting, SpanKind.WAIT)[-1] == ("waits to be tried again", SpanStatus.WAITING, 107.0, None)


def test_provider_calls_have_their_place_their_times_and_their_errors() -> None:
    steps = {
        "call: 3": ["aws/here", "create", "vm-1", 103.0, 105.0, "throttled", 4, 0.5],
        "call: 9": ["", "observe", "", 106.0, None, None, 1, 0.0],
        "call: dropped": 12,
    }
    operation = an_operation("op", **ENDED, steps=to_json(steps))
    create, observe, dropped = [one for one in timeline(operation, [], [], []) if one.kind is SpanKind.CALL]
    assert (create.name, create.status, create.began, create.ended) == ("create", SpanStatus.FAILED, 103.0, 105.0)
    assert (create.provider, create.target, create.count, create.slowest_s) == ("aws/here", "vm-1", 4, 0.5)
    assert create.text == "throttled"
    assert (observe.status, observe.text, observe.provider) == (SpanStatus.UNKNOWN, "no answer", None)
    assert (dropped.count, dropped.began) == (12, None)
    running = replace(operation, status=Status.RUNNING, ended=None)
    assert ("observe", SpanStatus.RUNNING, 106.0, None) in spans(running, SpanKind.CALL)


def test_steps_waits_and_undos_have_their_times() -> None:
    steps = {
        "pay": 1,
        "time: pay": [103.0, 104.0],
        "undo: pay": "done",
        "time: undo: pay": [108.0, 109.0],
        "ship": 2,
        "undo: ship": {"error": "lost"},
        "sleep: cool": 105.0,
        "time: sleep: cool": [104.0, 105.0],
        "wait: approved": {"signal": "approved"},
        "time: wait: approved": [105.0, 107.0],
        "attempt: call 1": {"began": 107.0, "ended": 107.5, "error": "busy", "again": 108.0},
        "phase: started": None,
        "end: after undo": {},
    }
    operation = an_operation("op", **{**ENDED, "status": Status.FAILED}, steps=to_json(steps))
    assert spans(operation, SpanKind.STEP, SpanKind.UNDO, SpanKind.WAIT) == [
        ("waits to begin", SpanStatus.DONE, 100.0, 103.0),
        ("pay", SpanStatus.DONE, 103.0, 104.0),
        ("sleeps: cool", SpanStatus.DONE, 104.0, 105.0),
        ("waits for the signal approved", SpanStatus.FAILED, 105.0, 107.0),
        ("call, attempt 1", SpanStatus.FAILED, 107.0, 107.5),
        ("undoes pay", SpanStatus.DONE, 108.0, 109.0),
        ("ship", SpanStatus.DONE, None, None),
        ("undoes ship", SpanStatus.FAILED, None, None),
    ]


def test_parts_events_and_output_stand_at_their_times() -> None:
    part = an_operation("part", "vm-1", **ENDED)
    entry = an_entry(at=105.0, event="has trouble", reason="no room", source=None, target=None)
    found = timeline(an_operation("op", **ENDED), [entry], [Progress(NS, "op", 106.0, "copying", 3, 5)], [part])
    assert [(one.kind, one.name, one.text, one.status) for one in found[2:]] == [
        (SpanKind.PART, "suspend vm-1", "", SpanStatus.DONE),
        (SpanKind.EVENT, "has trouble by ann", "no room", SpanStatus.FAILED),
        (SpanKind.OUTPUT, "copying", "3 of 5", SpanStatus.DONE),
    ]
    assert (found[2].object, found[2].op) == ("vm-1", "part")
