"""The journal feed: one query of the journal for each commit, however many readers a process has.

A single task reads new entries and caches the newest, each encoded once. Readers take pages from the cache, each at its
own pace. A slow reader delays nobody, because the feed keeps no queue for it. A reader that is behind the cache reads
pages from the store until it has caught up.

The pause between two wake-ups grows with the number of readers, up to half a second: waking a thousand readers for
every commit would cost more than the work that they watch.
"""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence

from msgspec import Struct

from stateward.access.tokens import ANY, SYSTEM
from stateward.aio.supervise import cancel_tasks, supervise, wait_for_event
from stateward.engine.bounded_reads import EVERYTHING, read_between
from stateward.engine.maintenance.horizon import require_entries
from stateward.store.errors import StoreError
from stateward.store.filters import JournalFilter
from stateward.store.port import Store
from stateward.store.records import JournalEntry
from stateward.store.topics import Topic

log = logging.getLogger("stateward.feed")

PAGE_ENTRIES, PAGE_MAX_CHARS = 500, 500_000
"""How many entries are read or sent at once, and the size of a message, unless a single entry is longer."""

CACHE_ENTRIES, CACHE_MAX_CHARS = 20_000, 32_000_000
"""How many entries are cached at least if they are short, and the size of the whole cache."""

UNWATCHED_CACHE_ENTRIES = 1_000
"""How many entries are cached while there is no reader, so that a reader can reconnect without a query."""

KEPT_PAGES = 100
"""How many pages are kept until the next entry, for readers at the same place; each has up to `PAGE_MAX_CHARS`."""

TYPICAL_ENTRY_CHARS = 400
"""The typical size of an entry without its reason and spec."""

POLL_MAX_S = 5.0
"""How many seconds pass at most between two queries, in case a notification is lost."""

RETRY_S = 1.0
"""How many seconds pass before a failed query is repeated."""

PAUSE_PER_READER_S, PAUSE_MAX_S = 0.0005, 0.5
"""The pause between two wake-ups for each reader, and the longest pause."""

UNWATCHED_PAUSE_S = 0.1
"""The pause between two queries while there is no reader, and entries are only counted."""


class Interest(Struct, frozen=True):
    """The entries that a reader may see and wants to see; readers with equal interests share pages."""

    namespaces: frozenset[str]
    system: bool = False
    internal: bool = False  # whether internal entries are visible: to administrators
    only: frozenset[str] | None = None
    kind: str | None = None

    def wants(self, ns: str, kind: str) -> bool:
        """Return whether an entry about an object of a kind in a namespace is of interest."""
        opened = self.system if ns == SYSTEM else not self.namespaces.isdisjoint((ANY, ns))
        return opened and (self.only is None or ns in self.only) and self.kind in (None, kind)


Encode = Callable[[JournalEntry, bool], str | None]
"""Encodes an entry for administrators (True) or for others; None if it is hidden from them."""


class CachedEntry:
    """An entry, encoded once for each group of readers and only on demand: many entries are never read."""

    __slots__ = ("_encode", "_entry", "_texts", "kind", "ns", "seq", "size")

    def __init__(self, entry: JournalEntry, encode: Encode) -> None:
        self.seq, self.ns, self.kind = entry.seq, entry.ns, entry.kind
        self.size = TYPICAL_ENTRY_CHARS + len(entry.spec or "") + len(entry.reason or "")
        self._entry, self._encode = entry, encode
        self._texts: dict[bool, str | None] = {}  # bounded by: the two forms of an entry

    def text(self, internal: bool) -> str | None:
        """Return the encoded entry for a group of readers; None if it is hidden from them."""
        if internal not in self._texts:
            self._texts[internal] = self._encode(self._entry, internal)
        return self._texts[internal]


class FeedPage(Struct, frozen=True):
    """A page of entries after a sequence number: the message, the count of entries, and the number to continue from."""

    message: str
    count: int
    seq: int


class JournalFeed:
    """The newest entries of the journal, for all readers of this process."""

    def __init__(self, store: Store, encode: Encode, *, keep: int = CACHE_ENTRIES) -> None:
        self._store, self._encode, self._keep = store, encode, keep
        self._entries: list[CachedEntry] = []
        self._size = 0
        self._first = 0  # the cache has all entries after this number
        self.seq = 0
        self._pages: dict[tuple[Interest, int], FeedPage] = {}
        self._new_entries: asyncio.Future[None] | None = None
        self._wakeup = asyncio.Event()
        self._listeners: list[Callable[[Sequence[JournalEntry]], None]] = []  # bounded by: the parts of a server
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None
        self.readers = 0
        self.stopped = False

    # --- start and stop -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start at the current end of the journal."""
        self.seq = self._first = await self._store.reader.last_journal_seq()
        self._unsubscribe = self._store.subscribe(self._on_topics)
        self._task = asyncio.create_task(supervise("journal feed", self._read_journal, log))

    async def stop(self) -> None:
        """Stop reading, and wake all readers, which find `stopped` set."""
        self.stopped = True
        self._unsubscribe()
        self._wake_readers()
        if self._task is not None:
            await cancel_tasks([self._task])

    def listen(self, listener: Callable[[Sequence[JournalEntry]], None]) -> None:
        """Call `listener` with all new entries, in order."""
        self._listeners.append(listener)

    # --- readers -------------------------------------------------------------------------------------------

    async def has_reached(self, seq: int) -> bool:
        """Return whether the journal has reached a number; the feed may be behind the journal."""
        return seq <= self.seq or seq <= await self._store.reader.last_journal_seq()

    async def wait_for_entries(self, after: int) -> None:
        """Wait until there are entries after this number, or the feed has stopped."""
        while self.seq <= after and not self.stopped:
            if self._new_entries is None:
                self._new_entries = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._new_entries)

    async def page(self, interest: Interest, after: int) -> FeedPage:
        """Return the entries after a number, from the cache or, if they are older, from the store.

        Raises `EntriesPruned` if some of them were pruned.
        """
        known = self._pages.get((interest, after))
        if known is not None:
            return known
        if after < self._first:
            return await self._page_from_store(interest, after)
        begin = bisect_right(self._entries, after, key=_seq)
        made = _feed_page(*_fitting(interest, self._entries[begin : begin + PAGE_ENTRIES], after))
        if len(self._pages) >= KEPT_PAGES:
            del self._pages[next(iter(self._pages))]
        self._pages[interest, after] = made
        return made

    async def _page_from_store(self, interest: Interest, after: int) -> FeedPage:
        kept = self._first
        single = next(iter(interest.only)) if interest.only is not None and len(interest.only) == 1 else None
        read = await read_between(
            self._store.reader, after, kept, PAGE_ENTRIES, JournalFilter(ns=single, kind=interest.kind)
        )
        await require_entries(self._store.reader, after)
        texts, seq = _fitting(interest, [self._cached(entry) for entry in read.entries], after)
        fits = not read.entries or seq == read.entries[-1].seq
        return _feed_page(texts, read.upto if fits else seq)

    def _cached(self, entry: JournalEntry) -> CachedEntry:
        return CachedEntry(entry, self._encode)

    # --- the journal -------------------------------------------------------------------------------------------------

    def _on_topics(self, topics: Topic) -> None:
        if topics & Topic.JOURNAL:
            self._wakeup.set()

    async def _read_journal(self) -> None:
        while True:
            self._wakeup.clear()
            try:
                entries = await self._store.reader.journal(self.seq, PAGE_ENTRIES, EVERYTHING)
            except StoreError as error:
                log.warning("journal feed cannot read the journal; it retries in %g s: %s", RETRY_S, error)
                await asyncio.sleep(RETRY_S)
                continue
            if entries:
                self._append(entries)
            if len(entries) < PAGE_ENTRIES:
                await self._pause(bool(entries))

    async def _pause(self, woken: bool) -> None:
        if woken:
            pause = min(self.readers * PAUSE_PER_READER_S, PAUSE_MAX_S) if self.readers else UNWATCHED_PAUSE_S
            await asyncio.sleep(pause)
        await wait_for_event(self._wakeup, POLL_MAX_S)

    def _append(self, entries: Sequence[JournalEntry]) -> None:
        cached = [self._cached(entry) for entry in entries]
        self._entries += cached
        self._size += sum(entry.size for entry in cached)
        self.seq = entries[-1].seq
        keep = self._keep if self.readers else min(self._keep, UNWATCHED_CACHE_ENTRIES)
        while len(self._entries) > 2 * keep or self._size > 2 * CACHE_MAX_CHARS:
            self._drop_older_half()
        self._pages.clear()
        for listener in self._listeners:
            try:
                listener(entries)
            except Exception:  # the other listeners, and all readers, need the entries as well
                log.exception("a listener of the journal feed has failed")
        self._wake_readers()

    def _drop_older_half(self) -> None:
        """Drop the older half of the cache."""
        count = (len(self._entries) + 1) // 2
        self._first = self._entries[count - 1].seq
        self._size -= sum(entry.size for entry in self._entries[:count])
        del self._entries[:count]

    def _wake_readers(self) -> None:
        if self._new_entries is not None and not self._new_entries.done():
            self._new_entries.set_result(None)
        self._new_entries = None


def _fitting(interest: Interest, entries: Sequence[CachedEntry], after: int) -> tuple[list[str], int]:
    """Return the entries of interest that fit into one message, and the last number that they cover."""
    texts, size, seq = list[str](), 0, after
    for entry in entries:
        text = entry.text(interest.internal) if interest.wants(entry.ns, entry.kind) else None
        if text is not None:
            if texts and size + len(text) > PAGE_MAX_CHARS:
                break
            texts.append(text)
            size += len(text)
        seq = entry.seq
    return texts, seq


def _feed_page(texts: Sequence[str], seq: int) -> FeedPage:
    return FeedPage(f'{{"lines":[{",".join(texts)}],"seq":{seq}}}', len(texts), seq)


def _seq(entry: CachedEntry) -> int:
    return entry.seq
