"""The transaction on SQLite. It holds the database's only write lock, so rows that it has read cannot change."""

# bounded by: one transaction
import sqlite3
from collections.abc import Collection, Mapping

from stateward.store.changes import Changes
from stateward.store.filters import Selector
from stateward.store.port import NO_LANES, KindFilter, LaneLoad
from stateward.store.records import (
    UNLIMITED,
    Claim,
    IdempotencyRecord,
    Key,
    LaneGroup,
    Lock,
    Object,
    Operation,
    Signal,
    Timer,
    WorkerRecord,
    WorkItem,
)
from stateward.store.sqlite import claims, queries
from stateward.store.sqlite.apply import BulkWriter, ChangeWriter, Sequences
from stateward.store.sqlite.codec import Row, fetch_packed, json_packed, timer_of, work_of, worker_of
from stateward.store.sqlite.errors import translate_error
from stateward.store.topics import NO_TOPICS, topics_of

DUE_ROWS = "FROM timers WHERE due <= ?2 <known> ORDER BY due, rank, ns, id LIMIT ?3"
TIMERS = json_packed("{Timer}", DUE_ROWS, known="")
TIMERS_KNOWN = json_packed("{Timer}", DUE_ROWS, known=f"AND {claims.KNOWN_TIMER}")
OVERDUE_ROWS = """
FROM work
WHERE deadline <= ?2 AND NOT <expedited> AND owner IS NOT ?4
  AND NOT EXISTS (SELECT 1 FROM workers k WHERE k.id = work.owner AND k.seen + k.lease >= ?2) <known>
ORDER BY deadline, seq LIMIT ?3
"""
OVERDUE = json_packed("{WorkItem}", OVERDUE_ROWS, expedited=claims.EXPEDITED, known="")
OVERDUE_KNOWN = json_packed("{WorkItem}", OVERDUE_ROWS, expedited=claims.EXPEDITED, known=f"AND {claims.KNOWN}")
HEARTBEAT = """
INSERT INTO workers (id, lease, seen, host, pid, kinds) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE
SET lease = excluded.lease, seen = excluded.seen, host = excluded.host, pid = excluded.pid, kinds = excluded.kinds
"""
COUNT_OBJECTS = """
SELECT count(*) FROM (
    SELECT 1 FROM objects INDEXED BY objects_by_state WHERE ns = ? AND kind = ? AND removed = 0 LIMIT ?
)
"""
COUNT_OPEN_OPERATIONS = (
    "SELECT count(*) FROM (SELECT 1 FROM work INDEXED BY work_by_queue WHERE ns = ? AND fenced = 0 LIMIT ?)"
)
LIMITED = f"SELECT 1 FROM lanes WHERE lane = '' AND (grp <> '' OR capacity <> {UNLIMITED} OR back_off > ?)"  # noqa: S608
REMOVE_WORKER = "DELETE FROM workers WHERE id = ?"
WORKERS = json_packed("{WorkerRecord}", "FROM workers ORDER BY id")
DEAD_WORKERS = json_packed(
    "{WorkerRecord}",
    """FROM (
    SELECT * FROM workers WHERE seen + lease < ?
    UNION ALL
    SELECT DISTINCT owner, 0.0, 0.0, '', 0, '' FROM work INDEXED BY work_owned
    WHERE owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM workers k WHERE k.id = owner)
) ORDER BY id""",
)
OWNED = json_packed("{WorkItem}", "FROM work INDEXED BY work_owned WHERE owner = ? ORDER BY seq")


class SqliteTx:
    """The transaction of one function. Its methods never suspend; they are coroutines because the port's are."""

    def __init__(
        self, connection: sqlite3.Connection, bulk_writer: BulkWriter, sequences: Sequences, now: float
    ) -> None:
        self.now = now
        self.topics = NO_TOPICS
        self.failure: Exception | None = None
        self._connection = connection
        self._bulk_writer = bulk_writer
        self._sequences = sequences
        self._known: dict[Key, Object] = {}
        self._unlimited: bool | None = None

    @property
    def is_default_lane_unlimited(self) -> bool:
        if self._unlimited is None:
            self._unlimited = not self._connection.execute(LIMITED, (self.now,)).fetchone()
        return self._unlimited

    @property
    def flushes_early(self) -> bool:
        return False

    async def objects(self, keys: Collection[Key]) -> dict[Key, Object]:
        records = {record.key: record for record in queries.OBJECTS.fetch(self._connection, keys)}
        self._known.update(records)
        return records

    async def peek(self, keys: Collection[Key]) -> dict[Key, Object]:
        return {record.key: record for record in queries.OBJECTS.fetch(self._connection, keys)}

    async def lock_keys(self, keys: Collection[Key]) -> None:
        """Do nothing: the transaction holds the only write lock."""

    async def share_keys(self, keys: Collection[Key]) -> None:
        """Do nothing, too."""

    async def namespaces(self) -> list[str]:
        return queries.namespaces(self._connection)

    async def select(self, selector: Selector) -> list[Object]:
        records = queries.selected(self._connection, selector)
        self._known.update((record.key, record) for record in records)
        return records

    async def peek_selected(self, selector: Selector) -> list[Object]:
        return queries.selected(self._connection, selector)

    async def count_selected(self, selector: Selector) -> int:
        return queries.count_selected(self._connection, selector)

    async def operations(self, keys: Collection[Key]) -> dict[Key, Operation]:
        return {operation.key: operation for operation in queries.OPERATIONS.fetch(self._connection, keys)}

    async def work(self, keys: Collection[Key]) -> dict[Key, WorkItem]:
        return {work_item.key: work_item for work_item in queries.WORK.fetch(self._connection, keys)}

    async def queues(self, keys: Collection[Key]) -> list[WorkItem]:
        return queries.queues(self._connection, keys)

    async def locks(self, trees: Collection[Key]) -> list[Lock]:
        return queries.locks(self._connection, trees)

    async def signals(self, keys: Collection[Key]) -> list[Signal]:
        return queries.signals(self._connection, keys)

    async def idempotency_records(self, keys: Collection[Key]) -> dict[Key, IdempotencyRecord]:
        return {
            Key(answer.ns, answer.key): answer for answer in queries.IDEMPOTENCY_RECORDS.fetch(self._connection, keys)
        }

    async def count_objects(self, ns: str, kind: str, limit: int) -> int:
        return self._count(COUNT_OBJECTS, ns, kind, limit)

    async def count_open_operations(self, ns: str, limit: int) -> int:
        return self._count(COUNT_OPEN_OPERATIONS, ns, limit)

    async def due_timers(self, limit: int, kinds: KindFilter = None) -> list[Timer]:
        return [timer_of(row) for row in self._due(TIMERS, TIMERS_KNOWN, kinds, limit)]

    async def lane_loads(self, kinds: KindFilter = None) -> tuple[list[LaneGroup], list[LaneLoad]]:
        claims.promote(self._connection, self.now)
        return claims.busy_lanes(self._connection, kinds)

    async def claim(
        self,
        slots: Mapping[str, int],
        owner: str,
        prefetch: Mapping[str, int] = NO_LANES,
        kinds: KindFilter = None,
    ) -> list[Claim]:
        claims.promote(self._connection, self.now)
        return claims.claim_work(self._connection, slots, owner, self.now, prefetch, kinds)

    async def overdue(self, limit: int, kinds: KindFilter = None, spared: str = "") -> list[WorkItem]:
        return [work_of(row) for row in self._due(OVERDUE, OVERDUE_KNOWN, kinds, limit, spared)]

    def _due(self, sql: str, sql_known: str, kinds: KindFilter, *values: int | str) -> list[Row]:
        """Return rows that are due now; without a filter, its place among the parameters is empty."""
        known = None if kinds is None else claims.packed_kinds(kinds)
        return fetch_packed(self._connection, sql if known is None else sql_known, (known, self.now, *values))

    async def heartbeat(self, worker: WorkerRecord) -> None:
        values = (worker.id, worker.lease, self.now, worker.host, worker.pid, worker.kinds)
        self._connection.execute(HEARTBEAT, values)

    async def remove_worker(self, worker: str) -> None:
        self._connection.execute(REMOVE_WORKER, (worker,))

    async def workers(self) -> list[WorkerRecord]:
        return [worker_of(row) for row in fetch_packed(self._connection, WORKERS)]

    async def dead_workers(self) -> list[WorkerRecord]:
        return [worker_of(row) for row in fetch_packed(self._connection, DEAD_WORKERS, (self.now,))]

    async def owned(self, worker: str) -> list[WorkItem]:
        return [work_of(row) for row in fetch_packed(self._connection, OWNED, (worker,))]

    async def flush_early(self, changes: Changes) -> bool:
        """Return False: the function and its statements run on one thread."""
        del changes
        return False

    async def apply(self, changes: Changes) -> None:
        try:
            ChangeWriter(self._bulk_writer, self._sequences, self.now).write(changes, self._known)
        except sqlite3.Error as error:
            self.failure = translate_error(error)
            raise self.failure from error
        except Exception as error:
            self.failure = error
            raise
        self.topics |= topics_of(changes)

    def drop(self, sql: str, values: tuple[object, ...]) -> int:
        """Execute a deletion of the retention policy; returns the number of rows."""
        return self._connection.execute(sql, values).rowcount

    def _count(self, sql: str, *values: object) -> int:
        count: int = self._connection.execute(sql, values).fetchone()[0]
        return count
