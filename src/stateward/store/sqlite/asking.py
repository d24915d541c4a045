"""The questions that both transactions and readers ask, on whichever connection they have."""

import sqlite3
from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

from msgspec.json import encode

from stateward.store.records import IdempotencyRecord, Key, Lock, Object, Operation, WorkItem
from stateward.store.selection import Selector
from stateward.store.sqlite.choosing import chosen_objects, source_of
from stateward.store.sqlite.rows import Row, answer_of, fetched, lock_of, object_of, operation_of, work_of
from stateward.store.sqlite.spelling import packed, spelled

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
