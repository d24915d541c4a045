"""Retention on PostgreSQL, on its own connection: each statement is a short transaction, and none waits for workers.

The statements are planned like those of the writers: by key, whatever the statistics of the tables say.
"""

from collections.abc import Collection

from stateward.store import retention
from stateward.store.postgres.codec import render_sql
from stateward.store.postgres.connections import ConnectionPool, Row, time_limit
from stateward.store.postgres.errors import DRIVER_ERRORS, translate_error
from stateward.store.postgres.queries import LOCK_OBJECTS
from stateward.store.records import Key

SPAN = "SELECT max(seq) FROM (SELECT seq FROM journal WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3) page"

# OFFSET 0 keeps each subquery a lookup. Without it the planner joins, and reads whole indexes of tables that it takes
# for empty. An operation holds no object but its own, so only that one is checked.
OPERATIONS = render_sql("""
WITH RECURSIVE
named AS MATERIALIZED (
    SELECT o.ns, o.id, o.parent, bool_or(o.object = j.object AND o.created = j.at) AS begun
    FROM journal j
    CROSS JOIN LATERAL (SELECT p.* FROM operations p WHERE {p.ns==j.ns} AND p.id = j.op OFFSET 0) o
    WHERE j.seq > $1 AND j.seq <= $2 AND j.at < $3 GROUP BY o.ns, o.id, o.parent
),
up(ns, id, parent) AS (
    SELECT n.ns, n.id, n.parent FROM named n
    UNION
    SELECT o.ns, o.id, o.parent FROM up
    CROSS JOIN LATERAL (SELECT p.* FROM operations p WHERE {p.ns==up.ns} AND p.id = up.parent OFFSET 0) o
),
family(ns, id, root, depth) AS (
    SELECT ns, id, id, 0 FROM up
    WHERE NOT EXISTS (SELECT FROM operations o WHERE {o.ns==up.ns} AND o.id = up.parent OFFSET 0)
    UNION ALL
    SELECT o.ns, o.id, f.root, f.depth + 1 FROM family f
    CROSS JOIN LATERAL (SELECT p.* FROM operations p WHERE {p.ns==f.ns} AND p.parent = f.id OFFSET 0) o
),
bound AS MATERIALIZED (
    SELECT DISTINCT f.ns, f.root FROM family f
    CROSS JOIN LATERAL (SELECT p.* FROM operations p WHERE {p.ns==f.ns} AND p.id = f.id OFFSET 0) o
    WHERE o.ended IS NULL OR o.ended >= $3
       OR EXISTS (SELECT FROM objects s WHERE {s.ns==o.ns} AND s.id = o.object AND s.op = o.id)
       OR EXISTS (SELECT FROM work w WHERE {w.ns==o.ns} AND w.op = o.id)
       OR EXISTS (SELECT FROM locks l WHERE {l.ns || ''==o.ns} AND l.op = o.id)
)
SELECT f.ns, f.id, (f.ns, f.id) IN (SELECT n.ns, n.id FROM named n WHERE n.begun)
FROM family f WHERE (f.ns, f.root) NOT IN (SELECT b.ns, b.root FROM bound b)
ORDER BY f.depth DESC
""")
FREE = render_sql(retention.FREE_OBJECT, yes="", lookup=" OFFSET 0", by_queue="")
OBJECTS = render_sql(
    """
SELECT o.ns, o.id, bool_or(o.since = j.at AND j.target IS NOT NULL)
FROM journal j
CROSS JOIN LATERAL (SELECT p.* FROM objects p WHERE {p.ns==j.ns} AND p.id = j.object OFFSET 0) o
WHERE j.seq > $1 AND j.seq <= $2 AND j.at < $3 AND <free> GROUP BY o.ns, o.id
""",
    free=FREE,
    before="$3",
)
JOURNAL_ENTRIES = render_sql(
    retention.PRUNABLE_ENTRIES,
    operations="SELECT k.ns, k.id FROM unnest($5::row_key[]) k",
    objects="SELECT k.ns, k.id FROM unnest($6::row_key[]) k",
    **{str(place): f"${place}" for place in range(1, 5)},
)

# A page of rows after a key: the matching ones, and the last one, after which the next page begins.
PAGE = """
WITH page AS MATERIALIZED (
    SELECT ns, <key> AS id, <wanted> AS wanted, <if> AS chosen
    FROM <table> WHERE (ns, <key>) > ($1, $2) ORDER BY ns, <key> LIMIT $4
)
SELECT DISTINCT ns, wanted, false FROM page WHERE chosen
UNION ALL
(SELECT ns, id, true FROM page ORDER BY ns DESC, id DESC LIMIT 1)
"""
_ended = "NOT EXISTS (SELECT FROM work w WHERE {w.ns==answers.ns} AND w.op = answers.op)"
IDEMPOTENCY_RECORDS = render_sql(PAGE, table="answers", key="key", wanted="key", **{"if": f"at < $3 AND {_ended}"})


def _drop_by_operation(table: str) -> str:
    sql = """
DELETE FROM <table> t USING (
    SELECT q.ns, q.op, q.seq FROM unnest($1::row_key[]) k
    CROSS JOIN LATERAL (SELECT r.* FROM <table> r WHERE {r.ns==k.ns} AND r.op = k.id OFFSET 0) q LIMIT $2
) first
WHERE {t.ns==first.ns} AND t.op = first.op AND t.seq = first.seq RETURNING 1
"""
    return render_sql(sql, table=table)


DROP_PROGRESS, DROP_SIGNALS = map(_drop_by_operation, ("progress", "signals"))
DROP_OPERATIONS = render_sql("""
DELETE FROM operations o USING unnest($1::row_key[]) k WHERE {o.ns==k.ns} AND o.id = k.id RETURNING 1
""")
DROP_OBJECTS = render_sql(
    """
DELETE FROM objects o USING unnest($1::row_key[]) k WHERE {o.ns==k.ns} AND o.id = k.id AND <free> RETURNING o.ns, o.id
""",
    free=FREE,
    before="$2",
)
DROP_TREES = render_sql("""
DELETE FROM trees t USING unnest($1::row_key[]) k WHERE {t.ns==k.ns} AND t.id = k.id
""")
DROP_JOURNAL_ENTRIES = "DELETE FROM journal WHERE seq = ANY ($1::bigint[]) RETURNING 1"
DROP_IDEMPOTENCY_RECORDS = render_sql(
    """
DELETE FROM answers USING unnest($1::row_key[]) k
WHERE {answers.ns==k.ns} AND answers.key = k.id AND answers.at < $2 AND <ended> RETURNING 1
""",
    ended=_ended,
)


SQL = retention.RetentionSql(
    *(SPAN, OPERATIONS, OBJECTS, JOURNAL_ENTRIES, IDEMPOTENCY_RECORDS, DROP_PROGRESS, DROP_SIGNALS),
    *(DROP_OPERATIONS, DROP_OBJECTS, DROP_JOURNAL_ENTRIES, DROP_IDEMPOTENCY_RECORDS),
)


class PostgresRetention(retention.SqlRetention):
    """Finds and deletes old rows."""

    def __init__(self, connections: ConnectionPool) -> None:
        super().__init__(SQL)
        self._connections = connections

    async def _rows(self, sql: str, *values: object) -> list[Row]:
        return await self._connections.fetch(sql, *values)

    async def _drop(self, sql: str, *values: object) -> int:
        return len(await self._connections.fetch(sql, *values))

    def _packed(self, values: Collection[Key] | Collection[int]) -> list[Key | int]:
        return [*values]

    async def drop_objects(self, keys: Collection[Key], before: float) -> int:
        """Delete objects and the rows of their lock trees; objects are locked in key order and checked again."""
        async with time_limit(self._connections.answer_timeout_s), self._connections.borrow() as connection:
            try:
                await connection.execute(self._connections.begin)
                await connection.fetch(LOCK_OBJECTS, list(keys))
                dropped = await connection.fetch(DROP_OBJECTS, list(keys), before)
                await connection.fetch(DROP_TREES, [Key(*row) for row in dropped])
                await connection.execute("COMMIT")
            except DRIVER_ERRORS as error:
                connection.terminate()
                raise translate_error(error) from error
            except BaseException:
                connection.terminate()
                raise
            return len(dropped)
