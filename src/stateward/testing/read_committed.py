"""A store in virtual time whose transactions run concurrently, as those of PostgreSQL do at READ COMMITTED.

On SQLite, writers are serial, so a simulation on it never shows what two servers on PostgreSQL do to each other. Here,
the loop switches before each statement of a transaction. A statement sees what is committed at that moment, and the
transaction's own writes. Rows that it locks are waited for and read again after the wait; a row that was inserted in
the meantime is not among them. Reads without locks see two worlds in two statements. Out of order, a lock that another
transaction holds is a `WriteConflict`, and so is a deadlock; the transaction function then runs again. Writes become
visible at the commit.

The committed data is an SQLite database in memory. A transaction keeps its writes, and makes them again for each later
statement, in a transaction of SQLite that is rolled back, and for its commit. Simplified: lanes with limits share one
lock, and a conflicting write is detected at the commit rather than at the statement.
"""

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from stateward.store.changes import Changes
from stateward.store.errors import Unavailable, WriteConflict
from stateward.store.filters import Selector
from stateward.store.port import NO_LANES, KindFilter, LaneLoad, Reader, TxFunction
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
from stateward.store.sqlite import SqliteStore, claims
from stateward.store.sqlite.apply import BulkWriter, Sequences
from stateward.store.sqlite.errors import translate_error
from stateward.store.sqlite.tx import SqliteTx
from stateward.store.topics import NO_TOPICS, Topic, topics_of
from stateward.testing.row_lock_table import LockKey, RowLockTable
from stateward.testing.virtual_loop import PARTY

T = TypeVar("T")

ATTEMPTS = 12
"""The attempts of a transaction function that raises `WriteConflict` each time."""

ALL_ROWS = 1_000_000

SET_CLAIM = "UPDATE work SET owner = ?, epoch = ?, attempts = ?, deadline = ?, delayed = 0 WHERE ns = ? AND op = ?"
HIDE_WORK = "UPDATE work SET ready = 0 WHERE ns = ? AND op = ?"


class ReadCommittedStore:
    """The store that several simulated processes share."""

    serializes_writes = False

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.committed = SqliteStore(":memory:", inline=True, clock=clock)
        self.locks = RowLockTable()
        self.reader = cast("Reader", _SwitchingReader(self.committed.reader))
        self.retention = self.committed.retention
        self.subscribe = self.committed.subscribe
        self.is_open = False

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection to the committed data; for checks of the tables themselves."""
        return self.committed.connection

    async def open(self) -> None:
        await self.committed.open()
        self.is_open = True
        self._bulk_writer = BulkWriter(self.connection)
        self.sequences = Sequences(self.connection)

    async def close(self) -> None:
        await self.committed.close()
        self.is_open = False

    async def is_sole_user(self) -> bool:
        return False

    async def transact(self, function: TxFunction[T]) -> T:
        """Run a transaction function, and again after a conflict."""
        for attempt in range(1, ATTEMPTS):
            try:
                return await self._once(function)
            except WriteConflict:
                await asyncio.sleep(0.001 * attempt)
        return await self._once(function)

    async def _once(self, function: TxFunction[T]) -> T:
        await asyncio.sleep(0)
        tx = ReadCommittedTx(self, self._clock())
        try:
            result = await function(tx)
            await tx.commit()
        finally:
            self.locks.release(tx)
        self.committed._listeners.notify(tx.topics)
        return result

    def sqlite_tx(self, now: float) -> SqliteTx:
        """Return a transaction on the committed data."""
        return SqliteTx(self.connection, self._bulk_writer, self.sequences, now)

    @contextmanager
    def sqlite_transaction(self, end: str) -> Iterator[None]:
        """Run statements in a transaction of SQLite, and end it so; an error rolls it back."""
        self.connection.execute("BEGIN IMMEDIATE")
        self.sequences.reset()
        try:
            yield
            if end == "COMMIT":
                self.sequences.save()
            self.connection.execute(end)
        except sqlite3.Error as error:
            raise translate_error(error) from error
        finally:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")


class _SwitchingReader:
    """A reader; the loop switches before each query."""

    def __init__(self, inner: Reader) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._inner, name)

        async def read(*args: Any, **named: Any) -> Any:
            await asyncio.sleep(0)
            return await method(*args, **named)

        return read


class ReadCommittedTx:
    """One transaction; its methods are statements, in the words of the port."""

    flushes_early = False

    def __init__(self, store: ReadCommittedStore, now: float) -> None:
        self.now = now
        self.topics: Topic = NO_TOPICS
        self.party = PARTY.get()
        self.statements = 0
        self.is_lost = False  # the database has ended its connection
        self._store = store
        self._locks = store.locks
        self._writes: list[Callable[[SqliteTx], None]] = []
        self._known: dict[Key, Object] = {}
        self._held: set[Key] = set()  # objects that are locked, or found missing
        self._keys: set[Key] = set()  # locked, whether or not they are objects
        self._locked_beyond_keys = False
        self.is_default_lane_unlimited = store.sqlite_tx(now).is_default_lane_unlimited

    # --- statements --------------------------------------------------------------------------------------------------

    async def _switch(self) -> None:
        """Let others run before a statement."""
        self.statements += 1
        await asyncio.sleep(0)
        self._require_connection()

    def _require_connection(self) -> None:
        if self.is_lost:
            raise Unavailable("the database has closed the connection, which was idle within a transaction")

    def _run(self, statement: Callable[[SqliteTx], Coroutine[Any, Any, T]]) -> T:
        """Run a statement on what is committed now, and on the writes of this transaction."""
        if not self._writes:
            return _drive(statement(self._store.sqlite_tx(self.now)))
        with self._store.sqlite_transaction("ROLLBACK"):
            return _drive(statement(self._written()))

    def _written(self) -> SqliteTx:
        tx = self._store.sqlite_tx(self.now)
        tx._known.update(self._known)
        for write in self._writes:
            write(tx)
        return tx

    async def _take(self, keys: Iterable[LockKey], *, waits: bool = True) -> None:
        await self._locks.take(self, keys, waits=waits)
        self._require_connection()

    async def commit(self) -> None:
        """Make the writes visible to all."""
        await self._switch()
        if self._writes:
            with self._store.sqlite_transaction("COMMIT"):
                self._written()

    # --- objects -----------------------------------------------------------------------------------------------------

    async def objects(self, keys: Collection[Key]) -> dict[Key, Object]:
        await self._switch()
        there = await self._lock_objects(set(keys))
        records = self._run(lambda tx: tx.objects(there)) if there else {}
        self._known.update(records)
        return records

    async def _lock_objects(self, keys: set[Key]) -> list[Key]:
        """Lock the objects that exist when the statement begins; returns their keys."""
        is_last = not (self._locked_beyond_keys or self._keys)
        in_order = is_last and (not self._held or not keys or max(self._held) < min(keys))
        there = sorted(self._run(lambda tx: tx.peek(keys)))
        await self._take((_object(key) for key in there), waits=in_order)
        self._held |= keys
        return there

    async def peek(self, keys: Collection[Key]) -> dict[Key, Object]:
        await self._switch()
        return self._run(lambda tx: tx.peek(keys))

    async def lock_keys(self, keys: Collection[Key]) -> None:
        await self._switch()
        wanted = sorted(set(keys) - self._keys)
        in_order = not self._locked_beyond_keys and (not self._keys or not wanted or max(self._keys) < wanted[0])
        await self._take((("key", *key) for key in wanted), waits=in_order)
        self._keys.update(wanted)

    async def share_keys(self, keys: Collection[Key]) -> None:
        await self.lock_keys(keys)  # stricter than PostgreSQL: those who share a key wait for each other

    async def namespaces(self) -> list[str]:
        await self._switch()
        return self._run(lambda tx: tx.namespaces())

    async def select(self, selector: Selector) -> list[Object]:
        await self._switch()
        there = [record.key for record in self._run(lambda tx: tx.select(selector))]
        await self._take(_object(key) for key in there)
        records = [record for record in self._run(lambda tx: tx.select(selector)) if record.key in set(there)]
        self._held.update(there)
        self._known.update((record.key, record) for record in records)
        return records

    async def peek_selected(self, selector: Selector) -> list[Object]:
        await self._switch()
        return self._run(lambda tx: tx.peek_selected(selector))

    async def count_selected(self, selector: Selector) -> int:
        await self._switch()
        return self._run(lambda tx: tx.count_selected(selector))

    async def count_objects(self, ns: str, kind: str, limit: int) -> int:
        await self._switch()
        return self._run(lambda tx: tx.count_objects(ns, kind, limit))

    # --- operations and work -----------------------------------------------------------------------------------------

    async def operations(self, keys: Collection[Key]) -> dict[Key, Operation]:
        await self._switch()
        return self._run(lambda tx: tx.operations(keys))

    async def work(self, keys: Collection[Key]) -> dict[Key, WorkItem]:
        await self._switch()
        there = self._run(lambda tx: tx.work(keys))
        await self._take(_work(work_item) for work_item in sorted(there.values(), key=_number))
        return self._run(lambda tx: tx.work(list(there)))

    async def queues(self, keys: Collection[Key]) -> list[WorkItem]:
        wanted = set(keys)
        if not wanted <= self._held:
            await self._switch()
            await self._lock_objects(wanted - self._held)
        await self._switch()
        return await self._lock_work(lambda tx: tx.queues(wanted))

    async def _lock_work(self, statement: Callable[[SqliteTx], Coroutine[Any, Any, list[WorkItem]]]) -> list[WorkItem]:
        there = self._run(statement)
        await self._take(_work(work_item) for work_item in there)
        names = {work_item.key for work_item in there}
        return [work_item for work_item in self._run(statement) if work_item.key in names]

    async def count_open_operations(self, ns: str, limit: int) -> int:
        await self._switch()
        return self._run(lambda tx: tx.count_open_operations(ns, limit))

    async def signals(self, keys: Collection[Key]) -> list[Signal]:
        await self._switch()
        return self._run(lambda tx: tx.signals(keys))

    async def locks(self, trees: Collection[Key]) -> list[Lock]:
        self._locked_beyond_keys = True
        await self._switch()
        await self._take(("tree", *key) for key in sorted(set(trees)))
        await self._switch()
        return self._run(lambda tx: tx.locks(trees))

    async def idempotency_records(self, keys: Collection[Key]) -> dict[Key, IdempotencyRecord]:
        await self._switch()
        return self._run(lambda tx: tx.idempotency_records(keys))

    # --- due work ----------------------------------------------------------------------------------------------------

    async def due_timers(self, limit: int, kinds: KindFilter = None) -> list[Timer]:
        await self._switch()
        self._take_free_objects(
            Key(timer.ns, timer.object) for timer in self._run(lambda tx: tx.due_timers(limit, kinds))
        )
        await self._switch()
        due = self._run(lambda tx: tx.due_timers(ALL_ROWS, kinds))
        there = self._run(lambda tx: tx.peek({Key(timer.ns, timer.object) for timer in due}))
        ours = [timer for timer in due if (key := Key(timer.ns, timer.object)) in self._held or key not in there]
        return [timer for timer in ours[:limit] if self._locks.take_free(self, ("timer", timer.ns, timer.id))]

    def _take_free_objects(self, keys: Iterable[Key]) -> None:
        there = sorted(self._run(lambda tx: tx.peek(set(keys))))
        self._held.update(key for key in there if self._locks.take_free(self, _object(key)))

    async def overdue(self, limit: int, kinds: KindFilter = None, spared: str = "") -> list[WorkItem]:
        await self._switch()
        self._take_free_objects(
            key
            for work_item in self._run(lambda tx: tx.overdue(limit, kinds, spared))
            for key in _objects_of(work_item)
        )
        await self._switch()
        late = self._run(lambda tx: tx.overdue(ALL_ROWS, kinds, spared))
        there = self._run(lambda tx: tx.peek({key for work_item in late for key in _objects_of(work_item)}))
        ours = [
            work_item
            for work_item in late
            if all(key in self._held or key not in there for key in _objects_of(work_item))
        ]
        return [work_item for work_item in ours[:limit] if self._locks.take_free(self, _work(work_item))]

    async def lane_loads(self, kinds: KindFilter = None) -> tuple[list[LaneGroup], list[LaneLoad]]:
        await self._switch()
        _, loads = self._run(lambda tx: tx.lane_loads(kinds))
        if any(load.lane.lane or load.lane.grp or load.lane.capacity != UNLIMITED for load in loads):
            await self._take([("lanes",)])
        await self._switch()
        return self._run(lambda tx: tx.lane_loads(kinds))

    async def claim(
        self,
        slots: Mapping[str, int],
        owner: str,
        prefetch: Mapping[str, int] = NO_LANES,
        kinds: KindFilter = None,
    ) -> list[Claim]:
        await self._switch()
        hidden = [key[1:] for key in self._locks.held_by_others(self, "work")]
        with self._store.sqlite_transaction("ROLLBACK"):
            tx = self._written()
            self._store.connection.executemany(HIDE_WORK, hidden)
            taken = _drive(tx.claim(slots, owner, prefetch, kinds))
        await self._take(_work(claim.work) for claim in taken)  # free: nothing has run since they were found
        rows = [
            (claim.work.owner, claim.work.epoch, claim.work.attempts, claim.work.deadline, claim.work.ns, claim.work.op)
            for claim in taken
        ]

        def write(_: SqliteTx) -> None:
            claims.promote(self._store.connection, self.now)
            self._store.connection.executemany(SET_CLAIM, rows)

        self._writes.append(write)
        return taken

    # --- workers -----------------------------------------------------------------------------------------------------

    async def heartbeat(self, worker: WorkerRecord) -> None:
        await self._switch()
        await self._take([("worker", worker.id)])
        self._writes.append(lambda tx: _drive(tx.heartbeat(worker)))

    async def remove_worker(self, worker: str) -> None:
        await self._switch()
        await self._take([("worker", worker)])
        self._writes.append(lambda tx: _drive(tx.remove_worker(worker)))

    async def workers(self) -> list[WorkerRecord]:
        await self._switch()
        return self._run(lambda tx: tx.workers())

    async def dead_workers(self) -> list[WorkerRecord]:
        await self._switch()
        dead = self._run(lambda tx: tx.dead_workers())
        return [worker for worker in dead if self._locks.take_free(self, ("worker", worker.id))]

    async def owned(self, worker: str) -> list[WorkItem]:
        await self._switch()
        keys = {key for work_item in self._run(lambda tx: tx.owned(worker)) for key in _objects_of(work_item)}
        there = sorted(self._run(lambda tx: tx.peek(keys)))
        await self._take(_object(key) for key in there)
        self._held.update(there)
        await self._switch()
        return await self._lock_work(lambda tx: tx.owned(worker))

    # --- writes ------------------------------------------------------------------------------------------------------

    async def flush_early(self, changes: Changes) -> bool:
        """Return False: the function and its statements run on one thread."""
        del changes
        return False

    async def apply(self, changes: Changes) -> None:
        await self._switch()
        await self._take(_rows_of(changes))
        known = dict(self._known)

        def write(tx: SqliteTx) -> None:
            tx._known.update(known)
            _drive(tx.apply(changes))

        self._writes.append(write)
        self._known.update((record.key, record) for record in changes.objects)
        self.topics |= topics_of(changes)


def _drive(statement: Coroutine[Any, Any, T]) -> T:
    """Run a method of a transaction on SQLite, which never suspends."""
    try:
        statement.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    raise AssertionError("a transaction on SQLite never suspends")


def _rows_of(changes: Changes) -> Iterator[LockKey]:
    """Return the rows that a change set locks until the commit, in the order of its statements."""
    yield from sorted(_object(record.key) for record in changes.objects)
    ops = {Key(end.ns, end.op) for end in changes.ended} | {key for key, _ in (*changes.steps, *changes.masked_args)}
    yield from sorted(("operation", *key) for key in ops)
    yield from sorted(
        {
            *(("work", *key) for key in (*changes.work_gone, *changes.children_ended)),
            *(_work(work_item) for work_item in (*changes.new_work, *changes.work, *changes.prefetch_started)),
        }
    )
    yield from sorted({("timer", *key) for key in (*changes.timers_gone, *(timer.key for timer in changes.timers))})
    yield from sorted(("answer", answer.ns, answer.key) for answer in changes.idempotency_records)
    if changes.lanes or changes.groups:
        yield ("lanes",)
    if changes.journal:
        yield ("journal",)


def _object(key: Key) -> LockKey:
    return "object", key.ns, key.id


def _work(work_item: WorkItem) -> LockKey:
    return "work", work_item.ns, work_item.op


def _number(work_item: WorkItem) -> int:
    return work_item.seq


def _objects_of(work_item: WorkItem) -> tuple[Key, Key]:
    return Key(work_item.ns, work_item.object), Key(work_item.ns, work_item.queue)
