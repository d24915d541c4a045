"""Everything that is written, as statements that take many rows at once.

A connection lets go of the interpreter's lock for each row that `executemany` writes, and under load it waits five
milliseconds to get it back. So rows travel together: an *order* is an INSERT of up to 256 rows, and is one step for
SQLite. What is to be changed or deleted is inserted too, into a view of this connection whose trigger does the rest.
"""

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import astuple

from stateward.store.changes import Changes
from stateward.store.errors import Conflict
from stateward.store.records import Lane, LaneGroup, Object, Timer
from stateward.store.sqlite.codec import (
    ANSWER,
    ENDED,
    LINE,
    LINE_SEQ,
    LOCK,
    LOCK_SEQ,
    OBJECT,
    OPERATION,
    PROGRESS,
    PROGRESS_SEQ,
    WORK,
    Shape,
    Values,
    move_row,
    numbered,
    row,
    shape_of,
    spelled,
    work_row,
)

LARGEST = 256
SIZES = tuple(1 << power for power in range(LARGEST.bit_length()))


class Order(Struct, frozen=True):
    """A way of writing rows. What is `exact` must take effect on every row, or somebody else was first."""

    texts: dict[int, str]
    exact: bool
    definitions: tuple[str, ...] = ()


def _insert(table: str, shape: Shape, ending: str = "", *, exact: bool = False) -> Order:
    """Make the order that adds rows to a table, in each size."""
    head = spelled("INSERT OR FAIL INTO <table> (<columns>) VALUES ", table=table, columns=", ".join(shape.columns))
    row = f"({', '.join(shape.places)})"
    return Order({size: head + ", ".join([row] * size) + ending for size in SIZES}, exact)


def _upsert(table: str, shape: Shape, key: tuple[str, ...]) -> Order:
    """Make the order that adds rows to a table, or replaces those of the same key."""
    settings = ", ".join(f"{column} = excluded.{column}" for column in shape.columns if column not in key)
    return _insert(table, shape, f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {settings}")


def _effect(view: str, shape: Shape, sql: str, *, exact: bool = False) -> Order:
    """Make the order that does something for each row: the row is inserted into a view, and a trigger does it."""
    settings = ", ".join(f"{column} = NEW.{column}" for column in shape.columns[2:])
    action = spelled(sql, settings=settings)
    values = ", ".join(f"NULL AS {column}" for column in shape.columns)
    definitions = (
        f"CREATE TEMP VIEW {view} AS SELECT {values}",
        f"CREATE TEMP TRIGGER do_{view} INSTEAD OF INSERT ON {view} BEGIN {action}; END",
    )
    return Order(_insert(view, shape).texts, exact, definitions)


def _columns_only(*columns: str, texts: tuple[int, ...] = ()) -> Shape:
    return Shape(columns, flags=(), texts=texts, numbers=(), words=())


FULL_WORK = Shape((*WORK.columns, "delayed"), WORK.flags, WORK.texts, WORK.numbers, WORK.words)
MOVE = _columns_only("ns", "id", "state", "since", "version", "generation", "op", "error", texts=(6, 7))

# The compare-and-set of every state change.
CHANGE = "UPDATE objects SET <settings> WHERE ns = NEW.ns AND id = NEW.id AND version = NEW.version - 1"

BORN = _insert("objects", OBJECT, exact=True)
MOVED = _effect("moved", MOVE, CHANGE, exact=True)
REPLACED = _effect("replaced", OBJECT, CHANGE, exact=True)

ACCEPTED = _insert("operations", OPERATION, exact=True)
FINISHED = _effect("ended", ENDED, "UPDATE operations SET <settings> WHERE ns = NEW.ns AND id = NEW.op", exact=True)
STEPPED = _effect(
    "stepped",
    _columns_only("ns", "op", "steps"),
    "UPDATE operations SET <settings> WHERE ns = NEW.ns AND id = NEW.op",
    exact=True,
)

RECAST = _effect(
    "recast",
    _columns_only("ns", "op", "origin", "via", "desired", "failing"),
    "UPDATE operations SET <settings> WHERE ns = NEW.ns AND id = NEW.op",
    exact=True,
)

ENQUEUED = _insert("work", FULL_WORK, exact=True)
REQUEUED = _effect("requeued", FULL_WORK, "UPDATE work SET <settings> WHERE ns = NEW.ns AND op = NEW.op", exact=True)
BEGUN = _effect(
    "begun",
    _columns_only("ns", "op", "owner", "epoch", "deadline"),
    "UPDATE work SET deadline = NEW.deadline"
    " WHERE ns = NEW.ns AND op = NEW.op AND owner = NEW.owner AND epoch = NEW.epoch AND deadline IS NULL",
)
DEQUEUED = _effect("dequeued", _columns_only("ns", "op"), "DELETE FROM work WHERE ns = NEW.ns AND op = NEW.op")
RELIEVED = _effect(
    "relieved",
    _columns_only("ns", "op", "ended"),
    "UPDATE work SET children = max(0, children - NEW.ended) WHERE ns = NEW.ns AND op = NEW.op",
)

LOCKED = _insert("locks", LOCK, exact=True)
GRANTED = _effect(
    "granted",
    _columns_only("ns", "tree", "op", "path", "mode"),
    "UPDATE locks SET waiting = 0"
    " WHERE ns = NEW.ns AND tree = NEW.tree AND op = NEW.op AND path = NEW.path AND mode = NEW.mode",
    exact=True,
)
UNLOCKED = _effect("unlocked", _columns_only("ns", "op"), "DELETE FROM locks WHERE ns = NEW.ns AND op = NEW.op")

TIMED = _upsert("timers", shape_of(Timer), ("ns", "id"))
STOPPED = _effect("stopped", _columns_only("ns", "id"), "DELETE FROM timers WHERE ns = NEW.ns AND id = NEW.id")

ANSWERED = _insert("answers", ANSWER, exact=True)
LANED = _upsert("lanes", shape_of(Lane), ("lane",))
GROUPED = _upsert("lane_groups", shape_of(LaneGroup), ("grp",))
PROGRESSED = _insert("progress", PROGRESS)
JOURNALED = _insert("journal", LINE)

EFFECTS = (MOVED, REPLACED, FINISHED, STEPPED, RECAST, REQUEUED, BEGUN, DEQUEUED, RELIEVED, GRANTED, UNLOCKED, STOPPED)


def install(connection: sqlite3.Connection) -> None:
    """Make the views that orders are inserted into."""
    for order in EFFECTS:
        for definition in order.definitions:
            connection.execute(definition)


def carry_out(connection: sqlite3.Connection, order: Order, rows: Sequence[Values]) -> None:
    """Write rows; an exact order that did not take effect on each of them raises `Conflict`."""
    before, done, count = connection.total_changes, 0, len(rows)
    while done < count:
        size = min(LARGEST, 1 << (count - done).bit_length() - 1)
        connection.execute(order.texts[size], list(chain.from_iterable(rows[done : done + size])))
        done += size
    changed = connection.total_changes - before
    if order.exact and changed != count:
        raise Conflict(f"{count - changed} of {count} rows were not as expected")


class Numbers:
    """The numbers given within one transaction: read when first needed, kept when it is committed."""

    NAMES = ("work", "lock", "journal", "progress")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._last: dict[str, int] = {}

    def forget(self) -> None:
        """Begin a new transaction: other processes may have counted on."""
        self._last = {}

    def give(self, name: str, count: int) -> range:
        """Return so many numbers that nobody has had."""
        if not self._last:
            row = self._connection.execute("SELECT work, lock, journal, progress FROM numbers").fetchone()
            self._last = dict(zip(self.NAMES, row, strict=True))
        first = self._last[name] + 1
        self._last[name] += count
        return range(first, first + count)

    def keep(self) -> None:
        """Write down what was given, as the last thing before the commit."""
        if self._last:
            last = tuple(self._last[name] for name in self.NAMES)
            self._connection.execute("UPDATE numbers SET work = ?, lock = ?, journal = ?, progress = ?", last)


Known: TypeAlias = Mapping[tuple[str, str], Object]
"""The objects that this transaction has read, and so knows as they are stored."""


class Pen:
    """Writes the changes of one transaction."""

    def __init__(self, connection: sqlite3.Connection, numbers: Numbers, now: float) -> None:
        self._connection = connection
        self._numbers = numbers
        self._now = now

    def write(self, changes: Changes, known: Known) -> None:
        """Write everything, or raise having written some of it: the transaction is then to be undone."""
        self._objects(changes.objects, known)
        self._operations(changes)
        self._work(changes)
        self._locks(changes)
        self._rest(changes)
        self._lines(changes)

    def _put(self, order: Order, rows: list[Values]) -> None:
        if rows:
            carry_out(self._connection, order, rows)

    def _objects(self, objects: list[Object], known: Known) -> None:
        moved: list[Values] = []
        replaced: list[Values] = []
        born: list[Values] = []
        for one in objects:
            if one.version == 1:
                born.append(row(one, OBJECT))
            elif _only_moved(known.get((one.ns, one.id)), one):
                moved.append(move_row(one))
            else:
                replaced.append(row(one, OBJECT))
        self._put(MOVED, moved)
        self._put(REPLACED, replaced)
        self._put(BORN, born)

    def _operations(self, changes: Changes) -> None:
        self._put(ACCEPTED, [row(one, OPERATION) for one in changes.operations])
        self._put(FINISHED, [row(one, ENDED) for one in changes.ended])
        self._put(STEPPED, [[*key, steps] for key, steps in changes.steps])
        self._put(
            RECAST,
            [[one.ns, one.id, one.origin, one.via, one.desired, one.failing] for one in changes.renamed_states],
        )

    def _work(self, changes: Changes) -> None:
        now = self._now
        self._put(DEQUEUED, [[*key] for key in changes.work_gone])
        if changes.new_work:
            given = iter(self._numbers.give("work", len(changes.new_work)))
            self._put(ENQUEUED, [work_row(one, one.seq or next(given), now) for one in changes.new_work])
        self._put(REQUEUED, [work_row(one, one.seq, now) for one in changes.work])
        self._put(BEGUN, [[one.ns, one.op, one.owner, one.epoch, one.deadline] for one in changes.prefetch_started])
        if changes.children_ended:
            self._put(RELIEVED, [[*key, times] for key, times in Counter(changes.children_ended).items()])

    def _locks(self, changes: Changes) -> None:
        self._put(UNLOCKED, [[*key] for key in changes.locks_gone])
        if changes.locks:
            given, at = iter(self._numbers.give("lock", len(changes.locks))), LOCK_SEQ
            self._put(LOCKED, [numbered(one, LOCK, at, one.seq or next(given)) for one in changes.locks])
        self._put(GRANTED, [[one.ns, one.tree, one.op, one.path, one.mode] for one in changes.locks_granted])

    def _rest(self, changes: Changes) -> None:
        self._put(STOPPED, [[*key] for key in changes.timers_gone])
        self._put(TIMED, [list(astuple(one)) for one in changes.timers])
        self._put(ANSWERED, [row(one, ANSWER) for one in changes.idempotency_records])
        self._put(LANED, [list(astuple(one)) for one in changes.lanes])
        self._put(GROUPED, [list(astuple(one)) for one in changes.groups])

    def _lines(self, changes: Changes) -> None:
        if changes.progress:
            given, at = iter(self._numbers.give("progress", len(changes.progress))), PROGRESS_SEQ
            self._put(PROGRESSED, [numbered(one, PROGRESS, at, next(given)) for one in changes.progress])
        if changes.journal:
            given, at = iter(self._numbers.give("journal", len(changes.journal))), LINE_SEQ
            self._put(JOURNALED, [numbered(one, LINE, at, next(given)) for one in changes.journal])


def _only_moved(old: Object | None, new: Object) -> bool:
    """Tell whether nothing differs but what every move changes: the other columns and their indexes are left alone."""
    return (
        old is not None
        and old.version == new.version - 1
        and old.kind == new.kind
        and old.queue == new.queue
        and old.parent == new.parent
        and old.spec == new.spec
        and old.labels == new.labels
        and old.created == new.created
        and old.removed == new.removed
        and old.seen == new.seen
    )
