"""The questions that both transactions and readers ask, on whichever connection they have."""

import sqlite3
from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

from msgspec import Struct, field
from msgspec.json import encode

from stateward.store.filters import JournalFilter, Page, Selector
from stateward.store.records import IdempotencyRecord, Key, Lock, Object, Operation, WorkItem
from stateward.store.sqlite.codec import (
    Row,
    answer_of,
    fetched,
    lock_of,
    object_of,
    operation_of,
    packed,
    spelled,
    work_of,
)

ESCAPES = str.maketrans({"\\": "\\\\", "%": "\\%", "_": "\\_"})


class Condition(Struct):
    """What follows WHERE, and the values for its places."""

    parts: list[str] = field(default_factory=list)
    values: list[object] = field(default_factory=list)

    def add(self, part: str, *values: object) -> None:
        """Add a condition with a `?` for each value."""
        self.parts.append(part)
        self.values += values

    def __str__(self) -> str:
        return " AND ".join(self.parts) or "true"


def source_of(selector: Selector) -> str:
    """Return the table with the index that serves a choice; left alone, SQLite takes the one that spares it a sort."""
    if selector.states == ():
        return "objects"  # nothing will be read, and an index that must be used and cannot would be an error
    if selector.parent is not None:
        return "objects INDEXED BY objects_by_parent"
    return "objects" if selector.kind is None else "objects INDEXED BY objects_by_state"


def chosen_objects(selector: Selector, state: str | None = None) -> Condition:
    """Say which objects are chosen, or which of them that are in one state."""
    chosen = Condition()
    chosen.add("ns = ? AND removed = 0", selector.ns)
    if selector.kind is not None:
        chosen.add("kind = ?", selector.kind)
    if selector.parent is not None:
        chosen.add("parent = ?", selector.parent)
    if state is not None:
        chosen.add("state = ?", state)
    elif selector.states is not None:
        chosen.add(f"state IN ({', '.join('?' * len(selector.states))})", *selector.states)
    for name, value in selector.labels:
        chosen.add("EXISTS (SELECT 1 FROM json_each(labels) l WHERE l.key = ? AND l.value = ?)", name, value)
    if selector.name_like is not None:
        chosen.add("id LIKE ? ESCAPE '\\'", f"%{selector.name_like.translate(ESCAPES)}%")
    return chosen


def chosen_lines(only: JournalFilter) -> Condition:
    """Say which lines of the journal are chosen; they are to be walked in order, unless it is about one object."""
    chosen = Condition()
    walk = "+" if only.ns is None or only.object is None else ""
    for column in ("ns", "object", "kind", "op", "actor"):
        value = getattr(only, column)
        if value is not None:
            chosen.add(f"{walk}{column} = ?", value)
    if only.since is not None:
        chosen.add("at >= ?", only.since)
    if only.until is not None:
        chosen.add("at < ?", only.until)
    return chosen


T = TypeVar("T")

AMONG = "IN (SELECT value FROM json_each(?))"
OBJECT = spelled("SELECT {Object} FROM objects WHERE ns = ? AND id = ?")
OBJECTS = packed("{Object}", "FROM objects WHERE ns = ? AND id <among> ORDER BY id", among=AMONG)
SELECTED = packed("{Object}", "FROM <source> WHERE <chosen> ORDER BY id")
OPERATIONS = packed("{Operation}", "FROM operations WHERE ns = ? AND id <among>", among=AMONG)
WORK = packed("{WorkItem}", "FROM work WHERE ns = ? AND op <among>", among=AMONG)
QUEUES = packed("{WorkItem}", "FROM work WHERE ns = ? AND queue <among>", among=AMONG)
LOCKS = packed("{Lock}", "FROM locks WHERE ns = ? AND tree <among>", among=AMONG)
ANSWERS = packed("{IdempotencyRecord}", "FROM answers WHERE ns = ? AND key <among>", among=AMONG)


def an_object(connection: sqlite3.Connection, key: Key) -> Object | None:
    """Return an object if there is one; for a single row, to pack it would only be a detour."""
    row = connection.execute(OBJECT, key).fetchone()
    return None if row is None else object_of([*row])


def objects(connection: sqlite3.Connection, keys: Collection[Key]) -> list[Object]:
    """Return the objects there are, in the order of their keys."""
    return list(_asked(connection, OBJECTS, keys, object_of))


def selected(connection: sqlite3.Connection, selector: Selector) -> list[Object]:
    """Return the chosen objects in the order of their ids."""
    chosen = chosen_objects(selector)
    rows = fetched(connection, spelled(SELECTED, source=source_of(selector), chosen=str(chosen)), tuple(chosen.values))
    return [object_of(row) for row in rows]


def operations(connection: sqlite3.Connection, keys: Collection[Key]) -> list[Operation]:
    """Return the operations there are."""
    return list(_asked(connection, OPERATIONS, keys, operation_of))


def work(connection: sqlite3.Connection, keys: Collection[Key]) -> list[WorkItem]:
    """Return the work there is for these operations."""
    return list(_asked(connection, WORK, keys, work_of))


def queues(connection: sqlite3.Connection, keys: Collection[Key]) -> list[WorkItem]:
    """Return the work in these queues, in the order of acceptance."""
    return sorted(_asked(connection, QUEUES, keys, work_of), key=lambda one: one.seq)


def locks(connection: sqlite3.Connection, trees: Collection[Key]) -> list[Lock]:
    """Return the locks of these trees, in the order of asking."""
    return sorted(_asked(connection, LOCKS, trees, lock_of), key=lambda one: one.seq)


def answers(connection: sqlite3.Connection, keys: Collection[Key]) -> list[IdempotencyRecord]:
    """Return what these idempotency keys were answered with."""
    return list(_asked(connection, ANSWERS, keys, answer_of))


def _asked(connection: sqlite3.Connection, sql: str, keys: Collection[Key], record: Callable[[Row], T]) -> Iterator[T]:
    """Ask once for each namespace; all ids of one travel as one value, so that the statement is always the same."""
    names: dict[str, list[str]] = {}
    for ns, name in keys:
        names.setdefault(ns, []).append(name)
    for ns in sorted(names):
        yield from map(record, fetched(connection, sql, (ns, encode(names[ns]).decode())))


MOST_PARTS = 100
PART = spelled("SELECT * FROM (SELECT {Object} FROM <source> WHERE <chosen> ORDER BY id LIMIT ?)")
WHOLE = packed("{Object}", "FROM (<parts> ORDER BY id LIMIT ?)")
STATES = """
WITH RECURSIVE found (state) AS (
    SELECT min(state) FROM objects WHERE ns = ?1 AND kind = ?2 AND removed = 0
    UNION ALL
    SELECT (SELECT min(state) FROM objects WHERE ns = ?1 AND kind = ?2 AND removed = 0 AND state > found.state)
    FROM found WHERE state IS NOT NULL
)
SELECT state FROM found WHERE state IS NOT NULL
"""


def listed(connection: sqlite3.Connection, selector: Selector, page: Page) -> list[Object]:
    """Return a page of the chosen objects in the order of their ids."""
    states = _states(connection, selector)
    parts, values = [], []
    for state in states if len(states) <= MOST_PARTS else (None,):
        part, places = _part(selector, page, state)
        parts.append(part)
        values += places
    if not parts:
        return []
    rows = fetched(connection, spelled(WHOLE, parts=" UNION ALL ".join(parts)), (*values, page.limit))
    return [object_of(row) for row in rows]


def _states(connection: sqlite3.Connection, selector: Selector) -> tuple[str | None, ...]:
    """Return the states to look under, or None alone where another index serves."""
    if selector.kind is None or selector.parent is not None:
        return (None,)
    if selector.states is not None:
        return tuple(dict.fromkeys(selector.states))
    return tuple(row[0] for row in connection.execute(STATES, (selector.ns, selector.kind)).fetchall())


def _part(selector: Selector, page: Page, state: str | None) -> tuple[str, list[object]]:
    chosen = chosen_objects(selector, state)
    if page.after is not None:
        chosen.add("id > ?", page.after)
    return spelled(PART, source=source_of(selector), chosen=str(chosen)), [*chosen.values, page.limit]
