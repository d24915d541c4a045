"""Records as the values of a row, in types that the driver binds without a detour.

To bind a None, a truth value or a word of an enum takes Python's driver half a microsecond, five times as long as a
number, and a row has many of them. So truth values go as 0 and 1, and a missing value as something that its column
cannot hold, which `nullif` turns back.
"""

from enum import StrEnum
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import astuple, fields

from stateward.store.changes import Ended
from stateward.store.records import (
    IdempotencyRecord,
    JournalEntry,
    Lock,
    Object,
    Operation,
    Progress,
    Timer,
    Worker,
    WorkItem,
)

Values: TypeAlias = list[Any]

NO_TEXT = 0
NO_NUMBER = ""
PLACES = {NO_TEXT: "nullif(?, 0)", NO_NUMBER: "nullif(?, '')"}


class Shape(Struct, frozen=True):
    """How a record becomes a row: its columns, and at which of them a value must be replaced."""

    columns: tuple[str, ...]
    flags: tuple[int, ...]
    texts: tuple[int, ...]
    numbers: tuple[int, ...]
    words: tuple[int, ...]
    floats: tuple[int, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """What stands for each value in a statement."""
        empty = dict.fromkeys(self.texts, PLACES[NO_TEXT]) | dict.fromkeys(self.numbers, PLACES[NO_NUMBER])
        return tuple(empty.get(place, "?") for place in range(len(self.columns)))


def shape_of(record: type[Struct]) -> Shape:
    """Derive a record's shape from the types of its fields."""
    types = [field.type for field in fields(record)]
    return Shape(
        columns=record.__struct_fields__,
        flags=tuple(at for at, kind in enumerate(types) if kind is bool),
        texts=tuple(at for at, kind in enumerate(types) if kind == str | None),
        numbers=tuple(at for at, kind in enumerate(types) if kind in (int | None, float | None)),
        words=tuple(at for at, kind in enumerate(types) if isinstance(kind, type) and issubclass(kind, StrEnum)),
        floats=tuple(at for at, kind in enumerate(types) if kind in (float, float | None)),
    )


ANSWER = shape_of(IdempotencyRecord)
ENDED = shape_of(Ended)
LINE = shape_of(JournalEntry)
LOCK = shape_of(Lock)
OBJECT = shape_of(Object)
OPERATION = shape_of(Operation)
PROGRESS = shape_of(Progress)
TIMER = shape_of(Timer)
WORK = shape_of(WorkItem)
WORKER = shape_of(Worker)

LINE_SEQ = LINE.columns.index("seq")
LOCK_SEQ = LOCK.columns.index("seq")
PROGRESS_SEQ = PROGRESS.columns.index("seq")
WORK_SEQ = WORK.columns.index("seq")


def row(record: Struct, shape: Shape) -> Values:
    """Return the values of a record."""
    values = list(astuple(record))
    for at in shape.flags:
        values[at] = 1 if values[at] else 0
    for at in shape.texts:
        if values[at] is None:
            values[at] = NO_TEXT
    for at in shape.numbers:
        if values[at] is None:
            values[at] = NO_NUMBER
    for at in shape.words:
        values[at] = values[at].value
    return values


def numbered(record: Struct, shape: Shape, at: int, seq: int) -> Values:
    """Return the values of a record that is given its number."""
    values = row(record, shape)
    values[at] = seq
    return values


def work_row(one: WorkItem, seq: int, now: float) -> Values:
    """Return the values of work, which say also whether it lies ahead."""
    values = numbered(one, WORK, WORK_SEQ, seq)
    values.append(1 if one.not_before > now else 0)
    return values


def move_row(one: Object) -> Values:
    """Return only what every move changes of an object."""
    op, error = one.op, one.error
    return [
        one.ns,
        one.id,
        one.state,
        one.since,
        one.version,
        one.generation,
        NO_TEXT if op is None else op,
        NO_TEXT if error is None else error,
    ]
