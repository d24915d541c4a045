"""The timeline of an operation, from its record, its journal entries, its output and its parts.

A person asks where the time went: waiting or working, and how often it was tried. The record has few times, because
each would be written with every operation. So the spans between them are derived here, by a pure function.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from stateward.engine.job_steps import (
    ATTEMPT,
    CALL,
    CALLS_DROPPED,
    PREFIXES,
    RETRY,
    SLEEP,
    TIME,
    UNDO,
    UNDONE,
    WAIT,
    Steps,
)
from stateward.engine.provider_calls import CallRecord
from stateward.schemas.timeline import SpanKind, SpanStatus
from stateward.store.filters import OPEN_STATUSES
from stateward.store.records import JournalEntry, Operation, Progress, Status

ENDED = {
    Status.SUCCEEDED: SpanStatus.DONE,
    Status.FAILED: SpanStatus.FAILED,
    Status.CANCELLED: SpanStatus.CANCELLED,
    Status.RUNNING: SpanStatus.RUNNING,
    Status.WAITING: SpanStatus.WAITING,
}


class Span(Struct, frozen=True):
    """A stretch of time of an operation, in Unix times."""

    kind: SpanKind
    name: str
    status: SpanStatus
    began: float | None = None
    ended: float | None = None
    text: str = ""
    object: str | None = None
    op: str | None = None
    provider: str | None = None
    target: str | None = None
    count: int = 1
    slowest_s: float | None = None


def timeline(
    operation: Operation, entries: Sequence[JournalEntry], output: Sequence[Progress], parts: Iterable[Operation]
) -> list[Span]:
    """Return the spans of an operation, in the order in which they began; those without times come last."""
    steps: Steps = msgspec.json.decode(operation.steps)
    spans = [
        *_work(operation, steps),
        *_steps(operation, steps),
        *_calls(operation, steps),
        *(_part(part) for part in parts),
        *(_event(entry) for entry in entries),
        *(_output(line) for line in output),
    ]
    return sorted(spans, key=lambda span: (span.began is None, span.began or 0.0))


def _work(operation: Operation, steps: Steps) -> Iterator[Span]:
    """Yield the waits and the attempts, one after the other."""
    status = ENDED[operation.status]
    failed = [attempt for key, attempt in steps.items() if _attempt_of_operation(key) and isinstance(attempt, dict)]
    started, is_open = operation.started, operation.status in OPEN_STATUSES
    if failed and started is None:
        started = failed[0]["began"]
    if started is None and operation.attempts and not is_open:
        yield Span(SpanKind.ATTEMPT, "works", status, operation.created, operation.ended, operation.error or "")
        return
    begun = operation.ended if started is None else started
    if begun is None or begun > operation.created:
        state = SpanStatus.WAITING if begun is None else SpanStatus.DONE
        yield Span(SpanKind.WAIT, "waits to begin", state, operation.created, begun)
    if started is None:
        return
    number = operation.attempts - len(failed)
    for attempt in failed:
        yield Span(
            SpanKind.ATTEMPT, f"attempt {number}", SpanStatus.FAILED, started, attempt["ended"], attempt["error"]
        )
        started, number = max(attempt["again"], attempt["ended"]), number + 1
        if operation.ended is not None:
            started = min(started, operation.ended)
        last = attempt is failed[-1] and operation.status is Status.WAITING
        yield Span(
            SpanKind.WAIT,
            "waits to be tried again",
            SpanStatus.WAITING if last else SpanStatus.DONE,
            attempt["ended"],
            None if last else started,
        )
        if last:
            return
    name = f"attempt {number}" if failed else "works"
    paused = operation.status is Status.WAITING  # it has begun, and nobody works on it
    if paused:
        yield Span(SpanKind.WAIT, "waits", SpanStatus.WAITING, started)
    else:
        yield Span(SpanKind.ATTEMPT, name, status, started, operation.ended, operation.error or "")


def _attempt_of_operation(key: str) -> bool:
    """Return whether a record of the steps is about an attempt of the operation, and not of a step."""
    return key.startswith(ATTEMPT) and key.removeprefix(ATTEMPT).isdecimal()


def _steps(operation: Operation, steps: Steps) -> Iterator[Span]:
    """Yield the finished steps, sleeps, waits for signals, failed attempts of steps, and undos."""
    for key, value in steps.items():
        times = steps.get(f"{TIME}{key}")
        began, ended = (times[0], times[1]) if isinstance(times, list) else (None, None)
        if key.startswith(ATTEMPT):
            if isinstance(value, dict) and not _attempt_of_operation(key):
                step, _, number = key.removeprefix(ATTEMPT).rpartition(" ")
                name = f"{step}, attempt {number}"
                yield Span(SpanKind.STEP, name, SpanStatus.FAILED, value["began"], value["ended"], value["error"])
        elif key.startswith(SLEEP):
            yield Span(SpanKind.WAIT, f"sleeps: {key.removeprefix(SLEEP)}", _over(operation, ended), began, ended)
        elif key.startswith(WAIT):
            yield _signal(operation, key, value, began, ended)
        elif key.startswith(UNDO):
            yield from _undo(key.removeprefix(UNDO), value, began, ended)
        elif key.startswith(RETRY) and isinstance(value, str):
            yield Span(SpanKind.STEP, key.removeprefix(RETRY), SpanStatus.FAILED, began, ended, value)
        elif not key.startswith(PREFIXES):
            yield Span(SpanKind.STEP, key, SpanStatus.DONE, began, ended)


def _calls(operation: Operation, steps: Steps) -> Iterator[Span]:
    """Yield the provider calls; a call without an end is in flight, or its worker stopped before the answer came."""
    for key, value in steps.items():
        if key == CALLS_DROPPED:
            yield Span(SpanKind.CALL, "earlier calls, which are not kept", SpanStatus.UNKNOWN, count=value)
        elif key.startswith(CALL):
            call = msgspec.convert(value, CallRecord)
            status, text = SpanStatus.DONE if call.error is None else SpanStatus.FAILED, call.error or ""
            if call.ended is None:
                is_running = operation.status is Status.RUNNING
                status, text = (SpanStatus.RUNNING, "") if is_running else (SpanStatus.UNKNOWN, "no answer")
            at, target, slowest_s = call.at or None, call.target or None, None if call.ended is None else call.slowest_s
            yield Span(
                SpanKind.CALL,
                call.name,
                status,
                call.began,
                call.ended,
                text,
                provider=at,
                target=target,
                count=call.count,
                slowest_s=slowest_s,
            )


def _over(operation: Operation, ended: float | None) -> SpanStatus:
    if operation.status is Status.WAITING and ended is None:
        return SpanStatus.WAITING
    return SpanStatus.DONE


def _signal(operation: Operation, key: str, value: Any, began: float | None, ended: float | None) -> Span:  # noqa: ANN401
    """Return the wait for a signal; one that did not come in time has neither a payload nor an end of the wait."""
    is_open = operation.status in OPEN_STATUSES and isinstance(value, dict) and "until" in value
    came = not isinstance(value, dict) or "payload" in value
    status = SpanStatus.WAITING if is_open else SpanStatus.DONE if came else SpanStatus.FAILED
    text = "" if came or is_open else "it did not come in time"
    ended = None if is_open else ended or operation.ended
    return Span(SpanKind.WAIT, f"waits for the signal {key.removeprefix(WAIT)}", status, began, ended, text)


def _undo(step: str, value: Any, began: float | None, ended: float | None) -> Iterator[Span]:  # noqa: ANN401
    if value == UNDONE:
        yield Span(SpanKind.UNDO, f"undoes {step}", SpanStatus.DONE, began, ended)
    elif isinstance(value, dict):
        yield Span(SpanKind.UNDO, f"undoes {step}", SpanStatus.FAILED, began, ended, value["error"])


def _part(part: Operation) -> Span:
    name, began = f"{part.action} {part.object}", part.started or part.created
    return Span(
        SpanKind.PART, name, ENDED[part.status], began, part.ended, part.error or "", object=part.object, op=part.id
    )


def _event(entry: JournalEntry) -> Span:
    changed = f"{entry.source} → {entry.target}" if entry.target and entry.target != entry.source else ""
    text = "; ".join(filter(None, (changed, entry.reason)))
    status = SpanStatus.FAILED if entry.event in TROUBLES or entry.event.startswith("rejected") else SpanStatus.DONE
    who = f"{entry.event} by {entry.who or entry.actor}"
    return Span(SpanKind.EVENT, who, status, entry.at, entry.at, text)


TROUBLES = ("has trouble", "failed", "timed out", "undo failed", "unknown")
"""Events of the journal that tell an error."""


def _output(line: Progress) -> Span:
    share = "" if line.total is None else f"{line.done} of {line.total}"
    return Span(SpanKind.OUTPUT, line.text, SpanStatus.DONE, line.at, line.at, share)
