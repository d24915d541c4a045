"""A deployment of all domains, filled with copies of what is at rest in it: in its own namespace, and in ten others."""

import sqlite3
from contextlib import closing
from itertools import product
from math import ceil
from typing import Any

import asyncpg

from stateward.store import open_store
from tests.stored.test_stored_databases import Stored
from tests.stored.write import NS

OTHERS = tuple(f"other-{number}" for number in range(10))
JOURNAL = 10
"""How many journal entries there are for each object, about, up to `MOST_ENTRIES` in all."""

MOST_ENTRIES = 20_000_000
"""More do not fit on the disks that we have."""

OBJECT = (
    "ns, id, kind, state, since, version, generation, op, queue, parent, spec, labels, error, created, removed, seen"
)
OPERATION = (
    "ns, id, object, kind, action, actor, who, facts, args, origin, via, desired, failing, hidden, within, generation,"
    " previous_spec, parent, tree, status, attempts, steps, result, error, created, started, ended, bulk"
)
ENTRY = "ns, object, kind, op, at, actor, who, event, source, target, reason, spec"
TIMER = "ns, id, due, rank, object, event, facts, args"
ANSWER = "ns, key, fingerprint, op, object, at"
COPIED_FROM = {
    "objects": (OBJECT, f"ns = '{NS}' AND op IS NULL AND NOT removed"),
    "operations": (OPERATION, f"ns = '{NS}' AND ended IS NOT NULL"),
    "answers": (ANSWER, f"ns = '{NS}'"),
    "timers": (TIMER, f"ns = '{NS}'"),
}
IDS = ("id", "object", "parent", "op", "bulk", "key", "queue", "tree")
"""What a copy has under a name of its own."""

SETTINGS = {"search_path": "stateward", "maintenance_work_mem": "1GB"}

FAR = 1e9
"""How many seconds from now timers of copies are due."""


async def fill(stored: Stored, objects: int) -> None:
    """Fill a database with about so many objects at rest, with their operations and journal, in sets."""
    store = open_store(stored.database or str(stored.folder / "stateward.db"), migrate=True)
    await store.open()
    await store.close()
    (at_rest,) = await run_sql(stored, f"SELECT count(*) FROM objects WHERE {COPIED_FROM['objects'][1]}")
    copies = ceil(objects / at_rest / 2)  # in each half: one is in the namespace itself
    statements = [
        _copies(table, f"'{ns}'", first, number)
        for (ns, first, number), table in product(
            [*((ns, 1, ceil(copies / len(OTHERS))) for ns in OTHERS), (NS, 1, copies)], COPIED_FROM
        )
    ]
    entries, before, latest = await run_sql(
        stored, f"SELECT count(*) FILTER (WHERE ns = '{NS}'), max(seq), max(at) FROM journal"
    )
    rows = ceil(min(objects * JOURNAL, MOST_ENTRIES) / entries)
    last = before + rows * entries
    # One entry in ten seconds: what happened lately is the same in every deployment.
    statements += [
        f"""WITH n AS ({_numbers(1, rows)})
        INSERT INTO journal ({ENTRY}, seq)
        SELECT CASE k % 2 WHEN 0 THEN ns ELSE 'other-' || CAST(k % {len(OTHERS)} AS text) END, object || '~' ||
               CAST(k AS text), kind, op || '~' || CAST(k AS text), {latest} - ({last} - number) * 10.0, actor, who,
               event, source, target, reason, spec, number
        FROM (SELECT *, {before} + row_number() OVER (ORDER BY k, seq) AS number FROM journal, n WHERE ns = '{NS}')""",
        f"UPDATE journal SET at = {latest} - ({last} - seq) * 10.0 WHERE seq <= {before}",
        f"SELECT setval('journal_seq', {last})" if stored.database else f"UPDATE numbers SET journal = {last}",
    ]
    if stored.database:
        drops, builds = await _rebuilt_indexes(stored)
        statements = [*drops, *statements, *builds, "VACUUM ANALYZE"]
    for statement in statements:
        await run_sql(stored, statement)


async def _rebuilt_indexes(stored: Stored) -> tuple[list[str], list[str]]:
    """Return the statements that drop the indexes of PostgreSQL's tables, and those that build them: filling without
    them, and without a log, takes a small part of the time.
    """
    drops, builds = [], []
    for table in (*COPIED_FROM, "journal"):
        (keys, indexes) = await run_sql(
            stored,
            f"""SELECT (SELECT array_agg(ARRAY[conname, pg_get_constraintdef(oid)]) FROM pg_constraint
                        WHERE conrelid = '{table}'::regclass AND contype = 'p'),
                       (SELECT array_agg(ARRAY[indexrelid::regclass::text, pg_get_indexdef(indexrelid)]) FROM pg_index
                        WHERE indrelid = '{table}'::regclass AND NOT indisprimary)""",
        )
        drops += [f"ALTER TABLE {table} SET UNLOGGED"]
        drops += [f"ALTER TABLE {table} DROP CONSTRAINT {name}" for name, _ in keys]
        drops += [f"DROP INDEX {name}" for name, _ in indexes or ()]
        builds += [f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}" for name, definition in keys]
        builds += [definition for _, definition in indexes or ()]
    return drops, builds


def _numbers(first: int, number: int) -> str:
    last = first + number - 1
    return f"WITH RECURSIVE n(k) AS (SELECT {first} UNION ALL SELECT k + 1 FROM n WHERE k < {last}) SELECT k FROM n"


def _copies(table: str, ns: str, first: int, number: int) -> str:
    columns, condition = COPIED_FROM[table]
    values = {
        "ns": ns,
        "due": f"due + {FAR}",
        "created": "created - k * 60",  # a copy a minute
        **{name: f"{name} || '~' || CAST(k AS text)" for name in IDS},
    }
    chosen = ", ".join(values.get(name, name) for name in columns.split(", "))
    return (
        f"WITH n AS ({_numbers(first, number)}) INSERT INTO {table} ({columns})"
        f" SELECT {chosen} FROM {table}, n WHERE {condition}"
    )


async def bytes_per_row(stored: Stored) -> dict[str, int]:
    """Return what an object, an operation and a journal entry take up on the disk, with their indexes."""
    size = (
        "SELECT pg_total_relation_size('{}')"
        if stored.database
        else "SELECT sum(pgsize) FROM dbstat WHERE name IN (SELECT name FROM sqlite_schema WHERE tbl_name = '{}')"
    )
    found = {}
    for table in ("objects", "operations", "journal"):
        (taken,), (rows,) = (
            await run_sql(stored, size.format(table)),
            await run_sql(stored, f"SELECT count(*) FROM {table}"),
        )
        found[table] = taken // rows
    return found


async def run_sql(stored: Stored, sql: str) -> tuple[Any, ...]:
    """Run a statement, and return the first row of its result."""
    if not stored.database:
        with closing(sqlite3.connect(stored.folder / "stateward.db")) as connection, connection:
            return connection.execute(sql).fetchone() or ()
    connection = await asyncpg.connect(stored.database, server_settings=SETTINGS)
    try:
        return tuple(await connection.fetchrow(sql) or ())
    finally:
        await connection.close()
