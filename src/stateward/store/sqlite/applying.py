"""Writing a set of changes: each kind of row in one go, the compare-and-set of the objects first."""

import sqlite3
from collections import Counter
from collections.abc import Mapping
from typing import TypeAlias

from msgspec.structs import astuple

from stateward.store.changes import Changes
from stateward.store.records import Object
from stateward.store.sqlite import orders, values
from stateward.store.sqlite.batches import carry_out
from stateward.store.sqlite.numbers import Numbers
from stateward.store.sqlite.orders import Order
from stateward.store.sqlite.values import Values, move_row, numbered, row, work_row

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
                born.append(row(one, values.OBJECT))
            elif _only_moved(known.get((one.ns, one.id)), one):
                moved.append(move_row(one))
            else:
                replaced.append(row(one, values.OBJECT))
        self._put(orders.MOVED, moved)
        self._put(orders.REPLACED, replaced)
        self._put(orders.BORN, born)

    def _operations(self, changes: Changes) -> None:
        self._put(orders.ACCEPTED, [row(one, values.OPERATION) for one in changes.operations])
        self._put(orders.FINISHED, [row(one, values.ENDED) for one in changes.ended])
        self._put(orders.STEPPED, [[*key, steps] for key, steps in changes.steps])
        self._put(
            orders.RECAST,
            [[one.ns, one.id, one.origin, one.via, one.desired, one.failing] for one in changes.renamed_states],
        )

    def _work(self, changes: Changes) -> None:
        now = self._now
        self._put(orders.DEQUEUED, [[*key] for key in changes.work_gone])
        if changes.new_work:
            given = iter(self._numbers.give("work", len(changes.new_work)))
            self._put(orders.ENQUEUED, [work_row(one, one.seq or next(given), now) for one in changes.new_work])
        self._put(orders.REQUEUED, [work_row(one, one.seq, now) for one in changes.work])
        self._put(
            orders.BEGUN, [[one.ns, one.op, one.owner, one.epoch, one.deadline] for one in changes.prefetch_started]
        )
        if changes.children_ended:
            self._put(orders.RELIEVED, [[*key, times] for key, times in Counter(changes.children_ended).items()])

    def _locks(self, changes: Changes) -> None:
        self._put(orders.UNLOCKED, [[*key] for key in changes.locks_gone])
        if changes.locks:
            given, at = iter(self._numbers.give("lock", len(changes.locks))), values.LOCK_SEQ
            self._put(orders.LOCKED, [numbered(one, values.LOCK, at, one.seq or next(given)) for one in changes.locks])
        self._put(orders.GRANTED, [[one.ns, one.tree, one.op, one.path, one.mode] for one in changes.locks_granted])

    def _rest(self, changes: Changes) -> None:
        self._put(orders.STOPPED, [[*key] for key in changes.timers_gone])
        self._put(orders.TIMED, [list(astuple(one)) for one in changes.timers])
        self._put(orders.ANSWERED, [row(one, values.ANSWER) for one in changes.idempotency_records])
        self._put(orders.LANED, [list(astuple(one)) for one in changes.lanes])
        self._put(orders.GROUPED, [list(astuple(one)) for one in changes.groups])

    def _lines(self, changes: Changes) -> None:
        if changes.progress:
            given, at = iter(self._numbers.give("progress", len(changes.progress))), values.PROGRESS_SEQ
            self._put(orders.PROGRESSED, [numbered(one, values.PROGRESS, at, next(given)) for one in changes.progress])
        if changes.journal:
            given, at = iter(self._numbers.give("journal", len(changes.journal))), values.LINE_SEQ
            self._put(orders.JOURNALED, [numbered(one, values.LINE, at, next(given)) for one in changes.journal])


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
