"""Conversion between records and rows of SQLite, and rendering of SQL from record names.

Writing: the driver needs 0.5 µs to bind a None, a bool or an enum member, five times as long as for a number. So bools
are bound as 0 and 1, and None as a value that its column cannot hold, which `nullif` turns into NULL.

Reading: a query returns its rows as one JSON text (`json_packed`), which is one step of SQLite. Fetching row by row
releases and takes the GIL for each row, and beside a busy event loop 500 rows then take seconds. Packed rows are not
slower without contention either. Floats are rendered in full precision, because SQLite's JSON rounds them.
"""

import re
import sqlite3
from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.json import decode
from msgspec.structs import astuple, fields

from stateward.store import records
from stateward.store.changes import Ended

Values: TypeAlias = list[Any]

NO_TEXT = 0
NO_NUMBER = ""
PLACEHOLDERS = {NO_TEXT: "nullif(?, 0)", NO_NUMBER: "nullif(?, '')"}


class RecordLayout(Struct, frozen=True):
    """The columns of a record, and the indexes of the values that need conversion."""

    columns: tuple[str, ...]
    flags: tuple[int, ...]
    texts: tuple[int, ...]
    numbers: tuple[int, ...]
    words: tuple[int, ...]
    floats: tuple[int, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """The placeholder of each value in a statement."""
        empty = dict.fromkeys(self.texts, PLACEHOLDERS[NO_TEXT]) | dict.fromkeys(self.numbers, PLACEHOLDERS[NO_NUMBER])
        return tuple(empty.get(place, "?") for place in range(len(self.columns)))


def layout_of(record: type[Struct]) -> RecordLayout:
    """Return the layout of a record, from the types of its fields."""
    types = [field.type for field in fields(record)]
    return RecordLayout(
        columns=record.__struct_fields__,
        flags=tuple(at for at, kind in enumerate(types) if kind is bool),
        texts=tuple(at for at, kind in enumerate(types) if kind == str | None),
        numbers=tuple(at for at, kind in enumerate(types) if kind in (int | None, float | None)),
        words=tuple(at for at, kind in enumerate(types) if isinstance(kind, type) and issubclass(kind, StrEnum)),
        floats=tuple(at for at, kind in enumerate(types) if kind in (float, float | None)),
    )


IDEMPOTENCY_RECORD = layout_of(records.IdempotencyRecord)
ENDED = layout_of(Ended)
JOURNAL_ENTRY = layout_of(records.JournalEntry)
LOCK = layout_of(records.Lock)
OBJECT = layout_of(records.Object)
OPERATION = layout_of(records.Operation)
PROGRESS = layout_of(records.Progress)
SIGNAL = layout_of(records.Signal)
TIMER = layout_of(records.Timer)
WORK = layout_of(records.WorkItem)
WORKER = layout_of(records.WorkerRecord)

JOURNAL_SEQ = JOURNAL_ENTRY.columns.index("seq")
LOCK_SEQ = LOCK.columns.index("seq")
PROGRESS_SEQ = PROGRESS.columns.index("seq")
WORK_SEQ = WORK.columns.index("seq")


def row(record: Struct, layout: RecordLayout) -> Values:
    """Return the values of a record."""
    values = list(astuple(record))
    for at in layout.flags:
        values[at] = 1 if values[at] else 0
    for at in layout.texts:
        if values[at] is None:
            values[at] = NO_TEXT
    for at in layout.numbers:
        if values[at] is None:
            values[at] = NO_NUMBER
    for at in layout.words:
        values[at] = values[at].value
    return values


def numbered(record: Struct, layout: RecordLayout, at: int, seq: int) -> Values:
    """Return the values of a record with this sequence number."""
    values = row(record, layout)
    values[at] = seq
    return values


def work_row(work_item: records.WorkItem, seq: int, now: float) -> Values:
    """Return the values of a work item, with the column `delayed`."""
    values = numbered(work_item, WORK, WORK_SEQ, seq)
    values.append(1 if work_item.not_before > now else 0)
    return values


def transition_row(record: records.Object) -> Values:
    """Return the values of an object that every transition changes."""
    op, error = record.op, record.error
    return [
        record.ns,
        record.id,
        record.state,
        record.since,
        record.version,
        record.generation,
        NO_TEXT if op is None else op,
        NO_TEXT if error is None else error,
    ]


T = TypeVar("T")
Row: TypeAlias = list[Any]

STATUS = OPERATION.columns.index("status")
OWNER, EPOCH, ATTEMPTS, DEADLINE = (WORK.columns.index(name) for name in ("owner", "epoch", "attempts", "deadline"))
OPERATION_AT = len(WORK.columns)
OBJECT_AT = OPERATION_AT + len(OPERATION.columns)


def fetch_packed(connection: sqlite3.Connection, packed: str, values: tuple[object, ...] = ()) -> list[Row]:
    """Execute a packed query and return its rows."""
    (text,) = connection.execute(packed, values).fetchone()
    rows: list[Row] = [] if text is None else decode(text)
    return rows


def _decoder(record: Callable[..., T], layout: RecordLayout) -> Callable[[Row], T]:
    """Return the function that makes a record of a packed row."""
    return lambda row: record(*_unpacked(row, layout))


idempotency_record_of = _decoder(records.IdempotencyRecord, IDEMPOTENCY_RECORD)
journal_entry_of = _decoder(records.JournalEntry, JOURNAL_ENTRY)
lane_of = _decoder(records.Lane, layout_of(records.Lane))
lock_of = _decoder(records.Lock, LOCK)
object_of = _decoder(records.Object, OBJECT)
progress_of = _decoder(records.Progress, PROGRESS)
signal_of = _decoder(records.Signal, SIGNAL)
timer_of = _decoder(records.Timer, TIMER)
work_of = _decoder(records.WorkItem, WORK)
worker_of = _decoder(records.WorkerRecord, WORKER)


def operation_of(row: Row) -> records.Operation:
    """Return the operation of a row."""
    row[STATUS] = records.STATUSES[row[STATUS]]
    return records.Operation(*_unpacked(row, OPERATION))


def is_never_started(row: Row) -> bool:
    """Return whether the work item of a row was never started."""
    return row[DEADLINE] is None


def claim_of(row: Row, owner: str, now: float | None = None) -> records.Claim:
    """Return the claim of a row with a work item, its operation and its object, as they are after the claim.

    Without a time, the item is prefetched.
    """
    operation = operation_of(row[OPERATION_AT:OBJECT_AT])
    work = _unpacked(row[:OPERATION_AT], WORK)
    work[OWNER] = owner
    work[EPOCH] += 1
    work[ATTEMPTS] += 1
    if work[DEADLINE] is None and now is not None:
        work[DEADLINE] = now + operation.within
    return records.Claim(records.WorkItem(*work), operation, object_of(row[OBJECT_AT:]))


def _unpacked(row: Row, layout: RecordLayout) -> Row:
    """Convert packed values back to bools and floats."""
    for at in layout.flags:
        row[at] = row[at] == 1
    for at in layout.floats:
        if row[at] is not None:
            row[at] = float(row[at])
    return row


COLUMNS = re.compile(r"\{(\w+)(?::(\w+))?\}")
PACKED = "SELECT '[' || group_concat(row, ',') || ']' FROM (SELECT json_array(<columns>) AS row <rest>)"
FULL_PRECISION = "printf('%!.20g', <column>)"
FULL_PRECISION_OR_NULL = "iif(<column> IS NULL, NULL, printf('%!.20g', <column>))"


def render_sql(sql: str, **pieces: str) -> str:
    """Render a template: `<name>` is a piece, `{Record}` the columns of a record, `{Record:t}` those of table t."""
    for name, piece in pieces.items():
        sql = sql.replace(f"<{name}>", piece)
    return COLUMNS.sub(lambda place: ", ".join(_columns(place)), sql)


def json_packed(columns: str, rest: str, **pieces: str) -> str:
    """Render a query that returns its rows as one JSON text; `columns` is a template as in `render_sql`."""
    values = COLUMNS.sub(lambda place: ", ".join(_values(place)), columns)
    return render_sql(PACKED, columns=values, rest=render_sql(rest, **pieces))


def _columns(place: re.Match[str]) -> list[str]:
    table = f"{place[2]}." if place[2] else ""
    return [f"{table}{field.name}" for field in fields(records.RECORDS[place[1]])]


def _values(place: re.Match[str]) -> list[str]:
    forms = {float: FULL_PRECISION, float | None: FULL_PRECISION_OR_NULL}
    types = [field.type for field in fields(records.RECORDS[place[1]])]
    return [
        forms.get(kind, "<column>").replace("<column>", column)
        for kind, column in zip(types, _columns(place), strict=True)
    ]
