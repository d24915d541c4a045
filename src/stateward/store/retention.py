"""The port of pruning: what a store is asked when what ended long ago is to go.

The journal leads the way, because it is the one table whose order is that of time: its oldest lines name the operations
and the objects that may have to go, so that no other table is read from end to end, nor needs an index by time. What is
found is read beside the writers. It stays true, because what has ended does not begin again; only a removed object may
come back, so that it is looked at once more, and locked, when it is dropped.

Answers to idempotency keys are named by nothing. They are short, and walked in the order of their keys.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from stateward.store.records import Key

BATCH_ROWS = 2_000
"""How many rows are looked at, or dropped, in one go where nobody else says how many."""

BEFORE_ALL_KEYS = Key("", "")
"""What comes before every key."""


class JournalSpan(NamedTuple):
    """Lines of the journal: those that follow a number, up to another one, which is included."""

    after: int
    upto: int


class PruneCandidate(NamedTuple):
    """Something that may go, and whether the line that began it (or removed it) lies in the span that was looked at.

    Many lines tell of the same operation, in more than one span: who only counts, counts where it began.
    """

    key: Key
    is_first_entry: bool


class KeyPage(Struct, frozen=True):
    """What was found among so many rows in the order of their keys, and the last of them; None: there are no more."""

    keys: list[Key]
    next: Key | None


FetchPage = Callable[[str, Key], Awaitable[KeyPage]]
"""Looks, with a question, at the rows that follow a key."""


def key_page(rows: Iterable[Sequence[Any]]) -> KeyPage:
    """Make what was found of rows (namespace, name, whether it is the last row rather than something found)."""
    found: list[Key] = []
    last: Key | None = None
    for ns, name, is_last in rows:
        if is_last:
            last = Key(ns, name)
        else:
            found.append(Key(ns, name))
    return KeyPage(found, last)


async def all_keys(look: FetchPage, *questions: str) -> set[Key]:
    """Walk from the first row to the last with each question, and return all that was found."""
    found = set[Key]()
    for question in questions:
        after: Key | None = BEFORE_ALL_KEYS
        while after is not None:
            page = await look(question, after)
            found.update(page.keys)
            after = page.next
    return found


class Retention(Protocol):
    """Finds what ended before a time, and drops what it is told to."""

    async def journal_span(self, after: int, last: int, most: int) -> JournalSpan | None:
        """Return the next so many lines that follow a number, up to another one; None where there are none."""

    async def operations(self, span: JournalSpan, before: float) -> list[PruneCandidate]:
        """Return the operations that may go, of those that the old lines of a span name: children before parents.

        One goes with its whole family (its parents, their children) or not at all: all of them have ended before the
        time, hold no object and no lock, and no worker is still at one.
        """

    async def objects(self, span: JournalSpan, before: float) -> list[PruneCandidate]:
        """Return the removed objects that may go, of those that the old lines of a span are about.

        They were removed before the time, and no work, no lock and no younger operation is about them, and no object
        that is still there (or was removed later) has them as its parent. What names an object without an index, its
        timers and whoever stands in its queue, is told by `named`.
        """

    async def referenced_objects(self, before: float) -> set[Key]:
        """Return the objects that a timer is for, or in whose queue another one stands that is still there."""

    async def journal_entries(
        self,
        span: JournalSpan,
        before: float,
        last: int,
        operations: Collection[Key] = (),
        objects: Collection[Key] = (),
    ) -> list[int]:
        """Return the old lines of a span that may go; these operations and objects are taken for dropped.

        Of an object that is there, the last line up to a number that tells its state stays, and so do the lines of its
        operations that are there.
        """

    async def idempotency_records(self, after: Key, before: float, most: int) -> KeyPage:
        """Look at so many answers that follow a key."""

    async def drop_operations(self, keys: Collection[Key]) -> int:
        """Drop operations with their lines of progress, these in portions; returns how many there were."""

    async def drop_objects(self, keys: Collection[Key], before: float) -> int:
        """Drop removed objects, as far as they may still go; returns how many there were."""

    async def drop_journal_entries(self, numbers: Collection[int]) -> int:
        """Drop lines of the journal; returns how many there were."""

    async def drop_idempotency_records(self, keys: Collection[Key], before: float) -> int:
        """Drop answers that are older than the time; returns how many there were."""
