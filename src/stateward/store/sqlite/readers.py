"""Reads beside the writer, and the connections and threads that execute them.

A query for one row runs on the event loop at once: handing it to a thread costs several times as much as the query.
Longer queries run on a thread, and so does a short one if the database is busy.
"""

import re
import sqlite3
from asyncio import get_running_loop, to_thread
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

from msgspec.json import encode
from msgspec.structs import replace

from stateward.store import filters, records
from stateward.store.errors import StoreBusy, Unavailable
from stateward.store.port import KindFilter, LaneLoad, LaneWork, SearchHits, StateCounts, StuckWork
from stateward.store.sqlite import codec, queries
from stateward.store.sqlite.claims import DELAYED, EXPEDITED, KNOWN, KNOWN_TIMER, all_lanes, packed_kinds
from stateward.store.sqlite.connections import SqliteSettings, open_reader, snapshot
from stateward.store.sqlite.errors import translate_error
from stateward.store.sqlite.shared_file import FileIdentity

T = TypeVar("T")


class ReadExecutor(Protocol):
    """Executes queries on a read connection."""

    async def run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query."""

    async def run_short(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query that reads a page or two."""

    async def close(self) -> None:
        """Close the connections."""


class ReaderPool:
    """A few threads, each with a connection while it runs a query. No snapshot stays open between queries."""

    def __init__(self, settings: SqliteSettings, size: int, files: FileIdentity) -> None:
        self._settings = settings
        self._files = files
        self._idle: list[sqlite3.Connection] = []
        self._loop_connection: sqlite3.Connection | None = None
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="stateward-reader")
        self._closed = False

    async def run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        self._require_open()
        return await get_running_loop().run_in_executor(self._threads, self._answer, query)

    async def run_short(self, query: Callable[[sqlite3.Connection], T]) -> T:
        self._require_open()
        try:
            if self._loop_connection is None:
                self._loop_connection = self._opened(replace(self._settings, busy_timeout_s=0.0))
            return run_query(self._loop_connection, query)
        except StoreBusy:
            return await self.run(query)

    async def close(self) -> None:
        self._closed = True
        if self._loop_connection is not None:
            self._loop_connection.close()
        await to_thread(self._threads.shutdown)
        while self._idle:
            self._idle.pop().close()

    def _answer(self, query: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._lent()
        try:
            return run_query(connection, query)
        finally:
            self._idle.append(connection)

    def _lent(self) -> sqlite3.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._opened(self._settings)

    def _opened(self, settings: SqliteSettings) -> sqlite3.Connection:
        # SQLite does not see the locks of its own process: a connection to another file of the same name would truncate
        # the WAL index that the writer has mapped, and the next read there would end the process (SIGBUS).
        self._files.check()
        connection = open_reader(settings)
        try:
            self._files.check()  # the file may have been replaced meanwhile
        except BaseException:
            connection.close()
            raise
        return connection

    def _require_open(self) -> None:
        if self._closed:
            raise Unavailable("the store is closed")
        self._files.require()


class InlineReader:
    """Runs queries on the event loop, on the writer connection, which is idle then."""

    def __init__(self, connection: Callable[[], sqlite3.Connection]) -> None:
        self._connection = connection

    async def run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        return run_query(self._connection(), query)

    async def run_short(self, query: Callable[[sqlite3.Connection], T]) -> T:
        return run_query(self._connection(), query)

    async def close(self) -> None:
        pass


def run_query(connection: sqlite3.Connection, query: Callable[[sqlite3.Connection], T]) -> T:
    """Run a query, and translate errors of SQLite."""
    try:
        return query(connection)
    except sqlite3.Error as error:
        raise translate_error(error) from error


Value: TypeAlias = object

DISPLAYED = "FROM operations o<index> LEFT JOIN work w ON w.ns = o.ns AND w.op = o.id WHERE o.ns = ? AND <which>"


def _shown(which: str, index: str = "") -> str:
    """Render a query of operations with their displayed status, start and attempts."""
    packed = codec.json_packed("{Operation:o}", DISPLAYED, index=index, which=which)
    head, start, rest = packed.partition("FROM operations")
    for column, shown in (
        ("o.status", filters.DISPLAYED_STATUS),
        ("o.started", codec.render_sql(filters.DISPLAYED_START, later="max")),
        ("o.attempts", filters.DISPLAYED_ATTEMPTS),
    ):
        head = re.sub(rf"{re.escape(column)}\b", shown, head)
    return head + start + rest


OPERATION = _shown("o.id = ?")
OPERATIONS_OF = _shown("o.object = ? ORDER BY o.rowid DESC LIMIT ?")
CHILDREN_OF = _shown("o.parent = ? ORDER BY o.rowid")
# Objects share a few texts of labels, and the inner query finds them: each is parsed once.
GROUPS = """
SELECT <fields>, sum(number) FROM (
    SELECT <columns>, count(*) AS number FROM <source> WHERE <where> GROUP BY <columns>
) GROUP BY <places> LIMIT ?
"""
LABEL = "(SELECT l.value FROM json_each(labels) l WHERE l.key = ?)"
OPERATION_PAGE = "<where> ORDER BY o.created DESC, o.id DESC LIMIT ?"
PARTS = """
SELECT o.<group>, <status>, count(*) FROM operations o LEFT JOIN work w ON w.ns = o.ns AND w.op = o.id
WHERE o.ns = ? AND o.<group> IN (SELECT value FROM json_each(?)) GROUP BY 1, 2
"""
PARTS_OF_PARENTS = codec.render_sql(PARTS, group="parent", status=filters.DISPLAYED_STATUS)
PARTS_OF_BULKS = codec.render_sql(PARTS, group="bulk", status=filters.DISPLAYED_STATUS)


def operation_page(only: filters.OperationFilter, before: filters.OperationCursor | None) -> tuple[str, list[object]]:
    """Return the query of a page of operations, and its values but for the limit."""
    where = filters.WhereClause()
    where.add_operation_filter(only, before, filters.RUNNING)
    page = codec.render_sql(OPERATION_PAGE, where=str(where))
    return _shown(page, f" INDEXED BY {queries.operation_index(only)}"), [only.ns, *where.values]


OPERATION_REACH = codec.render_sql(
    "SELECT o.created, o.id FROM operations o INDEXED BY operations_by_time"
    " WHERE o.ns = ? AND <entry> AND (o.created, o.id) < (?, ?) ORDER BY o.created DESC, o.id DESC LIMIT 1 OFFSET ?",
    entry=filters.ENTRY,
)
LINES = codec.json_packed("{JournalEntry}", "FROM <source> WHERE seq > ? AND <where> ORDER BY seq LIMIT ?")
# NOT INDEXED: for the groups, SQLite would walk a whole index that begins with the namespace.
TRANSITIONS = """
SELECT ns, CAST((at - ?2) / ?3 AS INTEGER) AS step, count(*) FROM journal NOT INDEXED
WHERE seq > ?1 AND at >= ?2 AND target IS NOT NULL AND source IS NOT target GROUP BY ns, step
"""
LINES_BACK = codec.json_packed("{JournalEntry}", "FROM <source> WHERE <where> ORDER BY seq DESC LIMIT ?")
JOURNAL_REACH = "SELECT seq FROM <source> WHERE seq > ? AND <where> ORDER BY seq LIMIT 1 OFFSET ?"
PROGRESS_OF = codec.json_packed("{Progress}", "FROM progress WHERE ns = ? AND op = ? AND seq > ? ORDER BY seq")
WORKERS = codec.json_packed("{WorkerRecord}", "FROM workers ORDER BY id")
TIMERS = codec.json_packed("{Timer}", "FROM timers WHERE ?1 IS NULL OR ns = ?1 ORDER BY due, rank, ns, id LIMIT ?2")
WORK_BY_LANE = """
SELECT w.lane, sum(w.owner IS NOT NULL AND w.deadline IS NOT NULL OR w.remote),
       sum((w.owner IS NULL OR w.deadline IS NULL) AND NOT w.remote), min(o.created)
FROM work w CROSS JOIN operations o ON o.ns = w.ns AND o.id = w.op
WHERE NOT w.fenced AND (?1 IS NULL OR w.ns IN (SELECT value FROM json_each(?1))) GROUP BY w.lane ORDER BY w.lane
"""
STUCK = codec.render_sql(
    """
WITH late(seq, since, orphaned) AS (
    SELECT seq, deadline, 0 FROM work WHERE deadline <= ?1
    UNION ALL
    SELECT w.seq, k.seen + k.lease, 1 FROM workers k JOIN work w INDEXED BY work_owned ON w.owner = k.id
    WHERE k.seen + k.lease < ?1
), first(seq, since, orphaned) AS (SELECT seq, min(since), max(orphaned) FROM late GROUP BY seq)
SELECT <stuck>
WHERE ?2 IS NULL OR w.ns IN (SELECT value FROM json_each(?2))
ORDER BY f.since, w.seq LIMIT ?3
""",
    stuck=filters.STUCK_ROWS,
)
LABEL_KEYS = """
SELECT DISTINCT l.key FROM objects o, json_each(o.labels) l
WHERE o.ns IN (SELECT value FROM json_each(?)) AND o.removed = 0 ORDER BY 1
"""
AMONG = "ns IN (SELECT value FROM json_each(?1))"
ID_BEGINS = codec.json_packed(
    "{Object}", "FROM objects WHERE <among> AND removed = 0 AND id >= ?2 AND id < ?3 LIMIT ?4", among=AMONG
)
ID_HAS = codec.json_packed(
    "{Object}", "FROM objects WHERE <among> AND removed = 0 AND id LIKE ?2 ESCAPE '\\' LIMIT ?3", among=AMONG
)
ERROR_HAS = codec.json_packed(
    "{Object}",
    "FROM objects INDEXED BY objects_by_error"
    " WHERE <among> AND removed = 0 AND error IS NOT NULL AND error LIKE ?2 ESCAPE '\\' LIMIT ?3",
    among=AMONG,
)
LABELS_HAVE = codec.render_sql(
    "SELECT DISTINCT labels FROM objects INDEXED BY objects_by_labels"
    " WHERE <among> AND removed = 0 AND labels <> '{}' AND <where> LIMIT ?2",
    among=AMONG,
)
OPERATION_BEGINS = codec.json_packed(
    "{Operation:o}",
    "FROM operations o LEFT JOIN work w ON w.ns = o.ns AND w.op = o.id"
    " WHERE o.<among> AND o.id >= ?2 AND o.id < ?3 LIMIT ?4",
    among=AMONG,
).replace("o.status", filters.DISPLAYED_STATUS, 1)
# A passed deadline of a live worker is left out: that worker is about to end the operation. So is expedited work, which
# only waits for a worker.
NEXT_DUE_ROWS = """
SELECT min(at) FROM (
    SELECT min(due) AS at FROM timers WHERE <known_timer>
    UNION ALL
    SELECT min(not_before) FROM work WHERE <delayed> AND <known>
    UNION ALL
    SELECT * FROM (
        SELECT deadline FROM work
        WHERE deadline IS NOT NULL AND NOT <expedited> AND <known> AND (deadline >= ?2 OR NOT EXISTS (
            SELECT 1 FROM workers k WHERE k.id = work.owner AND k.seen + k.lease >= ?2
        ))
        ORDER BY deadline LIMIT 1
    )
)
"""
NEXT_DUE = {"delayed": DELAYED, "expedited": EXPEDITED}
NEXT_DUE_TIME = codec.render_sql(NEXT_DUE_ROWS, **NEXT_DUE, known="TRUE", known_timer="TRUE")
NEXT_DUE_TIME_KNOWN = codec.render_sql(NEXT_DUE_ROWS, **NEXT_DUE, known=KNOWN, known_timer=KNOWN_TIMER)


SHORT_READ_KEYS = 20
"""Reading so many rows by key is faster than waking a thread."""


class SqliteReader:
    """Reads the last committed data."""

    def __init__(self, executor: ReadExecutor, clock: Callable[[], float]) -> None:
        self._executor = executor
        self._clock = clock

    async def object(self, key: records.Key) -> records.Object | None:
        return await self._executor.run_short(lambda connection: queries.object_by_key(connection, key))

    async def objects(self, keys: Collection[records.Key]) -> dict[records.Key, records.Object]:
        return {record.key: record for record in await self._by_keys(queries.OBJECTS, keys)}

    async def list_objects(self, selector: filters.Selector, page: filters.Page) -> list[records.Object]:
        def query(connection: sqlite3.Connection) -> list[records.Object]:
            with snapshot(connection):
                return queries.object_page(connection, selector, page)

        return await self._executor.run(query)

    async def count_groups(
        self, selector: filters.Selector, by: tuple[filters.GroupField, ...], limit: int | None = None
    ) -> dict[tuple[str | None, ...], int]:
        rows = await self._executor.run(lambda connection: _group_counts(connection, selector, by, limit))
        return {tuple(values): count for *values, count in rows}

    async def list_sorted(
        self, selector: filters.Selector, page: filters.SortedPage
    ) -> list[tuple[str | float, records.Object]]:
        return await self._executor.run(lambda connection: queries.sorted_page(connection, selector, page))

    async def search(self, namespaces: Sequence[str], text: filters.SearchText, limit: int) -> SearchHits:
        names, like = _namespace_list(namespaces), queries.like_pattern(text.text)

        def query(connection: sqlite3.Connection) -> SearchHits:
            with snapshot(connection):
                fetch = partial(codec.fetch_packed, connection)
                objects = fetch(ID_BEGINS, (names, text.text, text.end, limit))
                if len(objects) < limit:
                    objects += fetch(ID_HAS, (names, like, limit))
                return SearchHits(
                    [*{record.key: record for record in map(codec.object_of, objects)}.values()][:limit],
                    [codec.object_of(row) for row in fetch(ERROR_HAS, (names, like, limit))],
                    _labels_with(connection, names, text, limit),
                    [codec.operation_of(row) for row in fetch(OPERATION_BEGINS, (names, text.text, text.end, limit))],
                )

        return await self._executor.run(query)

    async def count_states(self, selector: filters.Selector) -> dict[tuple[str, str], int]:
        rows = await self._executor.run(lambda connection: _group_counts(connection, selector, filters.BY_STATE))
        return {(kind, state): count for kind, state, count in rows}

    async def count_by_namespace(self, namespaces: Sequence[str], kind: str | None = None) -> StateCounts:
        def query(connection: sqlite3.Connection) -> StateCounts:
            with snapshot(connection):
                (seq,) = connection.execute(filters.LAST_JOURNAL_SEQ).fetchone()
                by_namespace = {
                    ns: _group_counts(connection, filters.Selector(ns, kind), filters.BY_STATE) for ns in namespaces
                }
            return StateCounts(
                seq, {(ns, *states): count for ns, rows in by_namespace.items() for *states, count in rows}
            )

        return await self._executor.run(query)

    async def operation(self, key: records.Key) -> records.Operation | None:
        fetched = await self._executor.run_short(lambda connection: codec.fetch_packed(connection, OPERATION, key))
        return codec.operation_of(fetched[0]) if fetched else None

    async def operations(self, keys: Collection[records.Key]) -> dict[records.Key, records.Operation]:
        return {operation.key: operation for operation in await self._by_keys(queries.OPERATIONS, keys)}

    async def operations_of(self, key: records.Key, limit: int) -> list[records.Operation]:
        return await self._all(codec.operation_of, OPERATIONS_OF, *key, limit)

    async def list_operations(
        self, only: filters.OperationFilter, before: filters.OperationCursor | None, limit: int
    ) -> list[records.Operation]:
        sql, values = operation_page(only, before)
        return await self._all(codec.operation_of, sql, *values, limit)

    async def operation_reach(
        self, ns: str, before: filters.OperationCursor | None, rows: int
    ) -> filters.OperationCursor | None:
        values = ns, *(before or filters.NEWEST), rows - 1
        row = await self._executor.run(lambda connection: connection.execute(OPERATION_REACH, values).fetchone())
        return None if row is None else filters.OperationCursor(*row)

    async def count_parts(self, ns: str, entries: Collection[str]) -> dict[str, dict[records.Status, int]]:
        values = ns, encode([*entries]).decode()
        counts: dict[str, dict[records.Status, int]] = {}
        for sql in (PARTS_OF_PARENTS, PARTS_OF_BULKS):
            rows = await self._executor.run(lambda connection, sql=sql: connection.execute(sql, values).fetchall())  # type: ignore[misc]
            for entry, status, count in rows:
                counts.setdefault(entry, {})[records.STATUSES[status]] = count
        return counts

    async def children_of(self, key: records.Key) -> list[records.Operation]:
        return await self._all(codec.operation_of, CHILDREN_OF, *key)

    async def queue_of(self, key: records.Key) -> list[records.WorkItem]:
        return await self._executor.run(lambda connection: queries.queues(connection, (key,)))

    async def journal(self, after: int, limit: int, only: filters.JournalFilter) -> list[records.JournalEntry]:
        where = queries.where_journal(only)
        sql = codec.render_sql(LINES, source=queries.indexed_journal(only), where=str(where))
        return await self._all(codec.journal_entry_of, sql, after, *where.values, limit)

    async def newest_entries(
        self, before: int | None, limit: int, only: filters.JournalFilter
    ) -> list[records.JournalEntry]:
        where = queries.where_journal(only)
        where.add_given("seq < ?", before)
        sql = codec.render_sql(LINES_BACK, source=queries.indexed_journal(only), where=str(where))
        return await self._all(codec.journal_entry_of, sql, *where.values, limit)

    async def journal_reach(self, after: int, rows: int, ns: str | None) -> int | None:
        only = filters.JournalFilter(ns)
        where = queries.where_journal(only)
        sql = codec.render_sql(JOURNAL_REACH, source=queries.indexed_journal(only), where=str(where))
        values = after, *where.values, rows - 1
        row = await self._executor.run(lambda connection: connection.execute(sql, values).fetchone())
        return None if row is None else row[0]

    async def count_transitions(self, after: int, since: float, step_s: float) -> dict[tuple[str, int], int]:
        values = after, since, step_s
        rows = await self._executor.run(lambda connection: connection.execute(TRANSITIONS, values).fetchall())
        return {(ns, step): count for ns, step, count in rows}

    async def last_journal_seq(self) -> int:
        last: int = await self._one(filters.LAST_JOURNAL_SEQ)
        return last

    async def progress_of(self, key: records.Key, after: int) -> list[records.Progress]:
        return await self._all(codec.progress_of, PROGRESS_OF, *key, after)

    async def lanes(self) -> tuple[list[records.LaneGroup], list[LaneLoad]]:
        def query(connection: sqlite3.Connection) -> tuple[list[records.LaneGroup], list[LaneLoad]]:
            with snapshot(connection):
                return all_lanes(connection, self._clock())

        return await self._executor.run(query)

    async def work_by_lane(self, namespaces: Collection[str] | None = None) -> list[LaneWork]:
        names = _namespace_list(namespaces)
        rows = await self._executor.run(lambda connection: connection.execute(WORK_BY_LANE, (names,)).fetchall())
        return [LaneWork(*row) for row in rows]

    async def stuck(self, limit: int, namespaces: Collection[str] | None = None) -> list[StuckWork]:
        values: tuple[Value, ...] = self._clock(), _namespace_list(namespaces), limit
        rows = await self._executor.run(lambda connection: connection.execute(STUCK, values).fetchall())
        return [replace(StuckWork(*row), orphaned=bool(row[-1])) for row in rows]

    async def namespaces(self) -> list[str]:
        return await self._executor.run(queries.namespaces)

    async def label_keys(self, namespaces: Collection[str]) -> list[str]:
        names = _namespace_list(namespaces)
        rows = await self._executor.run(lambda connection: connection.execute(LABEL_KEYS, (names,)).fetchall())
        return [key for (key,) in rows]

    async def workers(self) -> list[records.WorkerRecord]:
        return await self._all(codec.worker_of, WORKERS)

    async def timers(self, ns: str | None, limit: int) -> list[records.Timer]:
        return await self._all(codec.timer_of, TIMERS, ns, limit)

    async def locks_of(self, tree: records.Key) -> list[records.Lock]:
        return await self._executor.run(lambda connection: queries.locks(connection, (tree,)))

    async def next_due_time(self, kinds: KindFilter = None) -> float | None:
        known = None if kinds is None else packed_kinds(kinds)
        sql = NEXT_DUE_TIME if known is None else NEXT_DUE_TIME_KNOWN
        wake: float | None = await self._one(sql, known, self._clock())
        return wake

    async def time(self) -> float:
        return self._clock()

    async def _by_keys(self, query: queries.KeyQuery[T], keys: Collection[records.Key]) -> list[T]:
        run = self._executor.run_short if len(keys) <= SHORT_READ_KEYS else self._executor.run
        return await run(lambda connection: list(query.fetch(connection, keys)))

    async def _all(self, record: Callable[[codec.Row], T], sql: str, *values: Value) -> list[T]:
        return await self._executor.run(
            lambda connection: [record(row) for row in codec.fetch_packed(connection, sql, values)]
        )

    async def _one(self, sql: str, *values: Value) -> Any:  # noqa: ANN401 - one value of any type
        return await self._executor.run(lambda connection: connection.execute(sql, values).fetchone()[0])


def _labels_with(connection: sqlite3.Connection, names: str | None, text: filters.SearchText, limit: int) -> list[str]:
    where = filters.WhereClause()
    for place, piece in enumerate(text.pieces, 3):
        where.add(f"labels LIKE ?{place} ESCAPE '\\'")
        where.values.append(queries.like_pattern(piece))
    if not where.parts:
        return []
    sql = LABELS_HAVE.replace("<where>", str(where))
    return [labels for (labels,) in connection.execute(sql, (names, limit, *where.values)).fetchall()]


def _namespace_list(namespaces: Collection[str] | None) -> str | None:
    """Return namespaces as one JSON value; None means all."""
    return None if namespaces is None else encode(sorted(namespaces)).decode()


def _group_counts(
    connection: sqlite3.Connection,
    selector: filters.Selector,
    by: tuple[filters.GroupField, ...],
    limit: int | None = None,
) -> list[tuple[Any, ...]]:
    where = queries.where_objects(selector)
    names = [field.label for field in by if field.label is not None]
    values = (*names, *where.values, -1 if limit is None else limit)
    return connection.execute(_group_sql(selector, by, where), values).fetchall()


def _group_sql(selector: filters.Selector, by: tuple[filters.GroupField, ...], where: filters.WhereClause) -> str:
    return codec.render_sql(
        GROUPS,
        fields=", ".join(field.column if field.label is None else LABEL for field in by),
        columns=filters.group_columns(by),
        source=queries.indexed_table(selector),
        where=str(where),
        places=", ".join(str(place) for place in range(1, len(by) + 1)),
    )
