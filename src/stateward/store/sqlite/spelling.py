"""Statements are written with `{Record}` for the columns of a record, so that both always go together.

Rows are fetched packed: SQLite joins them into one text of JSON, and that is one step. To fetch them one by one would
be a step each, and at each one Python lets go of the interpreter's lock and has to get it back from an event loop that
may be busy; five hundred rows then take seconds. Packed, they are not slower even where nobody else wants the lock.
Numbers with a fraction are written out in full, because SQLite's JSON rounds them.
"""

import re

from msgspec import Struct
from msgspec.structs import fields

from stateward.store.records import (
    IdempotencyRecord,
    JournalEntry,
    Lane,
    LaneGroup,
    Lock,
    Object,
    Operation,
    Progress,
    Timer,
    Worker,
    WorkItem,
)

RECORDS: dict[str, type[Struct]] = {
    record.__name__: record
    for record in (
        IdempotencyRecord,
        Lane,
        LaneGroup,
        JournalEntry,
        Lock,
        Object,
        Operation,
        Progress,
        Timer,
        WorkItem,
        Worker,
    )
}
COLUMNS = re.compile(r"\{(\w+)(?::(\w+))?\}")
PACKED = "SELECT '[' || group_concat(row, ',') || ']' FROM (SELECT json_array(<columns>) AS row <rest>)"
IN_FULL = "printf('%!.20g', <column>)"
IN_FULL_OR_NULL = "iif(<column> IS NULL, NULL, printf('%!.20g', <column>))"


def spelled(sql: str, **pieces: str) -> str:
    """Spell out a statement: `<name>` is a piece, `{Record}` the columns of a record, `{Record:t}` those of table t."""
    for name, piece in pieces.items():
        sql = sql.replace(f"<{name}>", piece)
    return COLUMNS.sub(lambda place: ", ".join(_columns(place)), sql)


def packed(columns: str, rest: str, **pieces: str) -> str:
    """Spell out a query whose rows come as one text; `columns` names records as in `spelled`."""
    values = COLUMNS.sub(lambda place: ", ".join(_values(place)), columns)
    return spelled(PACKED, columns=values, rest=spelled(rest, **pieces))


def _columns(place: re.Match[str]) -> list[str]:
    table = f"{place[2]}." if place[2] else ""
    return [f"{table}{field.name}" for field in fields(RECORDS[place[1]])]


def _values(place: re.Match[str]) -> list[str]:
    forms = {float: IN_FULL, float | None: IN_FULL_OR_NULL}
    types = [field.type for field in fields(RECORDS[place[1]])]
    return [
        forms.get(kind, "<column>").replace("<column>", column)
        for kind, column in zip(types, _columns(place), strict=True)
    ]
