"""Conversion of rows to records, and rendering of SQL from record names; columns are in the order of the fields."""

import re

from stateward.store.postgres.connections import Row
from stateward.store.records import RECORDS, STATUSES, Claim, Object, Operation, WorkItem

STATUS = Operation.__struct_fields__.index("status")
OPERATION_WIDTH = len(Operation.__struct_fields__)
COLUMNS = re.compile(r"\{(\w+):(\w+)\}")
SETTINGS = re.compile(r"\{(\w+)=(\w+)\}")
LOOKED_UP = re.compile(r"\{([^{}]+)==([^{}]+)\}")


def render_sql(sql: str, **pieces: str) -> str:
    """Render a template.

    `<name>` stands for a piece; `{Record:alias}` for the columns of that record, and `{Record=alias}` for setting all
    that are not its key, which are the first two. `{column==value}` is equality in a form with which the planner can do
    nothing but look each value up in the column's index. With a plain `=` it may turn the join round and read the whole
    table for each value, if it takes the table for empty. That is for the column that an index begins with, and for it
    alone: up to PostgreSQL 16, further ones in this form may be left out of the look-up.
    """
    for name, piece in pieces.items():
        sql = sql.replace(f"<{name}>", piece)
    sql = LOOKED_UP.sub(r"\1 = ANY (ARRAY[\2])", sql)
    sql = COLUMNS.sub(lambda place: ", ".join(f"{place[2]}.{column}" for column in _columns(place)), sql)
    return SETTINGS.sub(
        lambda place: ", ".join(f"{column} = {place[2]}.{column}" for column in _columns(place)[2:]), sql
    )


def _columns(place: re.Match[str]) -> tuple[str, ...]:
    return RECORDS[place[1]].__struct_fields__


def operation_of(row: Row) -> Operation:
    """Return the operation of a row."""
    values = [*row]
    values[STATUS] = STATUSES[values[STATUS]]
    return Operation(*values)


def claim_of(work: WorkItem, row: Row) -> Claim:
    """Return a claim from a work item and a row with its operation and object."""
    return Claim(work, operation_of(row[:OPERATION_WIDTH]), Object(*row[OPERATION_WIDTH:]))
