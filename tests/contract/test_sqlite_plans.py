"""Query plans on SQLite: every statement uses an index, without statistics of the tables."""

import re
import sqlite3
from collections.abc import AsyncIterator

import pytest

from stateward.store import JournalFilter, Page, Selector
from stateward.store.sqlite import SqliteStore, claims, queries, readers, tx
from stateward.store.sqlite.codec import render_sql
from stateward.store.sqlite.queries import indexed_table, where_journal, where_objects

WHOLE_TABLE = re.compile(r"SCAN (objects|operations|work|journal|progress|signals|timers|answers)\b(?! USING)")
SERVED = re.compile(r"objects_by_parent \(ns=\? AND parent=|objects_by_state \(ns=\? AND kind=")
STATEMENT = re.compile(r"\s*(SELECT|UPDATE|WITH)")
PLACEHOLDER = re.compile(r"<\w+>")
STATEMENTS = {
    f"{module.__name__}.{name}": sql
    for module in (queries, claims, tx, readers)
    for name, found in vars(module).items()
    if name.isupper() and isinstance(sql := getattr(found, "sql", found), str)
    if STATEMENT.match(sql) and not PLACEHOLDER.search(sql)
}
SELECTORS = {
    "kind": Selector("acme", kind="vm"),
    "kind and state": Selector("acme", kind="vm", states=("Running", "Suspended")),
    "parent, kind and state": Selector("acme", kind="vm", parent="mci", states=("Running",)),
}


@pytest.fixture
async def connection() -> AsyncIterator[sqlite3.Connection]:
    """Give a connection to an empty database."""
    store = SqliteStore(":memory:")
    await store.open()
    yield store._writer.writer_connection.connection
    await store.close()


def plan(connection: sqlite3.Connection, sql: str) -> list[str]:
    """Return the steps in which SQLite would answer; how many values a statement takes is found by trying."""
    for places in range(40):
        try:
            return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", (1,) * places)]
        except sqlite3.ProgrammingError:
            continue
    raise AssertionError(sql)


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_reads_a_whole_table(connection: sqlite3.Connection, name: str) -> None:
    assert not [step for step in plan(connection, STATEMENTS[name]) if WHOLE_TABLE.match(step)]


@pytest.mark.parametrize("what", SELECTORS)
def test_objects_are_chosen_by_an_index(connection: sqlite3.Connection, what: str) -> None:
    selector = SELECTORS[what]
    filled = {"source": indexed_table(selector), "where": str(where_objects(selector))}
    part, _ = queries._part(selector, Page("x", 5), None if selector.parent else "Running")
    for sql in (
        render_sql(queries.WHOLE, parts=part),
        render_sql(queries.SELECTED, **filled),
        render_sql(readers.STATES, **filled),
    ):
        steps = [step for step in plan(connection, sql) if "objects" in step]
        assert steps
        assert all(SERVED.search(step) for step in steps), steps


@pytest.mark.parametrize(
    ("only", "index"),
    [
        (JournalFilter(), "INTEGER PRIMARY KEY (rowid>?)"),
        (JournalFilter(ns="acme", kind="vm"), "INTEGER PRIMARY KEY (rowid>?)"),
        (JournalFilter(ns="acme", object="a", actor="user"), "journal_by_object (ns=? AND object=? AND rowid>?)"),
    ],
)
def test_the_journal_is_walked_in_its_order(connection: sqlite3.Connection, only: JournalFilter, index: str) -> None:
    steps = plan(connection, render_sql(readers.LINES, where=str(where_journal(only))))
    assert any(index in step for step in steps), steps
    assert not any("TEMP B-TREE" in step for step in steps), steps
