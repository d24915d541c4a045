"""Queries: complete listings of objects, and from the journal recovered operations, past states and the stream.

The journal's numbers are the position in the stream. A reader takes a snapshot, then every entry that follows it, each
exactly once. It pulls the stream page by page, so that a slow reader holds nobody up, and reconnects by the last number
that it has seen. If entries that follow were pruned meanwhile, it gets an error instead of a gap.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from math import inf, nextafter

from msgspec import Struct

from stateward.aio.supervise import wait_for_event
from stateward.engine.bounded_reads import EVERYTHING, read_all
from stateward.engine.maintenance.horizon import horizon, require_entries
from stateward.lifecycle import CLOCK, HEALER, TIMED_OUT
from stateward.store.filters import JournalFilter, Page, Selector
from stateward.store.port import Reader, Store
from stateward.store.records import JournalEntry, Key, Object, Operation
from stateward.store.topics import Topic

PAGE_SIZE = 1000
FIRST_PAGE = 20
"""How many entries are read first where one of the newest is probably the wanted one."""


async def list_all(reader: Reader, chosen: Selector) -> AsyncIterator[Object]:
    """Yield all objects that a selector matches, page by page."""
    after: str | None = None
    while True:
        page = await reader.list_objects(chosen, Page(after, PAGE_SIZE))
        for record in page:
            yield record
        if len(page) < PAGE_SIZE:
            return
        after = page[-1].id


class Recovered(Struct, frozen=True):
    """An operation that the healer or the clock has ended or requeued: which, since when it ran, and how it ended."""

    ns: str
    object: str
    kind: str
    op: str | None
    began: float | None
    at: float
    how: str
    state: str | None
    reason: str | None


async def recovered(
    reader: Reader,
    since: float,
    ns: str | None = None,
    show: Callable[[JournalEntry], JournalEntry | None] = lambda entry: entry,
    limit: int = 1000,
) -> list[Recovered]:
    """Return what was recovered since a time, oldest first: requeued from dead workers, finished, or timed out.

    `show` returns a journal entry as the reader may see it, or None if the reader may not.
    """
    by_healer = await read_all(reader, limit, JournalFilter(ns=ns, actor=HEALER, since=since))
    by_clock = await read_all(reader, limit, JournalFilter(ns=ns, actor=CLOCK, since=since))
    entries = [*by_healer, *(entry for entry in by_clock if entry.event == TIMED_OUT)]
    shown = [entry for stored in sorted(entries, key=lambda entry: entry.seq) if (entry := show(stored)) is not None]
    operations = await reader.operations([Key(entry.ns, entry.op) for entry in shown if entry.op is not None])
    return [_recovered(entry, operations.get(Key(entry.ns, entry.op or ""))) for entry in shown]


def _recovered(entry: JournalEntry, operation: Operation | None) -> Recovered:
    began = None if operation is None else operation.created
    return Recovered(
        entry.ns, entry.object, entry.kind, entry.op, began, entry.at, entry.event, entry.target, entry.reason
    )


WATCH_POLL_MAX_S = 5.0
"""How many seconds pass at most between two reads, should a notification be lost."""


async def watch(
    store: Store, after: int, only: JournalFilter = EVERYTHING, page: int = 500
) -> AsyncIterator[JournalEntry]:
    """Yield the journal entries that follow a number, one by one; see `watch_pages`."""
    async with aclosing(watch_pages(store, after, only, page)) as pages:
        async for entries in pages:
            for entry in entries:
                yield entry


async def watch_pages(
    store: Store, after: int, only: JournalFilter = EVERYTHING, page: int = 500
) -> AsyncGenerator[Sequence[JournalEntry]]:
    """Yield the journal entries that follow a number, page by page, for ever, in the order of their commits.

    Raises `EntriesPruned` if some of them were pruned before they were read.
    """
    committed, is_behind = asyncio.Event(), True
    clock = asyncio.get_running_loop().time

    def on_topics(topics: Topic) -> None:
        if topics & Topic.JOURNAL:
            committed.set()

    unsubscribe = store.subscribe(on_topics)
    try:
        while True:
            committed.clear()
            began = clock()
            # Read first: what is committed meanwhile has a greater number, so it is read the next time.
            last = await store.reader.last_journal_seq() if only != EVERYTHING else after
            entries = await store.reader.journal(after, page, only)
            if is_behind:  # a reader that has caught up reads new entries only, and those are not pruned so soon
                await require_entries(store.reader, after)
            is_behind = len(entries) == page
            if entries:
                yield entries
                after = entries[-1].seq
                is_behind |= clock() - began > WATCH_POLL_MAX_S  # the caller took its time
            if len(entries) < page:
                after = max(after, last)  # otherwise all entries since the last match would be read again
                await wait_for_event(committed, WATCH_POLL_MAX_S)
    finally:
        unsubscribe()


class PastState(Struct, frozen=True):
    """The state of an object at a time. None: it did not exist, or, if not `known`, the entries were pruned."""

    state: str | None
    known: bool = True


async def state_at(reader: Reader, key: Key, time: float) -> PastState:
    """Return the state of an object at a time, as far as the journal reaches.

    From before the horizon, each object keeps at least the last entry that has its state. Earlier entries may be
    missing, so the states before that last one are unknown.
    """
    entry = await _last_state_before(reader, key, nextafter(time, inf))
    kept = await horizon(reader)
    if time < kept.before:
        last_old = await _last_state_before(reader, key, kept.before)
        if last_old is None or time < last_old.at:
            return PastState(None, known=False)
    return PastState(None if entry is None else entry.target)


async def _last_state_before(reader: Reader, key: Key, time: float) -> JournalEntry | None:
    """Return the last entry before a time that has a state of the object."""
    async for entry in entries_back(reader, key, until=time):
        if entry.target is not None:
            return entry
    return None


async def entries_back(reader: Reader, key: Key, until: float | None = None) -> AsyncIterator[JournalEntry]:
    """Yield the entries of an object before a time, newest first."""
    only, before, page = JournalFilter(ns=key.ns, object=key.id, until=until), None, FIRST_PAGE
    while True:
        entries = await reader.newest_entries(before, page, only)
        for entry in entries:
            yield entry
        if len(entries) < page:
            return
        before, page = entries[-1].seq, PAGE_SIZE
