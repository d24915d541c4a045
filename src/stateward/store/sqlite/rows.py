"""Rows as records. They come packed, in the order of a record's fields; truth values and fractions need a touch."""

import sqlite3
from typing import Any, TypeAlias

from msgspec.json import decode

from stateward.store.records import (
    Claim,
    IdempotencyRecord,
    JournalEntry,
    Lock,
    Object,
    Operation,
    Progress,
    Status,
    Timer,
    Worker,
    WorkItem,
)
from stateward.store.sqlite.values import (
    ANSWER,
    LINE,
    LOCK,
    OBJECT,
    OPERATION,
    PROGRESS,
    TIMER,
    WORK,
    WORKER,
    Shape,
)

Row: TypeAlias = list[Any]

STATUSES = {status.value: status for status in Status}
STATUS = OPERATION.columns.index("status")
OWNER, EPOCH, ATTEMPTS, DEADLINE = (WORK.columns.index(name) for name in ("owner", "epoch", "attempts", "deadline"))
OPERATION_AT = len(WORK.columns)
OBJECT_AT = OPERATION_AT + len(OPERATION.columns)


def fetched(connection: sqlite3.Connection, packed: str, values: tuple[object, ...]) -> list[Row]:
    """Ask a packed question and return its rows."""
    (text,) = connection.execute(packed, values).fetchone()
    rows: list[Row] = [] if text is None else decode(text)
    return rows


def answer_of(row: Row) -> IdempotencyRecord:
    """Make an answer of a row."""
    return IdempotencyRecord(*_plain(row, ANSWER))


def line_of(row: Row) -> JournalEntry:
    """Make a line of the journal of a row."""
    return JournalEntry(*_plain(row, LINE))


def lock_of(row: Row) -> Lock:
    """Make a lock of a row."""
    return Lock(*_plain(row, LOCK))


def object_of(row: Row) -> Object:
    """Make an object of a row."""
    return Object(*_plain(row, OBJECT))


def operation_of(row: Row) -> Operation:
    """Make an operation of a row."""
    row[STATUS] = STATUSES[row[STATUS]]
    return Operation(*_plain(row, OPERATION))


def progress_of(row: Row) -> Progress:
    """Make a line of progress of a row."""
    return Progress(*_plain(row, PROGRESS))


def timer_of(row: Row) -> Timer:
    """Make a timer of a row."""
    return Timer(*_plain(row, TIMER))


def work_of(row: Row) -> WorkItem:
    """Make work of a row."""
    return WorkItem(*_plain(row, WORK))


def worker_of(row: Row) -> Worker:
    """Make a worker of a row."""
    return Worker(*_plain(row, WORKER))


def is_fresh(row: Row) -> bool:
    """Tell whether a row holds work that was never begun."""
    return row[DEADLINE] is None


def claim_of(row: Row, owner: str, now: float | None = None) -> Claim:
    """Make a claim of a row that holds free work, its operation and its object: as they are once it is taken.

    Without a time it is a spare.
    """
    operation = operation_of(row[OPERATION_AT:OBJECT_AT])
    work = _plain(row[:OPERATION_AT], WORK)
    work[OWNER] = owner
    work[EPOCH] += 1
    work[ATTEMPTS] += 1
    if work[DEADLINE] is None and now is not None:
        work[DEADLINE] = now + operation.within
    return Claim(WorkItem(*work), operation, object_of(row[OBJECT_AT:]))


def _plain(row: Row, shape: Shape) -> Row:
    """Turn what was packed back into what it was."""
    for at in shape.flags:
        row[at] = row[at] == 1
    for at in shape.floats:
        if row[at] is not None:
            row[at] = float(row[at])
    return row
