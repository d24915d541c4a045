"""Query plans on SQLite: every statement uses an index, without statistics of the tables."""

import re
import sqlite3
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from stateward.store import JournalFilter, Page, Selector
from stateward.store.filters import BY_STATE, OperationCursor, OperationFilter
from stateward.store.records import Status
from stateward.store.sqlite import SqliteStore, claims, queries, readers, tx
from stateward.store.sqlite.codec import render_sql
from stateward.store.sqlite.queries import indexed_journal, indexed_table, where_journal, where_objects

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
ENDED, OPEN = (Status.FAILED, Status.CANCELLED), (Status.RUNNING, Status.WAITING)
OPERATIONS = {
    "all": (OperationFilter("acme"), "operations_by_time (ns=?"),
    "kind and action": (OperationFilter("acme", kind="vm", action="stop"), "operations_by_time (ns=?"),
    "who": (OperationFilter("acme", who="ann"), "operations_by_time (ns=?"),
    "ended": (OperationFilter("acme", statuses=ENDED), "operations_by_time (ns=?"),
    "ended and open": (OperationFilter("acme", statuses=(*ENDED, *OPEN)), "operations_by_time (ns=?"),
    "open": (OperationFilter("acme", kind="vm", statuses=OPEN), "sqlite_autoindex_operations_1 (ns=? AND id=?)"),
    "object": (OperationFilter("acme", object="a", statuses=OPEN), "operations_by_object (ns=? AND object=?"),
    "group": (OperationFilter("acme", group="a", statuses=ENDED), "sqlite_autoindex_operations_1 (ns=? AND id=?)"),
}
PART_OR_WORK = re.compile(
    r"SEARCH (p USING (COVERING )?INDEX (operations_by_parent|operations_by_bulk|sqlite_autoindex_operations_1)"
    r" \(ns=\? AND (parent|bulk|id)=\?\)|w USING (COVERING )?INDEX \w+ \(ns=\?)"
)


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
        readers._group_sql(selector, BY_STATE, where_objects(selector)),
    ):
        steps = [step for step in plan(connection, sql) if "objects" in step]
        assert steps
        assert all(SERVED.search(step) for step in steps), steps


@pytest.mark.parametrize("before", [None, OperationCursor(5.0, "x")], ids=["first page", "next page"])
@pytest.mark.parametrize("what", OPERATIONS)
def test_operations_are_listed_by_an_index(
    connection: sqlite3.Connection, what: str, before: OperationCursor | None
) -> None:
    only, index = OPERATIONS[what]
    steps = plan(connection, readers.operation_page(only, before)[0])
    assert any(re.match(rf"SEARCH o USING INDEX {re.escape(index)}", step) for step in steps), steps
    assert not [step for step in steps if re.match(r"SCAN (?!\(subquery)", step)], steps
    parts = [step for step in steps if re.match(r"SEARCH [pw] ", step)]
    assert all(PART_OR_WORK.match(step) for step in parts), parts
    reached = plan(connection, readers.operation_page(replace(only, oldest=OperationCursor(2.0, "a")), before)[0])
    assert "operations_by_time" not in index or any("(ns=? AND (created,id)>" in step for step in reached), reached
    if "operations_by_time" in index:  # the newest are found without a look at all others
        assert not any("TEMP B-TREE" in step for step in steps), steps


def test_labels_are_searched_in_their_index(connection: sqlite3.Connection) -> None:
    (step, *_) = plan(connection, render_sql(readers.LABELS_HAVE, where="instr(labels, ?3)"))
    assert "objects_by_labels (ns=?)" in step


@pytest.mark.parametrize(
    ("only", "index"),
    [
        (JournalFilter(), "INTEGER PRIMARY KEY (rowid>?)"),
        (JournalFilter(kind="vm", upto=9), "INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        (JournalFilter(ns="acme", kind="vm"), "journal_by_namespace (ns=? AND rowid>?)"),
        (JournalFilter(ns="acme", object="a", actor="user"), "journal_by_object (ns=? AND object=? AND rowid>?)"),
    ],
)
def test_the_journal_is_walked_in_its_order(connection: sqlite3.Connection, only: JournalFilter, index: str) -> None:
    for sql in (readers.LINES, readers.JOURNAL_REACH):
        steps = plan(connection, render_sql(sql, source=indexed_journal(only), where=str(where_journal(only))))
        assert any(index in step for step in steps), steps
        assert not any("TEMP B-TREE" in step for step in steps), steps


def test_transitions_are_counted_from_a_number_on(connection: sqlite3.Connection) -> None:
    assert "SEARCH journal USING INTEGER PRIMARY KEY (rowid>?)" in plan(connection, readers.TRANSITIONS)
