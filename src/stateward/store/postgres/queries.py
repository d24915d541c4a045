"""Queries of transactions, and their row locks.

Locks are taken in one order everywhere, so that transactions wait for each other but do not deadlock: first objects, by
key; then keys of objects that may not exist; then trees, timers and workers; then work items, by number. A query that
starts from work or timers (of a dead worker, overdue) therefore locks their objects first, in its own statement, and
reads in the next one, which sees what was committed while the first one waited. Rows are ordered by the requested keys
rather than by those found, which are the same, because an order that an index provides would tempt the planner to read
the whole index.
"""

from typing import ClassVar

from stateward.store.filters import MISSING_NUMBER, SORT_CHARS, JournalFilter, Selector, SortOrder, WhereClause
from stateward.store.postgres.claims import EXPEDITED, with_filter
from stateward.store.postgres.codec import render_sql
from stateward.store.records import UNLIMITED


class PostgresWhere(WhereClause):
    """A WHERE clause with numbered placeholders."""

    ordered_join: ClassVar[str] = "JOIN"

    def place(self, value: object) -> str:
        """Add a value and return its placeholder."""
        self.values.append(value)
        return f"${len(self.values)}"

    def add(self, part: str, *values: object) -> None:
        for value in values:
            part = part.replace("?", self.place(value), 1)
        self.parts.append(part)


def where_objects(selector: Selector, ns: str = "") -> PostgresWhere:
    """Return the WHERE clause of a selector, on the alias `o`, or of its part in the namespace of an expression."""
    where = PostgresWhere()
    if ns:
        where.add(f"o.ns = {ns} AND NOT o.removed")
    else:
        is_one = isinstance(selector.ns, str)
        where.add(f"o.ns = {'?' if is_one else 'ANY (?::text[])'} AND NOT o.removed", selector.ns)
    where.add_given("o.kind = ?", selector.kind)
    where.add_given(f"o.parent = {'ANY (?::text[])' if isinstance(selector.parent, tuple) else '?'}", selector.parent)
    where.add_given("o.state = ANY (?::text[])", selector.states)
    for name, value in selector.labels:
        where.add("o.labels::json ->> ?::text = ?", name, value)
    where.add_given('position(lower(? COLLATE "C") IN lower(o.id)) > 0', selector.name_like)
    where.add_given("o.id = ANY (?::text[])", selector.ids)
    if selector.id_prefix is not None:
        where.add("o.id >= ? AND o.id < ?", selector.id_prefix, selector.id_end)
    return where


def sort_value(order: SortOrder, where: PostgresWhere) -> str:
    """Return the expression of the sort value; its values are added to those of the WHERE clause."""
    if not order.path:
        return f"o.{order.column}" if order.is_number else _sort_text(f"o.{order.column}")
    if order.column == "labels":
        return _sort_text(f"o.labels::json ->> {where.place(order.path[0])}::text")
    path = f"{where.place(list(order.path))}::text[]"
    if not order.is_number:  # a NUL is valid in JSON, but not in a text of PostgreSQL
        return _sort_text(f"CASE WHEN position('\\u0000' IN o.spec) = 0 THEN o.spec::json #>> {path} END")
    number = f"CASE WHEN json_typeof(o.spec::json #> {path}) = 'number' THEN (o.spec::json #>> {path})::numeric END"
    return (
        f"least(greatest(coalesce({number}, {MISSING_NUMBER}), {MISSING_NUMBER}), {-MISSING_NUMBER})::double precision"
    )


def _sort_text(expression: str) -> str:
    return f"left(coalesce({expression}, ''), {SORT_CHARS}) COLLATE \"C\""


def where_journal(only: JournalFilter) -> PostgresWhere:
    """Return the WHERE clause of a journal filter, on the alias `j`; without an object, the namespace has an index."""
    where = PostgresWhere()
    where.add_journal_filter(only, "j.", "ns || ''" if only.object is None else "ns")
    return where


NOW = "SELECT extract(epoch FROM clock_timestamp())::double precision"
TX_START = render_sql(
    """
WITH clock AS MATERIALIZED (<now> AS now)
SELECT now, NOT EXISTS (
    SELECT FROM lanes WHERE lane = '' AND (grp <> '' OR capacity <> <unlimited> OR back_off > now)
) FROM clock
""",
    now=NOW,
    unlimited=str(UNLIMITED),
)

OBJECTS = render_sql("""
SELECT {Object:o} FROM unnest($1::row_key[]) k JOIN objects o ON {o.ns==k.ns} AND o.id = k.id
ORDER BY k.ns COLLATE "C", k.id COLLATE "C" FOR UPDATE OF o
""")
PEEKED = render_sql("SELECT {Object:o} FROM unnest($1::row_key[]) k JOIN objects o ON {o.ns==k.ns} AND o.id = k.id")
PEEKED_SELECTED = render_sql("SELECT {Object:o} FROM objects o WHERE <where> ORDER BY o.ns, o.id")
SELECTED = f"{PEEKED_SELECTED} FOR UPDATE OF o"
COUNT_SELECTED = "SELECT count(*) FROM objects o WHERE <where>"
LOCK_OBJECTS = render_sql("""
SELECT FROM unnest($1::row_key[]) k JOIN objects o ON {o.ns==k.ns} AND o.id = k.id
ORDER BY k.ns COLLATE "C", k.id COLLATE "C" FOR UPDATE OF o
""")
LOCK_KEYS = "SELECT pg_advisory_xact_lock(k) FROM unnest($1::bigint[]) k"
TRY_LOCK_KEYS = "SELECT pg_try_advisory_xact_lock(k) FROM unnest($1::bigint[]) k"
SHARE_KEYS = "SELECT pg_advisory_xact_lock_shared(k) FROM unnest($1::bigint[]) k"
TRY_SHARE_KEYS = "SELECT pg_try_advisory_xact_lock_shared(k) FROM unnest($1::bigint[]) k"
NAMESPACES = """
WITH RECURSIVE found(ns) AS (
    (SELECT ns FROM objects WHERE ns > '' ORDER BY ns LIMIT 1)
    UNION ALL
    SELECT (SELECT o.ns FROM objects o WHERE o.ns > found.ns ORDER BY o.ns LIMIT 1)
    FROM found WHERE found.ns IS NOT NULL
)
SELECT ns FROM found WHERE ns IS NOT NULL
"""
OPERATIONS = render_sql("""
SELECT {Operation:o} FROM unnest($1::row_key[]) k JOIN operations o ON {o.ns==k.ns} AND o.id = k.id
""")
WORK = render_sql("""
SELECT {WorkItem:w} FROM unnest($1::row_key[]) k JOIN work w ON {w.ns==k.ns} AND w.op = k.id
ORDER BY w.seq FOR UPDATE OF w
""")
QUEUES = render_sql("""
SELECT {WorkItem:w} FROM unnest($1::row_key[]) k JOIN work w ON {w.ns || ''==k.ns} AND w.queue = k.id
ORDER BY w.seq FOR UPDATE OF w
""")
SIGNALS = render_sql("""
SELECT {Signal:s} FROM unnest($1::row_key[]) k JOIN signals s ON {s.ns==k.ns} AND s.op = k.id ORDER BY s.seq
""")
ANSWERS = render_sql("""
SELECT {IdempotencyRecord:a} FROM unnest($1::row_key[]) k JOIN answers a ON {a.ns==k.ns} AND a.key = k.id
""")

COUNT_OBJECTS = """
SELECT count(*) FROM (SELECT FROM objects WHERE ns = $1 AND kind = $2 AND NOT removed LIMIT $3) first
"""
COUNT_OPEN_OPERATIONS = "SELECT count(*) FROM (SELECT FROM work WHERE ns = $1 AND NOT fenced LIMIT $2) first"

LOCK_TREES = render_sql("""
SELECT t.ns, t.id FROM unnest($1::row_key[]) k JOIN trees t ON {t.ns==k.ns} AND t.id = k.id
ORDER BY k.ns COLLATE "C", k.id COLLATE "C" FOR UPDATE OF t
""")
PLANT_TREES = """
INSERT INTO trees SELECT k.ns, k.id FROM unnest($1::row_key[]) k ORDER BY k.ns COLLATE "C", k.id COLLATE "C"
ON CONFLICT DO NOTHING
"""
LOCKS = render_sql("""
SELECT {Lock:l} FROM unnest($1::row_key[]) k JOIN locks l ON {l.ns==k.ns} AND l.tree = k.id ORDER BY l.seq
""")

LOCK_DUE, LOCK_DUE_KNOWN = with_filter(
    render_sql("""
SELECT o.ns, o.id FROM objects o
JOIN (SELECT DISTINCT ns, object FROM (
    SELECT ns, object FROM timers t WHERE due <= $1 <known_timer> ORDER BY due, rank, ns, id LIMIT $2
) first) d ON {o.ns==d.ns} AND o.id = d.object
ORDER BY d.ns, d.object FOR UPDATE OF o SKIP LOCKED
"""),
    3,
)
DUE, DUE_KNOWN = with_filter(
    render_sql("""
SELECT {Timer:t} FROM timers t
WHERE t.due <= $1 <known_timer> AND NOT EXISTS (
    SELECT FROM objects o WHERE {o.ns==t.ns} AND o.id = t.object AND (o.ns, o.id)::row_key <> ALL ($3::row_key[])
)
ORDER BY t.due, t.rank, t.ns, t.id LIMIT $2 FOR UPDATE OF t SKIP LOCKED
"""),
    4,
)

LOCK_OVERDUE, LOCK_OVERDUE_KNOWN = with_filter(
    render_sql(
        """
WITH late AS (
    SELECT work.ns, work.object, work.queue FROM work
    WHERE work.deadline <= $1 AND NOT <expedited> AND work.owner IS DISTINCT FROM $3
      AND NOT EXISTS (SELECT FROM workers k WHERE k.id = work.owner AND k.seen + k.lease >= $1) <known>
    ORDER BY work.deadline LIMIT $2
)
SELECT o.ns, o.id FROM objects o
JOIN (SELECT ns, object AS id FROM late UNION SELECT ns, queue FROM late) l ON {o.ns==l.ns} AND o.id = l.id
ORDER BY l.ns, l.id FOR UPDATE OF o SKIP LOCKED
""",
        expedited=EXPEDITED,
    ),
    4,
)
OVERDUE, OVERDUE_KNOWN = with_filter(
    render_sql(
        """
SELECT {WorkItem:work} FROM work
WHERE work.deadline <= $1 AND NOT <expedited> AND work.owner IS DISTINCT FROM $3
  AND NOT EXISTS (SELECT FROM workers k WHERE k.id = work.owner AND k.seen + k.lease >= $1) <known>
  AND NOT EXISTS (
      SELECT FROM objects o
      WHERE {o.ns==work.ns} AND o.id = work.object AND (o.ns, o.id)::row_key <> ALL ($4::row_key[])
  )
  AND NOT EXISTS (
      SELECT FROM objects o
      WHERE {o.ns==work.ns} AND o.id = work.queue AND (o.ns, o.id)::row_key <> ALL ($4::row_key[])
  )
ORDER BY work.deadline LIMIT $2 FOR UPDATE OF work SKIP LOCKED
""",
        expedited=EXPEDITED,
    ),
    5,
)

LOCK_OWNED = render_sql("""
WITH mine AS MATERIALIZED (SELECT ns, object, queue FROM work WHERE owner = $1)
SELECT FROM objects o
JOIN (SELECT ns, object AS id FROM mine UNION SELECT ns, queue FROM mine) l ON {o.ns==l.ns} AND o.id = l.id
ORDER BY l.ns, l.id FOR UPDATE OF o
""")
OWNED = render_sql("SELECT {WorkItem:w} FROM work w WHERE w.owner = $1 ORDER BY w.seq FOR UPDATE OF w")

HEARTBEAT = """
INSERT INTO workers VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (id) DO UPDATE
SET lease = excluded.lease, seen = excluded.seen, host = excluded.host, pid = excluded.pid, kinds = excluded.kinds
"""
REMOVE_WORKER = "DELETE FROM workers WHERE id = $1"
WORKERS = render_sql("SELECT {WorkerRecord:k} FROM workers k ORDER BY k.id")
DEAD_WORKERS = render_sql("""
SELECT {WorkerRecord:k} FROM (
    SELECT * FROM workers WHERE seen + lease < $1 ORDER BY id FOR UPDATE SKIP LOCKED
) k
UNION ALL
SELECT DISTINCT w.owner, 0.0::double precision, 0.0::double precision, '', 0, '' FROM work w
WHERE w.owner IS NOT NULL AND NOT EXISTS (SELECT FROM workers k WHERE k.id = w.owner)
""")
