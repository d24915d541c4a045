"""The writer of change sets: bulk statements, sequence numbers, and the order of writes.

`executemany` releases the GIL for each row, and under load takes 5 ms to get it back. So rows are written by bulk
statements: an INSERT of up to 256 rows, which is one step of SQLite. For updates and deletions the rows are inserted
into a temporary view, whose trigger changes the table.

SQLite compiles a bulk statement once per connection, which takes several times as long as to write its rows. So large
batches are used for a statement that has written many rows.
"""

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

from msgspec import Struct
from msgspec.structs import astuple

from stateward.store.changes import Changes, sort_objects
from stateward.store.errors import WriteConflict
from stateward.store.records import Key, Lane, LaneGroup, Object, Timer
from stateward.store.sqlite.codec import (
    ENDED,
    IDEMPOTENCY_RECORD,
    JOURNAL_ENTRY,
    JOURNAL_SEQ,
    LOCK,
    LOCK_SEQ,
    OBJECT,
    OPERATION,
    PROGRESS,
    PROGRESS_SEQ,
    SIGNAL,
    WORK,
    RecordLayout,
    Values,
    layout_of,
    numbered,
    render_sql,
    row,
    transition_row,
    work_row,
)

FIRST_BATCH_ROWS, MAX_BATCH_ROWS = 16, 256
ROWS_PER_COMPILED = 8
"""How many rows a statement has written, at least, for each row of its largest batch."""

BATCH_SIZES = tuple(1 << power for power in range(MAX_BATCH_ROWS.bit_length()))


class BulkStatement(Struct, frozen=True):
    """A statement for many rows, in each batch size. If `exact`, a row without effect is a write conflict."""

    texts: dict[int, str]
    exact: bool
    definitions: tuple[str, ...] = ()


def _insert(table: str, layout: RecordLayout, ending: str = "", *, exact: bool = False) -> BulkStatement:
    """Return the statement that inserts rows into a table."""
    head = render_sql("INSERT OR FAIL INTO <table> (<columns>) VALUES ", table=table, columns=", ".join(layout.columns))
    row = f"({', '.join(layout.places)})"
    return BulkStatement({size: head + ", ".join([row] * size) + ending for size in BATCH_SIZES}, exact)


def _upsert(table: str, layout: RecordLayout, key: tuple[str, ...]) -> BulkStatement:
    """Return the statement that inserts rows or replaces those of the same key."""
    settings = ", ".join(f"{column} = excluded.{column}" for column in layout.columns if column not in key)
    return _insert(table, layout, f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {settings}")


def _via_trigger(view: str, layout: RecordLayout, sql: str, *, exact: bool = False) -> BulkStatement:
    """Return the statement that executes SQL for each row, by the trigger of a temporary view."""
    settings = ", ".join(f"{column} = NEW.{column}" for column in layout.columns[2:])
    action = render_sql(sql, settings=settings)
    values = ", ".join(f"NULL AS {column}" for column in layout.columns)
    definitions = (
        f"CREATE TEMP VIEW {view} AS SELECT {values}",
        f"CREATE TEMP TRIGGER do_{view} INSTEAD OF INSERT ON {view} BEGIN {action}; END",
    )
    return BulkStatement(_insert(view, layout).texts, exact, definitions)


def _update(view: str, layout: RecordLayout, table: str, key: str) -> BulkStatement:
    """Return the exact statement that sets the columns of rows; the first two columns of the layout are their key."""
    condition = f"WHERE ns = NEW.ns AND {key} = NEW.{layout.columns[1]}"
    return _via_trigger(view, layout, f"UPDATE {table} SET <settings> {condition}", exact=True)  # noqa: S608


def _delete(view: str, table: str, key: str) -> BulkStatement:
    """Return the statement that deletes the rows of some keys."""
    return _via_trigger(view, _columns_only("ns", key), f"DELETE FROM {table} WHERE ns = NEW.ns AND {key} = NEW.{key}")  # noqa: S608


def _columns_only(*columns: str, texts: tuple[int, ...] = ()) -> RecordLayout:
    return RecordLayout(columns, flags=(), texts=texts, numbers=(), words=())


FULL_WORK = RecordLayout((*WORK.columns, "delayed"), WORK.flags, WORK.texts, WORK.numbers, WORK.words)
MOVE = _columns_only("ns", "id", "state", "since", "version", "generation", "op", "error", texts=(6, 7))

# The compare-and-set of every state change.
CHANGE = "UPDATE objects SET <settings> WHERE ns = NEW.ns AND id = NEW.id AND version = NEW.version - 1"

CREATED_OBJECTS = _insert("objects", OBJECT, exact=True)
TRANSITIONED_OBJECTS = _via_trigger("moved", MOVE, CHANGE, exact=True)
REPLACED_OBJECTS = _via_trigger("replaced", OBJECT, CHANGE, exact=True)

NEW_OPERATIONS = _insert("operations", OPERATION, exact=True)
ENDED_OPERATIONS = _via_trigger(
    "ended",
    ENDED,
    "UPDATE operations SET status = NEW.status, attempts = NEW.attempts, started = NEW.started, ended = NEW.ended,"
    " result = NEW.result, error = NEW.error, steps = coalesce(NEW.steps, steps) WHERE ns = NEW.ns AND id = NEW.op",
    exact=True,
)
MASKED_ARGS = _update("masked", _columns_only("ns", "op", "args"), "operations", "id")
OPERATION_STEPS = _update("stepped", _columns_only("ns", "op", "steps"), "operations", "id")
RENAMED_STATES = _update("recast", _columns_only("ns", "op", "origin", "via", "desired", "failing"), "operations", "id")

NEW_WORK = _insert("work", FULL_WORK, exact=True)
CHANGED_WORK = _update("requeued", FULL_WORK, "work", "op")
STARTED_PREFETCHED = _via_trigger(
    "begun",
    _columns_only("ns", "op", "owner", "epoch", "deadline"),
    "UPDATE work SET deadline = NEW.deadline"
    " WHERE ns = NEW.ns AND op = NEW.op AND owner = NEW.owner AND epoch = NEW.epoch AND deadline IS NULL",
)
REMOVED_WORK = _delete("dequeued", "work", "op")
ENDED_CHILDREN = _via_trigger(
    "relieved",
    _columns_only("ns", "op", "ended"),
    "UPDATE work SET children = max(0, children - NEW.ended) WHERE ns = NEW.ns AND op = NEW.op",
)

NEW_LOCKS = _insert("locks", LOCK, exact=True)
GRANTED_LOCKS = _via_trigger(
    "granted",
    _columns_only("ns", "tree", "op", "path", "mode"),
    "UPDATE locks SET waiting = 0"
    " WHERE ns = NEW.ns AND tree = NEW.tree AND op = NEW.op AND path = NEW.path AND mode = NEW.mode",
    exact=True,
)
RELEASED_LOCKS = _delete("unlocked", "locks", "op")

# SQLite gives a signal its number.
NEW_SIGNALS = _insert("signals", _columns_only(*SIGNAL.columns[:-1]))
TAKEN_SIGNALS = _via_trigger(
    "taken",
    _columns_only("ns", "op", "seq"),
    "DELETE FROM signals WHERE ns = NEW.ns AND op = NEW.op AND seq = NEW.seq",
    exact=True,
)

TIMERS = _upsert("timers", layout_of(Timer), ("ns", "id"))
REMOVED_TIMERS = _delete("stopped", "timers", "id")

IDEMPOTENCY_RECORDS = _insert("answers", IDEMPOTENCY_RECORD, exact=True)
LANES = _upsert("lanes", layout_of(Lane), ("lane",))
REMOVED_LANES = _via_trigger(
    "unlaned",
    _columns_only("lane"),
    "DELETE FROM lanes WHERE lane = NEW.lane AND NOT EXISTS (SELECT 1 FROM work w WHERE w.lane = NEW.lane)",
)
LANE_GROUPS = _upsert("lane_groups", layout_of(LaneGroup), ("grp",))
PROGRESS_ENTRIES = _insert("progress", PROGRESS)
JOURNAL_ENTRIES = _insert("journal", JOURNAL_ENTRY)

TRIGGERED = (
    TRANSITIONED_OBJECTS,
    REPLACED_OBJECTS,
    ENDED_OPERATIONS,
    MASKED_ARGS,
    OPERATION_STEPS,
    RENAMED_STATES,
    CHANGED_WORK,
    STARTED_PREFETCHED,
    REMOVED_WORK,
    ENDED_CHILDREN,
    GRANTED_LOCKS,
    RELEASED_LOCKS,
    TAKEN_SIGNALS,
    REMOVED_TIMERS,
    REMOVED_LANES,
)


def create_trigger_views(connection: sqlite3.Connection) -> None:
    """Create the temporary views and triggers of this connection."""
    for statement in TRIGGERED:
        for definition in statement.definitions:
            connection.execute(definition)


class BulkWriter:
    """Executes the bulk statements of a connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        # bounded by: the statements
        self._written: Counter[str] = Counter()  # rows of each statement, by the text for one row

    def write(self, statement: BulkStatement, rows: Sequence[Values]) -> None:
        """Write rows; raises `WriteConflict` if an exact statement has no effect on a row."""
        connection, done, count = self._connection, 0, len(rows)
        self._written[statement.texts[1]] += count
        worth = self._written[statement.texts[1]] // ROWS_PER_COMPILED
        before = connection.total_changes
        largest = min(MAX_BATCH_ROWS, max(FIRST_BATCH_ROWS, 1 << worth.bit_length() >> 1))
        while done < count:
            size = min(largest, 1 << (count - done).bit_length() - 1)
            connection.execute(statement.texts[size], list(chain.from_iterable(rows[done : done + size])))
            done += size
        changed = connection.total_changes - before
        if statement.exact and changed != count:
            raise WriteConflict(f"{count - changed} of {count} rows were not as expected")


class Sequences:
    """Sequence numbers within one transaction: read on first use, saved before the commit.

    Only one process writes at a time, so that counting suffices.
    """

    NAMES = ("work", "lock", "journal", "progress")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._last: dict[str, int] = {}

    def reset(self) -> None:
        """Begin a new transaction: other processes may have allocated numbers."""
        self._last = {}

    def allocate(self, name: str, count: int) -> range:
        """Return so many unused numbers."""
        if not self._last:
            row = self._connection.execute("SELECT work, lock, journal, progress FROM numbers").fetchone()
            self._last = dict(zip(self.NAMES, row, strict=True))
        first = self._last[name] + 1
        self._last[name] += count
        return range(first, first + count)

    def save(self) -> None:
        """Save the last numbers, right before the commit."""
        if self._last:
            last = tuple(self._last[name] for name in self.NAMES)
            self._connection.execute("UPDATE numbers SET work = ?, lock = ?, journal = ?, progress = ?", last)


class ChangeWriter:
    """Writes the change set of a transaction, kind by kind, objects with their compare-and-set first."""

    def __init__(self, bulk_writer: BulkWriter, sequences: Sequences, now: float) -> None:
        self._bulk_writer = bulk_writer
        self._sequences = sequences
        self._now = now

    def write(self, changes: Changes, known: Mapping[Key, Object]) -> None:
        """Write all changes; if it raises, the transaction must be rolled back."""
        writes = sort_objects(changes.objects, known)
        self._put(TRANSITIONED_OBJECTS, [transition_row(record) for record in writes.transitioned])
        self._put(REPLACED_OBJECTS, [row(record, OBJECT) for record in writes.replaced])
        self._put(CREATED_OBJECTS, [row(record, OBJECT) for record in writes.created])
        self._operations(changes)
        self._work(changes)
        self._put(RELEASED_LOCKS, [[*key] for key in changes.locks_gone])
        if changes.locks:
            given, at = iter(self._sequences.allocate("lock", len(changes.locks))), LOCK_SEQ
            self._put(NEW_LOCKS, [numbered(lock, LOCK, at, lock.seq or next(given)) for lock in changes.locks])
        self._put(
            GRANTED_LOCKS, [[lock.ns, lock.tree, lock.op, lock.path, lock.mode] for lock in changes.locks_granted]
        )
        self._put(NEW_SIGNALS, [list(astuple(signal)[:-1]) for signal in changes.signals])
        self._put(TAKEN_SIGNALS, [[signal.ns, signal.op, signal.seq] for signal in changes.signals_gone])
        self._put(REMOVED_TIMERS, [[*key] for key in changes.timers_gone])
        self._put(TIMERS, [list(astuple(timer)) for timer in changes.timers])
        self._put(IDEMPOTENCY_RECORDS, [row(answer, IDEMPOTENCY_RECORD) for answer in changes.idempotency_records])
        self._put(REMOVED_LANES, [[lane] for lane in changes.lanes_gone])
        self._put(LANES, [list(astuple(lane)) for lane in changes.lanes])
        self._put(LANE_GROUPS, [list(astuple(group)) for group in changes.groups])
        if changes.progress:
            given, at = iter(self._sequences.allocate("progress", len(changes.progress))), PROGRESS_SEQ
            self._put(PROGRESS_ENTRIES, [numbered(entry, PROGRESS, at, next(given)) for entry in changes.progress])
        if changes.journal:
            given, at = iter(self._sequences.allocate("journal", len(changes.journal))), JOURNAL_SEQ
            self._put(JOURNAL_ENTRIES, [numbered(entry, JOURNAL_ENTRY, at, next(given)) for entry in changes.journal])

    def _put(self, statement: BulkStatement, rows: list[Values]) -> None:
        if rows:
            self._bulk_writer.write(statement, rows)

    def _operations(self, changes: Changes) -> None:
        self._put(NEW_OPERATIONS, [row(operation, OPERATION) for operation in changes.operations])
        self._put(ENDED_OPERATIONS, [row(end, ENDED) for end in changes.ended])
        self._put(MASKED_ARGS, [[*key, args] for key, args in changes.masked_args])
        self._put(OPERATION_STEPS, [[*key, steps] for key, steps in changes.steps])
        self._put(
            RENAMED_STATES,
            [
                [renamed.ns, renamed.id, renamed.origin, renamed.via, renamed.desired, renamed.failing]
                for renamed in changes.renamed_states
            ],
        )

    def _work(self, changes: Changes) -> None:
        now = self._now
        self._put(REMOVED_WORK, [[*key] for key in changes.work_gone])
        if changes.new_work:
            given = iter(self._sequences.allocate("work", len(changes.new_work)))
            self._put(
                NEW_WORK, [work_row(work_item, work_item.seq or next(given), now) for work_item in changes.new_work]
            )
        self._put(CHANGED_WORK, [work_row(work_item, work_item.seq, now) for work_item in changes.work])
        self._put(
            STARTED_PREFETCHED,
            [
                [work_item.ns, work_item.op, work_item.owner, work_item.epoch, work_item.deadline]
                for work_item in changes.prefetch_started
            ],
        )
        if changes.children_ended:
            self._put(ENDED_CHILDREN, [[*key, times] for key, times in Counter(changes.children_ended).items()])
