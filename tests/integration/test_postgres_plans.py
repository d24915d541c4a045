"""The plans of the writers: by key, whatever the planner believes of the tables.

A queue is often empty when statistics are taken, and full a moment later. A plan that was made for an empty table and
reads the whole of it is the slow death of such a system, so here every statement is planned for empty tables. A part
of a key is no key either: planners up to PostgreSQL 16 like to look up the namespace, and to read all that is in it.
"""

import json
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from stateward.store.postgres import apply, claims, queries
from stateward.store.postgres.apply import Clause, compose_statement
from stateward.store.postgres.connections import writer_settings
from tests.integration.postgres_helpers import in_loop, opened
from tests.servers import VERSIONS, shared_server

READ = {
    f"{module.__name__.rpartition('.')[2]}.{name}": sql
    for module in (queries, claims)
    for name, sql in vars(module).items()
    if isinstance(sql, str) and sql.strip().startswith(("SELECT", "WITH", "INSERT")) and "<where>" not in sql
}
WRITTEN = {
    clause.name: compose_statement((clause,), journaled=False, notified=False)
    for clause in vars(apply).values()
    if isinstance(clause, Clause) and clause is not apply.JOURNAL_ENTRIES
}
GROWING = {"objects", "operations", "work", "journal", "progress", "signals", "locks", "timers", "answers", "trees"}
WHOLE = {"work_claimable", "work_owned"}
"""Partial indexes that hold only what is wanted: the lanes that have work, and what runs."""

BY_NAMESPACE = {"queries.COUNT_OPEN_OPERATIONS", "queries.NAMESPACES"}
"""What counts within a namespace, up to a number, or goes from one namespace to the next."""

RARE = {"unlaned"}
"""The removal of lanes, which looks through all open work: it comes with the removal of a connection or namespace."""


def read_as_a_whole(node: dict[str, Any]) -> Iterator[str]:
    """Yield what a plan reads from end to end."""
    scans = "Scan" in node["Node Type"] and node.get("Relation Name") in GROWING
    by_key = "Index Cond" in node or "Recheck Cond" in node or node.get("Index Name") in WHOLE
    if scans and not by_key:
        yield f"{node['Node Type']} on {node['Relation Name']} by {node.get('Index Name')}"
    for below in node.get("Plans", ()):
        yield from read_as_a_whole(below)


def read_by_namespace(node: dict[str, Any]) -> Iterator[str]:
    """Yield where a plan reads a whole namespace."""
    condition = node.get("Index Cond", "")
    if "ns" in condition and " AND " not in condition:
        yield f"{node['Index Name']} by {condition}"
    for below in node.get("Plans", ()):
        yield from read_by_namespace(below)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", [*READ, *WRITTEN])
@in_loop
async def test_nothing_is_read_as_a_whole_even_if_all_tables_seem_empty(version: int, name: str) -> None:
    settings = {**writer_settings(5.0), "search_path": "stateward"}
    connection = await asyncpg.connect(await emptied(version), server_settings=settings)
    sql = {**READ, **WRITTEN}[name]
    places = len((await connection.prepare(sql)).get_parameters())
    await connection.execute(f"PREPARE it AS {sql}")
    values = f"({', '.join(['NULL'] * places)})" if places else ""
    plan = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE it{values}"))
    await connection.close()
    assert name in RARE or list(read_as_a_whole(plan[0]["Plan"])) == []
    assert name in BY_NAMESPACE or list(read_by_namespace(plan[0]["Plan"])) == []


known: dict[int, str] = {}


async def emptied(version: int) -> str:
    """Return a database whose tables were found to be empty."""
    if version not in known:
        dsn = shared_server(version).new_database()
        async with opened(dsn):
            pass
        connection = await asyncpg.connect(dsn)
        await connection.execute("VACUUM ANALYZE")
        await connection.close()
        known[version] = dsn
    return known[version]
