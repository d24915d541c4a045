"""The port of retention: the queries and deletions that prune old operations, objects, journal and idempotency records.

Only the journal is ordered by time, so pruning starts from its oldest entries: they name the operations and objects
that may be deleted. No other table needs a full scan or an index by time. Candidates are read without locks, which is
safe because an ended operation does not start again. A removed object may be created again, so it is checked and locked
once more when it is deleted.

No journal entry names the idempotency records. They are short rows and are scanned in key order.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
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


FetchPage = Callable[[str, Key], Awaitable[KeyPage]]
"""Runs a statement on the page of rows after a key."""


def key_page(rows: Iterable[Sequence[Any]]) -> KeyPage:
    """Return a page from rows of (namespace, name, whether the row marks the end of the page)."""
    found: list[Key] = []
    last: Key | None = None
    for ns, name, is_last in rows:
        if is_last:
            last = Key(ns, name)
        else:
            found.append(Key(ns, name))
    return KeyPage(found, last)


async def all_keys(look: FetchPage, *questions: str) -> set[Key]:
    """Scan all pages of each statement, and return all matching keys."""
    found = set[Key]()
    for question in questions:
        after: Key | None = BEFORE_ALL_KEYS
        while after is not None:
            page = await look(question, after)
            found.update(page.keys)
            after = page.next
    return found


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

        They were removed before the time; no work item, lock or younger operation refers to them, and no existing (or
        later removed) object has them as its parent. `referenced_objects` finds the references without an index, from
        timers and from queues.
        """

    async def referenced_objects(self, before: float) -> set[Key]:
        """Return the objects that a timer refers to, or whose queue another existing object uses."""

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
        """Delete operations, and their progress in batches; returns the number of operations."""

    async def drop_objects(self, keys: Collection[Key], before: float) -> int:
        """Delete those of the objects that are still deletable; returns their number."""

    async def drop_journal_entries(self, numbers: Collection[int]) -> int:
        """Delete journal entries; returns their number."""

    async def drop_idempotency_records(self, keys: Collection[Key], before: float) -> int:
        """Delete idempotency records that are older than the time; returns their number."""
