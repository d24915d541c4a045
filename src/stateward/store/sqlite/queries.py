"""Queries of transactions and readers: rows by key, selected objects, and pages of objects.

A filter becomes a WHERE clause with only the fields that it names, so that SQLite plans each combination by itself.

The cost of a page of objects depends on the page, not on the number of objects. The index of a kind is ordered by state
and then by id. A page in id order is taken from each state's part of the index and merged; the existing states are
found by a loose index scan.
"""

import re
import sqlite3
from collections.abc import Callable, Collection, Iterator
from typing import Generic, TypeVar

from msgspec.json import encode

from stateward.store import filters
from stateward.store.records import Key, Lock, Object, Signal, WorkItem
from stateward.store.sqlite import codec

ESCAPES = str.maketrans({"\\": "\\\\", "%": "\\%", "_": "\\_"})


def indexed_table(selector: filters.Selector) -> str:
    """Return the table with the index for a selector; by itself, SQLite prefers the index that avoids a sort."""
    if selector.states == () or selector.ids is not None:
        return "objects"  # no state matches nothing; INDEXED BY would fail if the index cannot be used
    if selector.id_prefix is not None:
        return "objects INDEXED BY sqlite_autoindex_objects_1"  # the primary key
    if selector.parent is not None:
        return "objects INDEXED BY objects_by_parent"
    return "objects" if selector.kind is None else "objects INDEXED BY objects_by_state"


def operation_index(only: filters.OperationFilter) -> str:
    """Return the index for a filter of operations."""
    if only.object is not None:
        return "operations_by_object"
    if only.group is not None or only.is_about_open_work:
        return "sqlite_autoindex_operations_1"  # the primary key: the ids come from a subquery
    return "operations_by_time"


def like_pattern(text: str) -> str:
    """Return the pattern of all texts that contain a text."""
    return f"%{text.translate(ESCAPES)}%"


def where_objects(selector: filters.Selector, state: str | None = None, ns: str = "") -> filters.WhereClause:
    """Return the WHERE clause of a selector, or of its part in one state, or in the namespace of an expression."""
    where = filters.WhereClause()
    if ns:
        where.add(f"ns = {ns} AND removed = 0")
    elif isinstance(selector.ns, str):
        where.add("ns = ? AND removed = 0", selector.ns)
    else:
        where.add("ns IN (SELECT value FROM json_each(?)) AND removed = 0", encode(selector.ns).decode())
    where.add_given("kind = ?", selector.kind)
    if isinstance(selector.parent, tuple):
        where.add("parent IN (SELECT value FROM json_each(?))", encode(selector.parent).decode())
    else:
        where.add_given("parent = ?", selector.parent)
    if state is not None:
        where.add("state = ?", state)
    elif selector.states is not None:
        where.add(f"state IN ({', '.join('?' * len(selector.states))})", *selector.states)
    for name, value in selector.labels:
        where.add("EXISTS (SELECT 1 FROM json_each(labels) l WHERE l.key = ? AND l.value = ?)", name, value)
    if selector.name_like is not None:
        where.add("id LIKE ? ESCAPE '\\'", like_pattern(selector.name_like))
    if selector.ids is not None:
        where.add("id IN (SELECT value FROM json_each(?))", encode(selector.ids).decode())
    if selector.id_prefix is not None:
        where.add("id >= ? AND id < ?", selector.id_prefix, selector.id_end)
    return where


def where_journal(only: filters.JournalFilter) -> filters.WhereClause:
    """Return the WHERE clause of a journal filter."""
    where = filters.WhereClause()
    where.add_journal_filter(only)
    return where


def indexed_journal(only: filters.JournalFilter) -> str:
    """Return the table with the index for a journal filter; each of them is in the order of the numbers."""
    if only.ns is None:
        return "journal NOT INDEXED"
    return f"journal INDEXED BY {'journal_by_namespace' if only.object is None else 'journal_by_object'}"


T = TypeVar("T")

OBJECT = codec.render_sql("SELECT {Object} FROM objects WHERE ns = ? AND id = ?")
COUNT_SELECTED = "SELECT count(*) FROM <source> WHERE <where>"
SELECTED = codec.json_packed("{Object}", "FROM <source> WHERE <where> ORDER BY id")


class KeyQuery(Generic[T]):
    """A query for the records with some keys: `columns`, `table`, the column of the id, and the decoder of a row."""

    def __init__(self, columns: str, table: str, id_: str, record: Callable[[codec.Row], T], order: str = "") -> None:
        among = "FROM <table> WHERE ns = ? AND <id> IN (SELECT value FROM json_each(?)) <order>"
        self.sql = codec.json_packed(columns, among, table=table, id=id_, order=order)
        single = "SELECT <columns> FROM <table> WHERE ns = ? AND <id> = ?"
        self._single = codec.render_sql(single, columns=columns, table=table, id=id_)
        self._record = record

    def fetch(self, connection: sqlite3.Connection, keys: Collection[Key]) -> Iterator[T]:
        """Run one query per namespace. Its ids are one JSON value, so that the statement is always the same.

        The rows of one key need not be packed.
        """
        if len(keys) == 1:
            for key in keys:
                yield from map(self._record, map(list, connection.execute(self._single, key).fetchall()))
            return
        names: dict[str, list[str]] = {}
        for ns, name in keys:
            names.setdefault(ns, []).append(name)
        for ns in sorted(names):
            yield from map(self._record, codec.fetch_packed(connection, self.sql, (ns, encode(names[ns]).decode())))


OBJECTS = KeyQuery("{Object}", "objects", "id", codec.object_of, "ORDER BY id")
OPERATIONS = KeyQuery("{Operation}", "operations", "id", codec.operation_of)
WORK = KeyQuery("{WorkItem}", "work", "op", codec.work_of)
QUEUES = KeyQuery("{WorkItem}", "work", "queue", codec.work_of)
LOCKS = KeyQuery("{Lock}", "locks", "tree", codec.lock_of)
SIGNALS = KeyQuery("{Signal}", "signals", "op", codec.signal_of)
IDEMPOTENCY_RECORDS = KeyQuery("{IdempotencyRecord}", "answers", "key", codec.idempotency_record_of)


def object_by_key(connection: sqlite3.Connection, key: Key) -> Object | None:
    """Return an object or None; a single row need not be packed."""
    row = connection.execute(OBJECT, key).fetchone()
    return None if row is None else codec.object_of([*row])


def selected(connection: sqlite3.Connection, selector: filters.Selector) -> list[Object]:
    """Return the selected objects, ordered by id."""
    where = where_objects(selector)
    rows = codec.fetch_packed(
        connection, codec.render_sql(SELECTED, source=indexed_table(selector), where=str(where)), tuple(where.values)
    )
    return [codec.object_of(row) for row in rows]


def count_selected(connection: sqlite3.Connection, selector: filters.Selector) -> int:
    """Count the selected objects."""
    where = where_objects(selector)
    sql = codec.render_sql(COUNT_SELECTED, source=indexed_table(selector), where=str(where))
    count: int = connection.execute(sql, where.values).fetchone()[0]
    return count


# A loose index scan: one step for each namespace.
NAMESPACES = """
WITH RECURSIVE found(ns) AS (
    SELECT min(ns) FROM objects
    UNION ALL
    SELECT (SELECT min(o.ns) FROM objects o WHERE o.ns > found.ns) FROM found WHERE found.ns IS NOT NULL
)
SELECT ns FROM found WHERE ns IS NOT NULL
"""


def namespaces(connection: sqlite3.Connection) -> list[str]:
    """Return the namespaces that have or had an object, in order."""
    return [ns for (ns,) in connection.execute(NAMESPACES)]


def queues(connection: sqlite3.Connection, keys: Collection[Key]) -> list[WorkItem]:
    """Return the work items of these queues, in the order of acceptance."""
    return sorted(QUEUES.fetch(connection, keys), key=lambda item: item.seq)


def locks(connection: sqlite3.Connection, trees: Collection[Key]) -> list[Lock]:
    """Return the locks of these trees, in the order of their requests."""
    return sorted(LOCKS.fetch(connection, trees), key=lambda lock: lock.seq)


def signals(connection: sqlite3.Connection, keys: Collection[Key]) -> list[Signal]:
    """Return the signals to these operations, in the order of their arrival."""
    return sorted(SIGNALS.fetch(connection, keys), key=lambda signal: signal.seq)


MAX_UNION_PARTS = 100
PART = codec.render_sql("SELECT * FROM (SELECT {Object} FROM <source> WHERE <where> ORDER BY id LIMIT ?)")
WHOLE = codec.json_packed("{Object}", "FROM (<parts> ORDER BY id LIMIT ?)")
STATES = """
WITH RECURSIVE found (state) AS (
    SELECT min(state) FROM objects WHERE ns = ?1 AND kind = ?2 AND removed = 0
    UNION ALL
    SELECT (SELECT min(state) FROM objects WHERE ns = ?1 AND kind = ?2 AND removed = 0 AND state > found.state)
    FROM found WHERE state IS NOT NULL
)
SELECT state FROM found WHERE state IS NOT NULL
"""


def object_page(connection: sqlite3.Connection, selector: filters.Selector, page: filters.Page) -> list[Object]:
    """Return a page of the selected objects, ordered by id."""
    states = _states(connection, selector)
    parts, values = [], []
    for state in states if len(states) <= MAX_UNION_PARTS else (None,):
        part, places = _part(selector, page, state)
        parts.append(part)
        values += places
    if not parts:
        return []
    rows = codec.fetch_packed(
        connection, codec.render_sql(WHOLE, parts=" UNION ALL ".join(parts)), (*values, page.limit)
    )
    return [codec.object_of(row) for row in rows]


def _states(connection: sqlite3.Connection, selector: filters.Selector) -> tuple[str | None, ...]:
    """Return the states to merge, or only None if another index serves the selector."""
    if selector.kind is None or selector.parent is not None or selector.ids is not None:
        return (None,)
    if selector.states is not None:
        return tuple(dict.fromkeys(selector.states))
    return tuple(row[0] for row in connection.execute(STATES, (selector.ns, selector.kind)).fetchall())


def _part(selector: filters.Selector, page: filters.Page, state: str | None) -> tuple[str, list[object]]:
    where = where_objects(selector, state)
    if page.after is not None:
        where.add("id > ?", page.after)
    return codec.render_sql(PART, source=indexed_table(selector), where=str(where)), [*where.values, page.limit]


PATH_KEY = re.compile(r"[A-Za-z0-9_.:/ -]+")
"""A name that can stand in a JSON path of SQLite as it is."""

INDEXED_COLUMNS = ("id", "kind", "state", "ns")


# The inner query sorts row numbers, so that only the rows of the page are read in full and packed.
SORTED = codec.json_packed(
    "<shown>, {Object:o}",
    """FROM (
    SELECT rowid AS row, <value> AS value, ns, id FROM <source> WHERE <where>
    ORDER BY value <way>, ns <way>, id <way> LIMIT ?
) k CROSS JOIN objects o ON o.rowid = k.row ORDER BY k.value <way>, k.ns <way>, k.id <way>""",
)

# The first rows of each namespace, which the primary key has in this order, are merged.
MERGED = codec.json_packed(
    f"substr(o.id, 1, {filters.SORT_CHARS}), {{Object:o}}",
    f"""FROM (
    SELECT m.rowid AS row, substr(m.id, 1, {filters.SORT_CHARS}) AS value, m.ns, m.id FROM json_each(?) n
    CROSS JOIN objects m ON m.rowid IN (
        SELECT rowid FROM objects INDEXED BY sqlite_autoindex_objects_1 WHERE <where> ORDER BY id <way> LIMIT ?
    ) ORDER BY value <way>, m.ns <way>, m.id <way> LIMIT ?
) k CROSS JOIN objects o ON o.rowid = k.row ORDER BY k.value <way>, k.ns <way>, k.id <way>""",  # noqa: S608
)


def sorted_page(
    connection: sqlite3.Connection, selector: filters.Selector, page: filters.SortedPage
) -> list[tuple[str | float, Object]]:
    """Return a page of the selected objects in some order, with their sort values."""
    is_merged = page.is_by_id and (selector.kind, selector.parent, selector.ids) == (None, None, None)
    where = where_objects(selector, ns="n.value" if is_merged else "")
    value, values = _sort_value(page.order)
    if page.after is not None:
        sign = "<" if page.order.is_descending else ">"
        where.add(f"({value}, ns, id) {sign} (?, ?, ?)", *values, *page.after)
        if is_merged:
            where.add(f"id {sign}= ?", page.id_bound)
    way = "DESC" if page.order.is_descending else "ASC"
    shown = codec.FULL_PRECISION.replace("<column>", "k.value") if page.order.is_number else "k.value"
    if is_merged:
        namespaces = encode([selector.ns] if isinstance(selector.ns, str) else selector.ns).decode()
        sql, places = codec.render_sql(MERGED, where=str(where), way=way), (*where.values, page.limit, page.limit)
        rows = codec.fetch_packed(connection, sql, (namespaces, *places))
        return [(first, codec.object_of(rest)) for first, *rest in rows]
    # Reading the table in its own order is three times as fast as by the index of the namespace.
    is_scan = page.order.column not in INDEXED_COLUMNS and selector.kind is None and selector.parent is None
    source = "objects NOT INDEXED" if is_scan else indexed_table(selector)
    sql = codec.render_sql(SORTED, shown=shown, value=value, source=source, where=str(where), way=way)
    rows = codec.fetch_packed(connection, sql, (*values, *where.values, page.limit))
    return [(float(first) if page.order.is_number else first, codec.object_of(rest)) for first, *rest in rows]


def _sort_value(order: filters.SortOrder) -> tuple[str, list[object]]:
    """Return the expression of the sort value, and its values."""
    if not order.path:
        return (
            order.column if order.is_number else f"substr(coalesce({order.column}, ''), 1, {filters.SORT_CHARS})"
        ), []
    values: list[object] = ["".join(["$", *(f'."{name}"' for name in order.path)])]
    expression = f"json_extract({order.column}, ?)"
    if order.column == "labels" and PATH_KEY.fullmatch(order.path[0]) is None:  # half as fast, but for any name
        expression, values = "(SELECT l.value FROM json_each(labels) l WHERE l.key = ?)", [order.path[0]]
    if not order.is_number:
        return f"substr(coalesce({expression}, ''), 1, {filters.SORT_CHARS})", values
    number = f"CAST({expression} AS REAL)"
    return (
        f"min(max(coalesce({number}, {filters.MISSING_NUMBER}), {filters.MISSING_NUMBER}), {-filters.MISSING_NUMBER})",
        values,
    )
