"""Rows as records. Columns are selected in the order of a record's fields; only truth values and words need a touch."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from stateward.store.records import Claim, Lock, Object, Operation, Status, Work
from stateward.store.sqlite.values import LOCK, OBJECT, OPERATION, WORK

Row: TypeAlias = Sequence[Any]

STATUSES = {status.value: status for status in Status}
STATUS = OPERATION.columns.index("status")
OWNER, EPOCH, ATTEMPTS, DEADLINE = (WORK.columns.index(name) for name in ("owner", "epoch", "attempts", "deadline"))
OPERATION_AT = len(WORK.columns)
OBJECT_AT = OPERATION_AT + len(OPERATION.columns)


def object_of(row: Row) -> Object:
    """Make an object of a row."""
    return Object(*_true_or_false(row, OBJECT.flags))


def operation_of(row: Row) -> Operation:
    """Make an operation of a row."""
    values = _true_or_false(row, OPERATION.flags)
    values[STATUS] = STATUSES[values[STATUS]]
    return Operation(*values)


def work_of(row: Row) -> Work:
    """Make work of a row."""
    return Work(*_true_or_false(row, WORK.flags))


def lock_of(row: Row) -> Lock:
    """Make a lock of a row."""
    return Lock(*_true_or_false(row, LOCK.flags))


def claim_of(row: Row, owner: str, now: float) -> Claim:
    """Make a claim of a row that holds free work, its operation and its object: as they are once it is taken."""
    operation = operation_of(row[OPERATION_AT:OBJECT_AT])
    work = _true_or_false(row[:OPERATION_AT], WORK.flags)
    work[OWNER] = owner
    work[EPOCH] += 1
    work[ATTEMPTS] += 1
    if work[DEADLINE] is None:
        work[DEADLINE] = now + operation.within
    return Claim(Work(*work), operation, object_of(row[OBJECT_AT:]))


def _true_or_false(row: Row, flags: tuple[int, ...]) -> list[Any]:
    values = list(row)
    for at in flags:
        values[at] = values[at] == 1
    return values
