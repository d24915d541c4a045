"""Statements are written with `{Record}` for the columns of a record, so that both always go together."""

import re

from stateward.store.records import (
    Answer,
    Lane,
    LaneGroup,
    Line,
    Lock,
    Object,
    Operation,
    Progress,
    Timer,
    Work,
    Worker,
)

RECORDS = (Answer, Lane, LaneGroup, Line, Lock, Object, Operation, Progress, Timer, Work, Worker)
FIELDS: dict[str, tuple[str, ...]] = {record.__name__: record.__struct_fields__ for record in RECORDS}
COLUMNS = re.compile(r"\{(\w+)(?::(\w+))?\}")


def spelled(sql: str, **pieces: str) -> str:
    """Spell out a statement: `<name>` is a piece, `{Record}` the columns of a record, `{Record:t}` those of table t."""
    for name, piece in pieces.items():
        sql = sql.replace(f"<{name}>", piece)
    return COLUMNS.sub(_columns, sql)


def _columns(place: re.Match[str]) -> str:
    table = f"{place[2]}." if place[2] else ""
    return ", ".join(f"{table}{field}" for field in FIELDS[place[1]])
