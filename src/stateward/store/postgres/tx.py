"""The transaction on PostgreSQL: one connection, from BEGIN to COMMIT."""

# bounded by: one transaction
import asyncio
from collections.abc import Collection, Mapping

from msgspec.structs import astuple, replace

from stateward.store.changes import Changes
from stateward.store.errors import StoreBusy, StoreError, WriteConflict
from stateward.store.filters import Selector
from stateward.store.port import NO_LANES, KindFilter, LaneLoad
from stateward.store.postgres import claims, queries
from stateward.store.postgres.apply import ClauseRows, clause_rows_of, compose_statement, split_statements
from stateward.store.postgres.codec import claim_of, operation_of
from stateward.store.postgres.connections import DriverConnection, Row
from stateward.store.postgres.errors import DRIVER_ERRORS, translate_error
from stateward.store.postgres.listener import SchemaNames, encode_topics
from stateward.store.postgres.queries import where_objects
from stateward.store.records import (
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
from stateward.store.topics import NO_TOPICS, Topic, topics_of


class PostgresTx:
    """A write transaction. After a failure it can only be rolled back, even if the function ignored the error."""

    def __init__(self, connection: DriverConnection, names: SchemaNames, now: float, unlimited: bool) -> None:
        self._connection = connection
        self._names = names
        self._now = now
        self._unlimited = unlimited
        self._held: set[Key] = set()  # objects that are locked, or found missing
        self._known: dict[Key, Object] = {}
        self._key_locks: set[int] = set()
        self._shared_locks: set[int] = set()
        self._locked_beyond_keys = False  # rows after objects and keys in the lock order are locked
        self._promoted_due = False
        self._early_write: asyncio.Task[None] | None = None  # the write that runs while the function goes on
        self._unannounced = NO_TOPICS  # the topics of that write
        self.topics = NO_TOPICS
        self.failed: StoreError | None = None

    @property
    def now(self) -> float:
        """The database's clock, at the transaction's beginning."""
        return self._now

    @property
    def is_default_lane_unlimited(self) -> bool:
        return self._unlimited

    @property
    def flushes_early(self) -> bool:
        return True

    async def objects(self, keys: Collection[Key]) -> dict[Key, Object]:
        rows = await self._lock(queries.OBJECTS, set(keys))
        records = {Key(row[0], row[1]): Object(*row) for row in rows}
        self._known.update(records)
        return records

    async def peek(self, keys: Collection[Key]) -> dict[Key, Object]:
        rows = await self._fetch(queries.PEEKED, list(set(keys)))
        return {Key(row[0], row[1]): Object(*row) for row in rows}

    async def lock_keys(self, keys: Collection[Key]) -> None:
        wanted = {self._names.key_lock(key) for key in keys} - self._key_locks
        await self._take_key_locks(queries.LOCK_KEYS, queries.TRY_LOCK_KEYS, wanted)
        self._key_locks |= wanted

    async def share_keys(self, keys: Collection[Key]) -> None:
        wanted = {self._names.key_lock(key) for key in keys} - self._key_locks - self._shared_locks
        await self._take_key_locks(queries.SHARE_KEYS, queries.TRY_SHARE_KEYS, wanted)
        self._shared_locks |= wanted

    async def _take_key_locks(self, waiting: str, trying: str, wanted: set[int]) -> None:
        """Wait for locks of keys; a transaction that has later ones fails if it would have to wait."""
        if not wanted:
            return
        held = self._key_locks | self._shared_locks
        in_order = not self._locked_beyond_keys and (not held or max(held) < min(wanted))
        rows = await self._fetch(waiting if in_order else trying, sorted(wanted))
        if not in_order and not all(row[0] for row in rows):
            self.failed = WriteConflict("another transaction has locked a key")
            raise self.failed

    async def namespaces(self) -> list[str]:
        return [row[0] for row in await self._fetch(queries.NAMESPACES)]

    async def select(self, selector: Selector) -> list[Object]:
        where = where_objects(selector)
        rows = await self._fetch(queries.SELECTED.replace("<where>", str(where)), *where.values)
        records = {Key(row[0], row[1]): Object(*row) for row in rows}
        self._held.update(records)
        self._known.update(records)
        return list(records.values())

    async def peek_selected(self, selector: Selector) -> list[Object]:
        where = where_objects(selector)
        rows = await self._fetch(queries.PEEKED_SELECTED.replace("<where>", str(where)), *where.values)
        return [Object(*row) for row in rows]

    async def count_selected(self, selector: Selector) -> int:
        where = where_objects(selector)
        return int((await self._fetch(queries.COUNT_SELECTED.replace("<where>", str(where)), *where.values))[0][0])

    async def operations(self, keys: Collection[Key]) -> dict[Key, Operation]:
        rows = await self._fetch(queries.OPERATIONS, list(set(keys)))
        return {Key(row[0], row[1]): operation_of(row) for row in rows}

    async def work(self, keys: Collection[Key]) -> dict[Key, WorkItem]:
        rows = await self._fetch(queries.WORK, list(set(keys)))
        return {Key(row[0], row[1]): WorkItem(*row) for row in rows}

    async def queues(self, keys: Collection[Key]) -> list[WorkItem]:
        """Return the work items in the queues of these objects, in the order of acceptance, and lock them.

        A transaction that appends to a queue locks the object first. So does this method, and it reads in a later
        statement, which sees what was appended while it waited.
        """
        wanted = set(keys)
        if not wanted <= self._held:
            await self._lock(queries.LOCK_OBJECTS, wanted - self._held)
        return [WorkItem(*row) for row in await self._fetch(queries.QUEUES, list(wanted))]

    async def locks(self, trees: Collection[Key]) -> list[Lock]:
        wanted = list(set(trees))
        self._locked_beyond_keys = True
        while len(await self._fetch(queries.LOCK_TREES, wanted)) < len(wanted):  # missing, or pruned meanwhile
            await self._fetch(queries.PLANT_TREES, wanted)
        return [Lock(*row) for row in await self._fetch(queries.LOCKS, wanted)]

    async def signals(self, keys: Collection[Key]) -> list[Signal]:
        return [Signal(*row) for row in await self._fetch(queries.SIGNALS, list(set(keys)))]

    async def idempotency_records(self, keys: Collection[Key]) -> dict[Key, IdempotencyRecord]:
        """Return the records of these idempotency keys.

        They need no lock: of two transactions that add the same key, the later one gets `WriteConflict` and retries.
        """
        rows = await self._fetch(queries.ANSWERS, list(set(keys)))
        return {Key(row[0], row[1]): IdempotencyRecord(*row) for row in rows}

    async def count_objects(self, ns: str, kind: str, limit: int) -> int:
        return int((await self._fetch(queries.COUNT_OBJECTS, ns, kind, limit))[0][0])

    async def count_open_operations(self, ns: str, limit: int) -> int:
        return int((await self._fetch(queries.COUNT_OPEN_OPERATIONS, ns, limit))[0][0])

    async def due_timers(self, limit: int, kinds: KindFilter = None) -> list[Timer]:
        lock, due = (queries.LOCK_DUE, queries.DUE) if kinds is None else (queries.LOCK_DUE_KNOWN, queries.DUE_KNOWN)
        held = await self._fetch(lock, self._now, limit, *_given(kinds))
        return [Timer(*row) for row in await self._fetch(due, self._now, limit, self._hold(held), *_given(kinds))]

    async def lane_loads(self, kinds: KindFilter = None) -> tuple[list[LaneGroup], list[LaneLoad]]:
        self._promoted_due = True
        lock, loads = (
            (claims.LOCK_GROUPS, claims.LOADS) if kinds is None else (claims.LOCK_GROUPS_KNOWN, claims.LOADS_KNOWN)
        )
        args = (self._now, claims.DUE_BATCH_ROWS, self._names.groups_seed, *_given(kinds))
        locked = {row[0] for row in await self._fetch(lock, *args)}
        return claims.loads_of(await self._fetch(loads, *_given(kinds)), locked)

    async def claim(
        self,
        slots: Mapping[str, int],
        owner: str,
        prefetch: Mapping[str, int] = NO_LANES,
        kinds: KindFilter = None,
    ) -> list[Claim]:
        """Claim up to so many operations of each lane, and hold those that follow as prefetch."""
        if not self._promoted_due:
            await self._fetch(claims.PROMOTE_DUE, self._now, claims.DUE_BATCH_ROWS)
        lanes = list({**slots, **prefetch})
        free, ahead = ([wanted.get(lane, 0) for lane in lanes] for wanted in (slots, prefetch))
        sql = claims.CLAIM_WORK if kinds is None else claims.CLAIM_WORK_KNOWN
        chosen = await self._fetch(sql, lanes, free, owner, self._now, ahead, *_given(kinds))
        taken = [WorkItem(*row) for row in chosen]
        if not taken:
            return []
        rows = await self._fetch(claims.CLAIMED_ROWS, [work_item.key for work_item in taken])
        return [claim_of(work, row) for work, row in zip(taken, rows, strict=True)]

    async def overdue(self, limit: int, kinds: KindFilter = None, spared: str = "") -> list[WorkItem]:
        lock, late = (
            (queries.LOCK_OVERDUE, queries.OVERDUE)
            if kinds is None
            else (queries.LOCK_OVERDUE_KNOWN, queries.OVERDUE_KNOWN)
        )
        held = self._hold(await self._fetch(lock, self._now, limit, spared, *_given(kinds)))
        rows = await self._fetch(late, self._now, limit, spared, held, *_given(kinds))
        return [WorkItem(*row) for row in rows]

    async def heartbeat(self, worker: WorkerRecord) -> None:
        """Renew the lease of a worker, at the time of the database's clock."""
        replaced = astuple(replace(worker, seen=self._now))
        await self._fetch(queries.HEARTBEAT, *replaced)

    async def remove_worker(self, worker: str) -> None:
        await self._fetch(queries.REMOVE_WORKER, worker)

    async def workers(self) -> list[WorkerRecord]:
        return [WorkerRecord(*row) for row in await self._fetch(queries.WORKERS)]

    async def dead_workers(self) -> list[WorkerRecord]:
        return [WorkerRecord(*row) for row in await self._fetch(queries.DEAD_WORKERS, self._now)]

    async def owned(self, worker: str) -> list[WorkItem]:
        await self._fetch(queries.LOCK_OWNED, worker)
        return [WorkItem(*row) for row in await self._fetch(queries.OWNED, worker)]

    async def flush_early(self, changes: Changes) -> bool:
        if self._early_write is not None and not self._early_write.done():
            await asyncio.sleep(0)  # lets the event loop send the next piece
            return False
        await self._finish_early_write()
        self._unannounced |= topics_of(changes)
        self._early_write = asyncio.create_task(self._write_early(clause_rows_of(changes, self._known, self._now)))
        self._known.update((record.key, record) for record in changes.objects)
        await asyncio.sleep(0)
        return True

    async def wait_for_writes(self) -> None:
        """Wait for the end of an early write, and ignore its result."""
        if self._early_write is not None:
            await asyncio.gather(self._early_write, return_exceptions=True)

    async def apply(self, changes: Changes) -> None:
        """Write a set of changes; a version that does not match raises `WriteConflict` and nothing is written.

        The journal lock blocks other writers of the journal until the commit, so this is the last call of a function.
        """
        *earlier, last = split_statements(clause_rows_of(changes, self._known, self._now))
        for parts in earlier:
            await self._write(parts, Changes(), NO_TOPICS)
        await self._write(last, changes, topics_of(changes) | self._unannounced)

    async def commit(self) -> None:
        """Commit, or raise the first failure, even if the function ignored it."""
        await self._finish_early_write()
        if self.failed is not None:
            raise self.failed
        try:
            outcome = await self._connection.execute("COMMIT")
        except DRIVER_ERRORS as error:
            self.failed = translate_error(error)
            raise self.failed from error
        if outcome != "COMMIT":
            raise WriteConflict(f"the database answered {outcome}")

    async def _write(self, parts: list[ClauseRows], changes: Changes, about: Topic) -> None:
        if not (parts or changes.journal or about):
            return
        written = tuple(part.clause for part in parts)
        values: list[object] = [part.rows for part in parts]
        if changes.journal:
            values += [list(map(astuple, changes.journal)), self._names.journal_lock]
        if about:
            values += [self._names.channel, encode_topics(about, self._names.sender)]
        sql = compose_statement(written, journaled=bool(changes.journal), notified=bool(about))
        self._check(parts, (await self._fetch(sql, *values))[0])
        self.topics |= about

    def _check(self, parts: list[ClauseRows], tally: Row) -> None:
        for part, count in zip(parts, tally[1:], strict=False):
            if part.clause.exact and count != len(part.rows):
                self.failed = WriteConflict(f"{len(part.rows) - count} of {len(part.rows)} rows of {part.clause.table}")
                raise self.failed

    async def _lock(self, sql: str, keys: set[Key]) -> list[Row]:
        """Lock objects; an object out of the lock order that another transaction holds is a `WriteConflict`.

        PostgreSQL detects a deadlock only after a second, and all transactions behind it wait as well.
        """
        is_last = not (self._locked_beyond_keys or self._key_locks or self._shared_locks)
        in_order = is_last and (not self._held or not keys or max(self._held) < min(keys))
        try:
            rows = await self._fetch(sql if in_order else f"{sql} NOWAIT", list(keys))
        except StoreBusy as busy:
            if in_order:  # the lock timeout of the database
                raise
            self.failed = WriteConflict(busy.detail)
            raise self.failed from busy
        self._held |= keys
        return rows

    def _hold(self, rows: list[Row]) -> list[Key]:
        held = [Key(*row) for row in rows]
        self._held.update(held)
        return held

    async def _write_early(self, parts: list[ClauseRows]) -> None:
        values = [part.rows for part in parts]
        sql = compose_statement(tuple(part.clause for part in parts), journaled=False, notified=False)
        self._check(parts, (await self._execute(sql, *values))[0])

    async def _finish_early_write(self) -> None:
        """Wait for the early write: a connection runs one statement at a time."""
        if self._early_write is not None:
            writing, self._early_write = self._early_write, None
            await writing

    async def _fetch(self, sql: str, *values: object) -> list[Row]:
        if self._early_write is not None:
            await self._finish_early_write()
        return await self._execute(sql, *values)

    async def _execute(self, sql: str, *values: object) -> list[Row]:
        try:
            return await self._connection.fetch(sql, *values)
        except DRIVER_ERRORS as error:
            self.failed = translate_error(error)
            raise self.failed from error


def _given(kinds: KindFilter) -> tuple[list[str], ...]:
    """Return the last parameter of a statement that has a filter by kind."""
    return () if kinds is None else (list(kinds),)
