"""Retention on SQLite: candidates are read on read connections, and the writer deletes them in batches."""

import re
import sqlite3
from collections.abc import Collection
from typing import Any

from msgspec.json import decode, encode

from stateward.store import retention
from stateward.store.port import Tx
from stateward.store.records import Key
from stateward.store.sqlite.codec import render_sql
from stateward.store.sqlite.readers import ReadExecutor
from stateward.store.sqlite.tx import SqliteTx
from stateward.store.sqlite.writer import WriteExecutor

PACKED = "SELECT coalesce(json_group_array(json_array(<columns>)), '[]') FROM (<rows>)"
SPAN = render_sql(
    PACKED,
    columns="upto",
    rows="""
SELECT max(seq) AS upto FROM (SELECT seq FROM journal WHERE seq > ?1 AND seq <= ?2 ORDER BY seq LIMIT ?3)
""",
)

# An operation holds no object but its own, so only that one is checked.
OPERATIONS = render_sql(
    PACKED,
    columns="ns, id, begun",
    rows="""
WITH RECURSIVE
named AS MATERIALIZED (
    SELECT o.ns, o.id, max(o.object = j.object AND o.created = j.at) AS begun
    FROM journal j CROSS JOIN operations o ON o.ns = j.ns AND o.id = j.op
    WHERE j.seq > ?1 AND j.seq <= ?2 AND j.at < ?3 GROUP BY o.ns, o.id
),
up(ns, id, parent) AS (
    SELECT o.ns, o.id, o.parent FROM named n CROSS JOIN operations o ON o.ns = n.ns AND o.id = n.id
    UNION
    SELECT o.ns, o.id, o.parent FROM up CROSS JOIN operations o ON o.ns = up.ns AND o.id = up.parent
),
family(ns, id, root, depth) AS (
    SELECT ns, id, id, 0 FROM up
    WHERE NOT EXISTS (SELECT 1 FROM operations o WHERE o.ns = up.ns AND o.id = up.parent)
    UNION ALL
    SELECT o.ns, o.id, f.root, f.depth + 1 FROM family f CROSS JOIN operations o ON o.ns = f.ns AND o.parent = f.id
),
bound AS MATERIALIZED (
    SELECT DISTINCT f.ns, f.root FROM family f CROSS JOIN operations o ON o.ns = f.ns AND o.id = f.id
    WHERE o.ended IS NULL OR o.ended >= ?3
       OR EXISTS (SELECT 1 FROM objects s WHERE s.ns = o.ns AND s.id = o.object AND s.op = o.id)
       OR EXISTS (SELECT 1 FROM work w WHERE w.ns = o.ns AND w.op = o.id)
       OR EXISTS (SELECT 1 FROM locks l WHERE l.ns = o.ns AND l.op = o.id)
)
SELECT f.ns, f.id, coalesce((SELECT n.begun FROM named n WHERE n.ns = f.ns AND n.id = f.id), 0) AS begun
FROM family f WHERE NOT EXISTS (SELECT 1 FROM bound b WHERE b.ns = f.ns AND b.root = f.root)
ORDER BY f.depth DESC
""",
)
LOOKED_UP = re.compile(r"\{(\S+)(?: \|\| '')?==(\S+)\}")
FREE = render_sql(
    LOOKED_UP.sub(r"\1 = \2", retention.FREE_OBJECT), yes=" = 1", lookup="", by_queue=" INDEXED BY objects_by_queue"
)
OBJECTS = render_sql(
    PACKED,
    columns="ns, id, begun",
    rows="""
SELECT o.ns, o.id, max(o.since = j.at AND j.target IS NOT NULL) AS begun
FROM journal j CROSS JOIN objects o ON o.ns = j.ns AND o.id = j.object
WHERE j.seq > ?1 AND j.seq <= ?2 AND j.at < ?3 AND <free> GROUP BY o.ns, o.id
""",
    free=FREE,
    before="?3",
)
JOURNAL_ENTRIES = render_sql(
    PACKED,
    columns="seq",
    rows=LOOKED_UP.sub(r"\1 = \2", retention.PRUNABLE_ENTRIES),
    operations="SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?5)",
    objects="SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?6)",
    **{str(place): f"?{place}" for place in range(1, 5)},
)

# A page of rows after a key: the matching ones, and the last one, after which the next page begins.
PAGE = render_sql(
    PACKED,
    columns="ns, wanted, last",
    rows="""
WITH page AS MATERIALIZED (
    SELECT ns, <key> AS id, <wanted> AS wanted, <if> AS chosen
    FROM <table> WHERE (ns, <key>) > (?1, ?2) ORDER BY ns, <key> LIMIT ?4
)
SELECT DISTINCT ns, wanted, 0 AS last FROM page WHERE chosen
UNION ALL
SELECT * FROM (SELECT ns, id, 1 FROM page ORDER BY ns DESC, id DESC LIMIT 1)
""",
)
_ended = "NOT EXISTS (SELECT 1 FROM work w WHERE w.ns = answers.ns AND w.op = answers.op)"
IDEMPOTENCY_RECORDS = render_sql(PAGE, table="answers", key="key", wanted="key", **{"if": f"at < ?3 AND {_ended}"})

KEYS = {
    "keys": "json_each(?1) k CROSS JOIN",
    "key": "= json_extract(k.value, '$[0]') AND",
    "name": "= json_extract(k.value, '$[1]')",
}


def _drop_by_operation(table: str) -> str:
    among = "SELECT t.seq FROM <keys> <table> t ON t.ns <key> t.op <name> LIMIT ?2"
    return render_sql("DELETE FROM <table> WHERE seq IN (<among>)", among=among, table=table, **KEYS)


DROP_PROGRESS, DROP_SIGNALS = map(_drop_by_operation, ("progress", "signals"))
DROP_OPERATIONS = render_sql(
    "DELETE FROM operations WHERE rowid IN (SELECT o.rowid FROM <keys> operations o ON o.ns <key> o.id <name>)", **KEYS
)
DROP_OBJECTS = render_sql(
    "DELETE FROM objects WHERE rowid IN (SELECT o.rowid FROM <keys> objects o ON o.ns <key> o.id <name> WHERE <free>)",
    **KEYS,
    free=FREE,
    before="?2",
)
DROP_JOURNAL_ENTRIES = "DELETE FROM journal WHERE seq IN (SELECT value FROM json_each(?1))"
DROP_IDEMPOTENCY_RECORDS = render_sql(
    """
DELETE FROM answers WHERE at < ?2 AND <ended> AND (ns, key) IN (
    SELECT json_extract(k.value, '$[0]'), json_extract(k.value, '$[1]') FROM json_each(?1) k
)
""",
    ended=_ended,
)


SQL = retention.RetentionSql(
    *(SPAN, OPERATIONS, OBJECTS, JOURNAL_ENTRIES, IDEMPOTENCY_RECORDS, DROP_PROGRESS, DROP_SIGNALS),
    *(DROP_OPERATIONS, DROP_OBJECTS, DROP_JOURNAL_ENTRIES, DROP_IDEMPOTENCY_RECORDS),
)


class SqliteRetention(retention.SqlRetention):
    """Finds old rows with the readers, and deletes them with the writer."""

    def __init__(self, reads: ReadExecutor, writes: WriteExecutor) -> None:
        super().__init__(SQL)
        self._reads = reads
        self._writes = writes

    async def _rows(self, sql: str, *values: object) -> list[list[Any]]:
        def fetch(connection: sqlite3.Connection) -> list[list[Any]]:
            rows: list[list[Any]] = decode(connection.execute(sql, values).fetchone()[0])
            return rows

        return await self._reads.run(fetch)

    async def _drop(self, sql: str, *values: object) -> int:
        async def delete(tx: Tx) -> int:
            assert isinstance(tx, SqliteTx)
            return tx.drop(sql, values)

        return await self._writes.run(delete)

    def _packed(self, values: Collection[Key] | Collection[int]) -> str:
        return encode(values).decode()
