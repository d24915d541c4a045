"""The port of retention: the queries and deletions that prune old operations, objects, journal and idempotency records.

Only the journal is ordered by time, so pruning starts from its oldest entries: they name the operations and objects
that may be deleted. No other table needs a full scan or an index by time. Candidates are read without locks, which is
safe because an ended operation does not start again. A removed object may be created again, so it is checked and locked
once more when it is deleted.

No journal entry names the idempotency records. They are short rows and are scanned in key order.
"""

from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from stateward.store.records import Key

BATCH_ROWS = 2_000
"""The default number of rows that one statement reads or deletes."""

BEFORE_ALL_KEYS = Key("", "")
"""A key that is less than every key."""


class JournalSpan(NamedTuple):
    """A range of journal sequence numbers: `after` is exclusive, `upto` inclusive."""

    after: int
    upto: int


class PruneCandidate(NamedTuple):
    """An operation or object that may be deleted, and whether the span has its first entry (or the one of its removal).

    Entries of one operation lie in several spans: a dry run counts it only in the span with the first entry.
    """

    key: Key
    is_first_entry: bool


class KeyPage(Struct, frozen=True):
    """The matching keys of one page of a key-ordered scan, and the key to continue after (None at the end)."""

    keys: list[Key]
    next: Key | None


def key_page(rows: Iterable[Sequence[Any]]) -> KeyPage:
    """Return a page from rows of (namespace, name, whether the row marks the end of the page)."""
    keys: list[Key] = []
    last: Key | None = None
    for ns, name, is_last in rows:
        if is_last:
            last = Key(ns, name)
        else:
            keys.append(Key(ns, name))
    return KeyPage(keys, last)


class Retention(Protocol):
    """Finds rows that ended before a time, and deletes rows by key."""

    async def journal_span(self, after: int, last: int, most: int) -> JournalSpan | None:
        """Return the span of the next `most` entries after a number and up to `last`; None if there are none."""

    async def operations(self, span: JournalSpan, before: float) -> list[PruneCandidate]:
        """Return the deletable operations that entries of a span before the time name: children before parents.

        An operation is deletable only with its whole family (ancestors and their descendants): all have ended before
        the time, hold no object and no lock, and have no work item.
        """

    async def objects(self, span: JournalSpan, before: float) -> list[PruneCandidate]:
        """Return the deletable objects that entries of a span before the time are about.

        They were removed before the time; no work item, lock, timer or younger operation refers to them, and no
        existing (or later removed) object has them as its parent or uses their queue.
        """

    async def journal_entries(
        self,
        span: JournalSpan,
        before: float,
        last: int,
        operations: Collection[Key] = (),
        objects: Collection[Key] = (),
    ) -> list[int]:
        """Return the deletable entries of a span before the time, as if these operations and objects were deleted.

        Of an existing object, the last entry up to a number that tells its state stays, and so do the entries of its
        existing operations.
        """

    async def idempotency_records(self, after: Key, before: float, most: int) -> KeyPage:
        """Return a page of the deletable idempotency records after a key."""

    async def drop_operations(self, keys: Collection[Key]) -> int:
        """Delete operations, and their progress and signals in batches; returns the number of operations."""

    async def drop_objects(self, keys: Collection[Key], before: float) -> int:
        """Delete those of the objects that are still deletable; returns their number."""

    async def drop_journal_entries(self, numbers: Collection[int]) -> int:
        """Delete journal entries; returns their number."""

    async def drop_idempotency_records(self, keys: Collection[Key], before: float) -> int:
        """Delete idempotency records that are older than the time; returns their number."""


# Templates for both databases: `{a==b}` looks a row up by `a`, `<lookup>` ends a subquery that must not become a join,
# and `<yes>` follows a truth value.
FREE_OBJECT = """
o.removed<yes> AND o.since < <before>
AND NOT EXISTS (SELECT 1 FROM work w WHERE {w.ns || ''==o.ns} AND w.queue = o.id<lookup>)
AND NOT EXISTS (SELECT 1 FROM work w WHERE {w.ns || ''==o.ns} AND w.queue = o.queue AND w.object = o.id<lookup>)
AND NOT EXISTS (SELECT 1 FROM locks l WHERE {l.ns==o.ns} AND l.tree = o.id<lookup>)
AND NOT EXISTS (
    SELECT 1 FROM operations p
    WHERE {p.ns || ''==o.ns} AND p.object = o.id AND (p.ended IS NULL OR p.ended >= <before>)<lookup>
)
AND NOT EXISTS (
    SELECT 1 FROM objects c
    WHERE {c.ns==o.ns} AND c.parent = o.id AND NOT (c.removed<yes> AND c.since < <before>)<lookup>
)
AND NOT EXISTS (SELECT 1 FROM timers t WHERE {t.ns || ''==o.ns} AND t.object = o.id<lookup>)
AND NOT EXISTS (
    SELECT 1 FROM objects u<by_queue>
    WHERE {u.ns==o.ns} AND u.queue = o.id AND u.queue <> u.id AND NOT (u.removed<yes> AND u.since < <before>)<lookup>
)
"""
PRUNABLE_ENTRIES = """
SELECT j.seq FROM journal j
WHERE j.seq > <1> AND j.seq <= <2> AND j.at < <3> AND (
    NOT EXISTS (
        SELECT 1 FROM objects o WHERE {o.ns==j.ns} AND o.id = j.object AND (o.ns, o.id) NOT IN (<objects>)
    )
    OR (
        NOT EXISTS (
            SELECT 1 FROM operations p WHERE {p.ns==j.ns} AND p.id = j.op AND p.object = j.object
            AND (p.ns, p.id) NOT IN (<operations>)
        )
        AND (j.target IS NULL OR EXISTS (
            SELECT 1 FROM journal n
            WHERE {n.ns==j.ns} AND n.object = j.object AND n.seq > j.seq AND n.seq <= <4>
              AND n.at < <3> AND n.target IS NOT NULL
        ))
    )
) ORDER BY j.seq
"""


class RetentionSql(Struct, frozen=True):
    """The statements of retention in the dialect of one database."""

    span: str
    operations: str
    objects: str
    journal_entries: str
    idempotency_records: str
    drop_progress: str
    drop_signals: str
    drop_operations: str
    drop_objects: str
    drop_journal_entries: str
    drop_idempotency_records: str


class SqlRetention(Retention):
    """Retention by SQL: an adapter has the statements, and executes them."""

    def __init__(self, sql: RetentionSql) -> None:
        self._sql = sql

    @abstractmethod
    async def _rows(self, sql: str, *values: object) -> Sequence[Sequence[Any]]:
        """Execute a query and return its rows."""

    @abstractmethod
    async def _drop(self, sql: str, *values: object) -> int:
        """Execute a deletion and return the number of deleted rows."""

    @abstractmethod
    def _packed(self, values: Collection[Key] | Collection[int]) -> object:
        """Return keys or numbers as one value of a statement."""

    async def journal_span(self, after: int, last: int, most: int) -> JournalSpan | None:
        ((upto,),) = await self._rows(self._sql.span, after, last, most)
        return None if upto is None else JournalSpan(after, upto)

    async def operations(self, span: JournalSpan, before: float) -> list[PruneCandidate]:
        return await self._candidates(self._sql.operations, span, before)

    async def objects(self, span: JournalSpan, before: float) -> list[PruneCandidate]:
        return await self._candidates(self._sql.objects, span, before)

    async def _candidates(self, sql: str, span: JournalSpan, before: float) -> list[PruneCandidate]:
        rows = await self._rows(sql, *span, before)
        return [PruneCandidate(Key(ns, id_), bool(is_first)) for ns, id_, is_first in rows]

    async def journal_entries(
        self,
        span: JournalSpan,
        before: float,
        last: int,
        operations: Collection[Key] = (),
        objects: Collection[Key] = (),
    ) -> list[int]:
        deleted = self._packed(operations), self._packed(objects)
        return [seq for (seq,) in await self._rows(self._sql.journal_entries, *span, before, last, *deleted)]

    async def idempotency_records(self, after: Key, before: float, most: int) -> KeyPage:
        return key_page(await self._rows(self._sql.idempotency_records, *after, before, most))

    async def drop_operations(self, keys: Collection[Key]) -> int:
        packed = self._packed(keys)
        for sql in (self._sql.drop_progress, self._sql.drop_signals):
            while await self._drop(sql, packed, BATCH_ROWS) == BATCH_ROWS:
                pass
        return await self._drop(self._sql.drop_operations, packed)

    async def drop_objects(self, keys: Collection[Key], before: float) -> int:
        return await self._drop(self._sql.drop_objects, self._packed(keys), before)

    async def drop_journal_entries(self, numbers: Collection[int]) -> int:
        return await self._drop(self._sql.drop_journal_entries, self._packed(numbers))

    async def drop_idempotency_records(self, keys: Collection[Key], before: float) -> int:
        return await self._drop(self._sql.drop_idempotency_records, self._packed(keys), before)
