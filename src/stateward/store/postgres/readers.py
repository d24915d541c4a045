"""Reads beside the writers: each is one statement on a read-only connection, and waits for no lock."""

from collections.abc import Collection, Sequence
from typing import Any

from stateward.store import filters, records
from stateward.store.port import KindFilter, LaneLoad, LaneWork, SearchHits, StateCounts, StuckWork
from stateward.store.postgres import queries
from stateward.store.postgres.claims import CLAIMABLE, DELAYED, EXPEDITED, lane_load, with_filter
from stateward.store.postgres.codec import operation_of, render_sql
from stateward.store.postgres.connections import ConnectionPool

DISPLAYED = (
    render_sql("SELECT {Operation:o} FROM operations o LEFT JOIN work w ON w.ns = o.ns AND w.op = o.id")
    .replace("o.status", filters.DISPLAYED_STATUS)
    .replace("o.started", render_sql(filters.DISPLAYED_START, later="greatest"))
    .replace("o.attempts", filters.DISPLAYED_ATTEMPTS, 1)
)

OBJECT = render_sql("SELECT {Object:o} FROM objects o WHERE o.ns = $1 AND o.id = $2")
OBJECT_PAGE = render_sql("SELECT {Object:o} FROM objects o WHERE <where> ORDER BY o.id LIMIT ")
# Objects share a few texts of labels, and the inner query finds them: each is parsed once.
COUNTS = """
SELECT <fields>, sum(number)::bigint FROM (
    SELECT <columns>, count(*) AS number FROM objects o WHERE <where> GROUP BY <columns>
) found GROUP BY <places> LIMIT <limit>
"""
SORTED_PAGE = render_sql("""
SELECT <value> AS value, {Object:o} FROM objects o WHERE <where> ORDER BY value <way>, o.ns <way>, o.id <way> LIMIT """)
# The first rows of each namespace, which an index has in this order, are merged.
MERGED_PAGE = render_sql("""
SELECT <value> AS value, {Object:o} FROM unnest(<namespaces>) n, LATERAL (
    SELECT * FROM objects o WHERE <where> ORDER BY o.id <way> LIMIT <limit>
) o ORDER BY value <way>, o.ns <way>, o.id <way> LIMIT """)
OPERATION = render_sql("<shown> WHERE o.ns = $1 AND o.id = $2", shown=DISPLAYED)
OPERATIONS_OF = render_sql(
    "<shown> WHERE o.ns || '' = $1 AND o.object = $2 ORDER BY o.created DESC, o.id DESC LIMIT $3", shown=DISPLAYED
)
OPERATION_PAGE = render_sql("<shown> WHERE <where> ORDER BY o.created DESC, o.id DESC LIMIT ", shown=DISPLAYED)


def operation_page(
    only: filters.OperationFilter, before: filters.OperationCursor | None, limit: int
) -> tuple[str, list[object]]:
    """Return the query of a page of operations, and its values."""
    where = queries.PostgresWhere()
    where.add("o.ns = ?" if only.object is None else "o.ns || '' = ?", only.ns)
    where.add_operation_filter(only, before, filters.RUNNING)
    place = where.place(limit)
    return OPERATION_PAGE.replace("<where>", str(where)) + place, where.values


PARTS = """
SELECT o.<group>, <status>, count(*) FROM operations o LEFT JOIN work w ON w.ns = o.ns AND w.op = o.id
WHERE o.ns = $1 AND o.<group> = ANY ($2::text[]) GROUP BY 1, 2
"""
PARTS_OF = " UNION ALL ".join(
    render_sql(PARTS, group=group, status=filters.DISPLAYED_STATUS) for group in ("parent", "bulk")
)
CHILDREN_OF = render_sql("<shown> WHERE o.ns = $1 AND o.parent = $2 ORDER BY o.created, o.id", shown=DISPLAYED)
QUEUE_OF = render_sql("SELECT {WorkItem:w} FROM work w WHERE w.ns || '' = $1 AND w.queue = $2 ORDER BY w.seq")
OPERATION_REACH = render_sql(
    "SELECT o.created, o.id FROM operations o WHERE o.ns = $1 AND <entry>"
    " AND (o.created, o.id) < ($2, $3) ORDER BY o.created DESC, o.id DESC LIMIT 1 OFFSET $4",
    entry=filters.ENTRY,
)
LINES = render_sql("SELECT {JournalEntry:j} FROM journal j WHERE <where> ORDER BY j.seq LIMIT ")
TRANSITIONS = """
SELECT ns, floor((at - $2) / $3)::integer, count(*) FROM journal
WHERE seq > $1 AND at >= $2::double precision AND target IS NOT NULL AND source IS DISTINCT FROM target
GROUP BY 1, 2
"""
LINES_BACK = render_sql("SELECT {JournalEntry:j} FROM journal j WHERE <where> ORDER BY j.seq DESC LIMIT ")
JOURNAL_REACH = "SELECT j.seq FROM journal j WHERE <where> ORDER BY j.seq LIMIT 1 OFFSET "
# One pass over the table for ids, labels and errors together, which ends at 1,000 objects with the text.
SEARCHED = """lower((o.id || ' ' || o.labels || ' ' || coalesce(o.error, '')) COLLATE "C")"""
CANDIDATES = render_sql("SELECT {Object:o} FROM objects o WHERE <where> LIMIT 1000")
ID_BEGINS = render_sql("""
SELECT {Object:o} FROM objects o WHERE o.ns = ANY ($1::text[]) AND NOT o.removed AND o.id >= $2 AND o.id < $3 LIMIT $4
""")
OPERATION_BEGINS = render_sql(
    "<shown> WHERE o.ns = ANY ($1::text[]) AND o.id >= $2 AND o.id < $3 LIMIT $4", shown=DISPLAYED
)
STATE_COUNTS = """
SELECT l.seq, o.ns, o.kind, o.state, o.count
FROM (SELECT coalesce(max(seq), 0) AS seq FROM journal) l
LEFT JOIN (
    SELECT ns, kind, state, count(*) AS count FROM objects
    WHERE ns = ANY($1::text[]) AND ($2::text IS NULL OR kind = $2) AND NOT removed GROUP BY ns, kind, state
) o ON true
"""
PROGRESS_OF = render_sql(
    "SELECT {Progress:p} FROM progress p WHERE p.ns = $1 AND p.op = $2 AND p.seq > $3 ORDER BY p.seq"
)
TIMERS = render_sql("""
SELECT {Timer:t} FROM timers t WHERE $1::text IS NULL OR t.ns = $1 ORDER BY t.due, t.rank, t.ns, t.id LIMIT $2
""")
LOCKS_OF = render_sql("SELECT {Lock:l} FROM locks l WHERE l.ns = $1 AND l.tree = $2 ORDER BY l.seq")
GROUPS = "SELECT grp, lanes FROM lane_groups"

LANES = render_sql(
    """
WITH busy AS (
    SELECT lane, max(grp) AS grp,
           (count(*) FILTER (WHERE owner IS NOT NULL AND deadline IS NOT NULL))::integer AS running,
           bool_or((<claimable>) OR (<delayed>) AND not_before <= extract(epoch FROM clock_timestamp())) AS waiting
    FROM work GROUP BY lane
)
SELECT coalesce(b.lane, l.lane), coalesce(l.grp, b.grp), l.capacity, l.back_off, l.opened, l.throttled,
       coalesce(b.running, 0), coalesce(b.waiting, false), g.lanes
FROM busy b
FULL JOIN lanes l ON l.lane = b.lane
LEFT JOIN lane_groups g ON g.grp = coalesce(l.grp, b.grp)
ORDER BY 1
""",
    claimable=CLAIMABLE,
    delayed=DELAYED,
)

WORK_BY_LANE = """
SELECT w.lane, count(*) FILTER (WHERE w.owner IS NOT NULL AND w.deadline IS NOT NULL OR w.remote),
       count(*) FILTER (WHERE (w.owner IS NULL OR w.deadline IS NULL) AND NOT w.remote), min(o.created)
FROM work w JOIN operations o ON o.ns = w.ns AND o.id = w.op
WHERE NOT w.fenced AND ($1::text[] IS NULL OR w.ns = ANY ($1)) GROUP BY w.lane ORDER BY w.lane
"""
STUCK = render_sql(
    """
WITH clock AS MATERIALIZED (SELECT extract(epoch FROM clock_timestamp())::double precision AS now),
late AS (
    SELECT w.seq, w.deadline AS since, false AS orphaned FROM clock, work w WHERE w.deadline <= clock.now
    UNION ALL
    SELECT w.seq, k.seen + k.lease, true FROM clock, workers k JOIN work w ON w.owner = k.id
    WHERE k.seen + k.lease < clock.now
), first AS (SELECT seq, min(since) AS since, bool_or(orphaned) AS orphaned FROM late GROUP BY seq)
SELECT <stuck>
WHERE $1::text[] IS NULL OR w.ns = ANY ($1)
ORDER BY f.since, w.seq LIMIT $2
""",
    stuck=filters.STUCK_ROWS,
)
# A loose index scan: one step for each namespace.
LABEL_KEYS = """
SELECT DISTINCT key COLLATE "C" FROM objects o, json_object_keys(o.labels::json) key
WHERE o.ns = ANY ($1::text[]) AND NOT o.removed ORDER BY 1
"""

# A passed deadline of a live worker is left out: that worker is about to end the operation. So is expedited work, which
# only waits for a worker.
NEXT_DUE_TIME, NEXT_DUE_TIME_KNOWN = with_filter(
    render_sql(
        """
WITH clock AS MATERIALIZED (SELECT extract(epoch FROM clock_timestamp())::double precision AS now)
SELECT least(
    (SELECT min(due) FROM timers t WHERE true <known_timer>),
    (SELECT min(not_before) FROM work WHERE <delayed> <known>),
    (SELECT work.deadline FROM clock, work
     WHERE work.deadline IS NOT NULL AND NOT <expedited> <known> AND (work.deadline >= clock.now OR NOT EXISTS (
         SELECT FROM workers k WHERE k.id = work.owner AND k.seen + k.lease >= clock.now
     ))
     ORDER BY work.deadline LIMIT 1)
)
""",
        delayed=DELAYED,
        expedited=EXPEDITED,
    ),
    1,
)


class PostgresReader:
    """Reads that never wait for a writer."""

    def __init__(self, connections: ConnectionPool) -> None:
        self._connections = connections

    async def object(self, key: records.Key) -> records.Object | None:
        rows = await self._connections.fetch(OBJECT, key.ns, key.id)
        return records.Object(*rows[0]) if rows else None

    async def objects(self, keys: Collection[records.Key]) -> dict[records.Key, records.Object]:
        rows = await self._connections.fetch(queries.PEEKED, list(set(keys)))
        return {records.Key(row[0], row[1]): records.Object(*row) for row in rows}

    async def list_objects(self, selector: filters.Selector, page: filters.Page) -> list[records.Object]:
        where = queries.where_objects(selector)
        if page.after is not None:
            where.add("o.id > ?", page.after)
        limit = where.place(page.limit)
        rows = await self._connections.fetch(OBJECT_PAGE.replace("<where>", str(where)) + limit, *where.values)
        return [records.Object(*row) for row in rows]

    async def list_sorted(
        self, selector: filters.Selector, page: filters.SortedPage
    ) -> list[tuple[str | float, records.Object]]:
        where = queries.where_objects(selector, ns="n" if page.is_by_id else "")
        value = queries.sort_value(page.order, where)
        if page.after is not None:
            first = "?::double precision" if page.order.is_number else "?::text"
            where.add(f"({value}, o.ns, o.id) {'<' if page.order.is_descending else '>'} ({first}, ?, ?)", *page.after)
        limit = where.place(page.limit)
        way = "DESC" if page.order.is_descending else "ASC"
        if page.is_by_id:
            if page.after is not None:
                where.add(f"o.id {'<' if page.order.is_descending else '>'}= ?", page.id_bound)
            spaces = [selector.ns] if isinstance(selector.ns, str) else list(selector.ns)
            merged = {"namespaces": f"{where.place(spaces)}::text[]", "limit": limit}
            sql = render_sql(MERGED_PAGE, value=value, where=str(where), way=way, **merged)
        else:
            sql = render_sql(SORTED_PAGE, value=value, where=str(where), way=way)
        return [(row[0], records.Object(*row[1:])) for row in await self._connections.fetch(sql + limit, *where.values)]

    async def count_groups(
        self, selector: filters.Selector, by: tuple[filters.GroupField, ...], limit: int | None = None
    ) -> dict[tuple[str | None, ...], int]:
        where = queries.where_objects(selector)
        sql = render_sql(
            COUNTS,
            fields=", ".join(
                field.column if field.label is None else f"labels::json ->> {where.place(field.label)}::text"
                for field in by
            ),
            columns=filters.group_columns(by),
            where=str(where),
            places=", ".join(str(place) for place in range(1, len(by) + 1)),
            limit=f"{where.place(limit)}::bigint",
        )
        return {tuple(values): count for *values, count in await self._connections.fetch(sql, *where.values)}

    async def search(self, namespaces: Sequence[str], text: filters.SearchText, limit: int) -> SearchHits:
        names, begins, wanted = list(namespaces), (text.text, text.end, limit), text.text.lower()
        first = [records.Object(*row) for row in await self._connections.fetch(ID_BEGINS, names, *begins)]
        candidates = [records.Object(*row) for row in await self._candidates(names, text)]
        operations = await self._connections.fetch(OPERATION_BEGINS, names, *begins)
        labels = dict.fromkeys(hit.labels for hit in candidates)
        by_id = {hit.key: hit for hit in (*first, *candidates) if wanted in hit.id.lower()}
        return SearchHits(
            [*by_id.values()][:limit],
            [hit for hit in candidates if hit.error is not None and wanted in hit.error.lower()][:limit],
            [label for label in labels if all(piece.lower() in label.lower() for piece in text.pieces)][:limit],
            [operation_of(row) for row in operations],
        )

    async def _candidates(self, names: list[str], text: filters.SearchText) -> Sequence[Sequence[Any]]:
        where = queries.PostgresWhere()
        where.add("o.ns = ANY (?::text[]) AND NOT o.removed", names)
        for piece in text.pieces:
            where.add(f'position(lower(?::text COLLATE "C") IN {SEARCHED}) > 0', piece)
        sql = CANDIDATES.replace("<where>", str(where))
        return await self._connections.fetch(sql, *where.values) if text.pieces else []

    async def count_states(self, selector: filters.Selector) -> dict[tuple[str, str], int]:
        counts = await self.count_groups(selector, filters.BY_STATE)
        return {(kind or "", state or ""): count for (kind, state), count in counts.items()}

    async def count_by_namespace(self, namespaces: Sequence[str], kind: str | None = None) -> StateCounts:
        rows = await self._connections.fetch(STATE_COUNTS, list(namespaces), kind)
        return StateCounts(
            rows[0][0], {(ns, kind, state): count for _, ns, kind, state, count in rows if ns is not None}
        )

    async def operation(self, key: records.Key) -> records.Operation | None:
        rows = await self._connections.fetch(OPERATION, key.ns, key.id)
        return operation_of(rows[0]) if rows else None

    async def operations(self, keys: Collection[records.Key]) -> dict[records.Key, records.Operation]:
        rows = await self._connections.fetch(queries.OPERATIONS, list(set(keys)))
        return {records.Key(row[0], row[1]): operation_of(row) for row in rows}

    async def operations_of(self, key: records.Key, limit: int) -> list[records.Operation]:
        return [operation_of(row) for row in await self._connections.fetch(OPERATIONS_OF, key.ns, key.id, limit)]

    async def list_operations(
        self, only: filters.OperationFilter, before: filters.OperationCursor | None, limit: int
    ) -> list[records.Operation]:
        sql, values = operation_page(only, before, limit)
        return [operation_of(row) for row in await self._connections.fetch(sql, *values)]

    async def operation_reach(
        self, ns: str, before: filters.OperationCursor | None, rows: int
    ) -> filters.OperationCursor | None:
        fetched = await self._connections.fetch(OPERATION_REACH, ns, *(before or filters.NEWEST), rows - 1)
        return filters.OperationCursor(*fetched[0]) if fetched else None

    async def count_parts(self, ns: str, entries: Collection[str]) -> dict[str, dict[records.Status, int]]:
        counts: dict[str, dict[records.Status, int]] = {}
        for entry, status, count in await self._connections.fetch(PARTS_OF, ns, [*entries]):
            counts.setdefault(entry, {})[records.STATUSES[status]] = count
        return counts

    async def children_of(self, key: records.Key) -> list[records.Operation]:
        return [operation_of(row) for row in await self._connections.fetch(CHILDREN_OF, key.ns, key.id)]

    async def queue_of(self, key: records.Key) -> list[records.WorkItem]:
        return [records.WorkItem(*row) for row in await self._connections.fetch(QUEUE_OF, key.ns, key.id)]

    async def journal(self, after: int, limit: int, only: filters.JournalFilter) -> list[records.JournalEntry]:
        where = queries.where_journal(only)
        where.add("j.seq > ?", after)
        place = where.place(limit)
        rows = await self._connections.fetch(LINES.replace("<where>", str(where)) + place, *where.values)
        return [records.JournalEntry(*row) for row in rows]

    async def newest_entries(
        self, before: int | None, limit: int, only: filters.JournalFilter
    ) -> list[records.JournalEntry]:
        where = queries.where_journal(only)
        where.add_given("j.seq < ?", before)
        place = where.place(limit)
        rows = await self._connections.fetch(LINES_BACK.replace("<where>", str(where)) + place, *where.values)
        return [records.JournalEntry(*row) for row in rows]

    async def journal_reach(self, after: int, rows: int, ns: str | None) -> int | None:
        where = queries.where_journal(filters.JournalFilter(ns))
        where.add("j.seq > ?", after)
        place = where.place(rows - 1)
        fetched = await self._connections.fetch(JOURNAL_REACH.replace("<where>", str(where)) + place, *where.values)
        return fetched[0][0] if fetched else None

    async def count_transitions(self, after: int, since: float, step_s: float) -> dict[tuple[str, int], int]:
        rows = await self._connections.fetch(TRANSITIONS, after, since, step_s)
        return {(ns, step): count for ns, step, count in rows}

    async def last_journal_seq(self) -> int:
        """Return the number of the newest entry; the journal lock ensures that no smaller one follows."""
        return int((await self._connections.fetch(filters.LAST_JOURNAL_SEQ))[0][0])

    async def progress_of(self, key: records.Key, after: int) -> list[records.Progress]:
        return [records.Progress(*row) for row in await self._connections.fetch(PROGRESS_OF, key.ns, key.id, after)]

    async def lanes(self) -> tuple[list[records.LaneGroup], list[LaneLoad]]:
        loads = [lane_load(row) for row in await self._connections.fetch(LANES)]
        groups = {group.grp: group for group, _ in loads}
        groups.update((row[0], records.LaneGroup(*row)) for row in await self._connections.fetch(GROUPS))
        return [groups[name] for name in sorted(groups)], [load for _, load in loads]

    async def work_by_lane(self, namespaces: Collection[str] | None = None) -> list[LaneWork]:
        return [LaneWork(*row) for row in await self._connections.fetch(WORK_BY_LANE, _namespace_list(namespaces))]

    async def stuck(self, limit: int, namespaces: Collection[str] | None = None) -> list[StuckWork]:
        return [StuckWork(*row) for row in await self._connections.fetch(STUCK, _namespace_list(namespaces), limit)]

    async def namespaces(self) -> list[str]:
        return [row[0] for row in await self._connections.fetch(queries.NAMESPACES)]

    async def label_keys(self, namespaces: Collection[str]) -> list[str]:
        return [row[0] for row in await self._connections.fetch(LABEL_KEYS, list(namespaces))]

    async def workers(self) -> list[records.WorkerRecord]:
        return [records.WorkerRecord(*row) for row in await self._connections.fetch(queries.WORKERS)]

    async def timers(self, ns: str | None, limit: int) -> list[records.Timer]:
        return [records.Timer(*row) for row in await self._connections.fetch(TIMERS, ns, limit)]

    async def locks_of(self, tree: records.Key) -> list[records.Lock]:
        return [records.Lock(*row) for row in await self._connections.fetch(LOCKS_OF, tree.ns, tree.id)]

    async def next_due_time(self, kinds: KindFilter = None) -> float | None:
        sql, given = (NEXT_DUE_TIME, []) if kinds is None else (NEXT_DUE_TIME_KNOWN, [list(kinds)])
        wake: float | None = (await self._connections.fetch(sql, *given))[0][0]
        return wake

    async def time(self) -> float:
        """Return the database's clock."""
        return float((await self._connections.fetch(queries.NOW))[0][0])


def _namespace_list(namespaces: Collection[str] | None) -> list[str] | None:
    """Return namespaces as a list; None means all."""
    return None if namespaces is None else sorted(namespaces)
