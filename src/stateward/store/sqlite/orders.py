"""Everything that is written, as statements that take many rows at once.

A connection lets go of the interpreter's lock for each row that `executemany` writes, and under load it waits five
milliseconds to get it back. So rows travel together: an *order* is an INSERT of up to 256 rows, and is one step for
SQLite. What is to be changed or deleted is inserted too, into a view of this connection whose trigger does the rest.
"""

from msgspec import Struct

from stateward.store.records import Lane, LaneGroup, Timer
from stateward.store.sqlite.spelling import spelled
from stateward.store.sqlite.values import (
    ANSWER,
    ENDED,
    LINE,
    LOCK,
    OBJECT,
    OPERATION,
    PROGRESS,
    WORK,
    Shape,
    shape_of,
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


def _plain(*columns: str, texts: tuple[int, ...] = ()) -> Shape:
    return Shape(columns, flags=(), texts=texts, numbers=(), words=())


FULL_WORK = Shape((*WORK.columns, "delayed"), WORK.flags, WORK.texts, WORK.numbers, WORK.words)
MOVE = _plain("ns", "id", "state", "since", "version", "generation", "op", "error", texts=(6, 7))

# The compare-and-set of every state change.
CHANGE = "UPDATE objects SET <settings> WHERE ns = NEW.ns AND id = NEW.id AND version = NEW.version - 1"

BORN = _insert("objects", OBJECT, exact=True)
MOVED = _effect("moved", MOVE, CHANGE, exact=True)
REPLACED = _effect("replaced", OBJECT, CHANGE, exact=True)

ACCEPTED = _insert("operations", OPERATION, exact=True)
FINISHED = _effect("ended", ENDED, "UPDATE operations SET <settings> WHERE ns = NEW.ns AND id = NEW.op", exact=True)
STEPPED = _effect(
    "stepped",
    _plain("ns", "op", "steps"),
    "UPDATE operations SET <settings> WHERE ns = NEW.ns AND id = NEW.op",
    exact=True,
)

RECAST = _effect(
    "recast",
    _plain("ns", "op", "origin", "via", "desired", "failing"),
    "UPDATE operations SET <settings> WHERE ns = NEW.ns AND id = NEW.op",
    exact=True,
)

ENQUEUED = _insert("work", FULL_WORK, exact=True)
REQUEUED = _effect("requeued", FULL_WORK, "UPDATE work SET <settings> WHERE ns = NEW.ns AND op = NEW.op", exact=True)
BEGUN = _effect(
    "begun",
    _plain("ns", "op", "owner", "epoch", "deadline"),
    "UPDATE work SET deadline = NEW.deadline"
    " WHERE ns = NEW.ns AND op = NEW.op AND owner = NEW.owner AND epoch = NEW.epoch AND deadline IS NULL",
)
DEQUEUED = _effect("dequeued", _plain("ns", "op"), "DELETE FROM work WHERE ns = NEW.ns AND op = NEW.op")
RELIEVED = _effect(
    "relieved",
    _plain("ns", "op", "ended"),
    "UPDATE work SET children = max(0, children - NEW.ended) WHERE ns = NEW.ns AND op = NEW.op",
)

LOCKED = _insert("locks", LOCK, exact=True)
GRANTED = _effect(
    "granted",
    _plain("ns", "tree", "op", "path", "mode"),
    "UPDATE locks SET waiting = 0"
    " WHERE ns = NEW.ns AND tree = NEW.tree AND op = NEW.op AND path = NEW.path AND mode = NEW.mode",
    exact=True,
)
UNLOCKED = _effect("unlocked", _plain("ns", "op"), "DELETE FROM locks WHERE ns = NEW.ns AND op = NEW.op")

TIMED = _upsert("timers", shape_of(Timer), ("ns", "id"))
STOPPED = _effect("stopped", _plain("ns", "id"), "DELETE FROM timers WHERE ns = NEW.ns AND id = NEW.id")

ANSWERED = _insert("answers", ANSWER, exact=True)
LANED = _upsert("lanes", shape_of(Lane), ("lane",))
GROUPED = _upsert("lane_groups", shape_of(LaneGroup), ("grp",))
PROGRESSED = _insert("progress", PROGRESS)
JOURNALED = _insert("journal", LINE)

EFFECTS = (MOVED, REPLACED, FINISHED, STEPPED, RECAST, REQUEUED, BEGUN, DEQUEUED, RELIEVED, GRANTED, UNLOCKED, STOPPED)
