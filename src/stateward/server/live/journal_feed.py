"""The journal as one process sees it: one query for each commit, however many people watch.

A single task reads what is new and keeps the newest lines in memory, each encoded once. Whoever watches takes pages
from there, each at their own pace: a slow one holds nobody up, because nothing is kept for it. Who has fallen behind
what is kept, or resumes from long ago, reads pages from the store until it has caught up.

The more people watch, the longer the pause between two wake-ups (never more than half a second): a thousand readers who
are woken for every single commit would cost more than all the work they watch.
"""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence

from msgspec import Struct

from stateward.access.tokens import ANY, SYSTEM
from stateward.aio.polling import wait_for_event
from stateward.aio.supervise import cancel_tasks
from stateward.engine.maintenance.horizon import require_entries
from stateward.store.errors import StoreError
from stateward.store.filters import JournalFilter
from stateward.store.port import Store
from stateward.store.records import JournalEntry
from stateward.store.topics import Topic

log = logging.getLogger("stateward.feed")

EVERYTHING = JournalFilter()
PAGE_ENTRIES, PAGE_MAX_CHARS = 500, 500_000
"""How many lines are read, or sent, at once; and how long a message may get, unless a single line is longer."""

CACHE_ENTRIES, CACHE_MAX_CHARS = 20_000, 32_000_000
"""How many lines are kept in memory at least where they are short, and how long all of them may be together."""

UNWATCHED_CACHE_ENTRIES = 1_000
"""How many lines are kept while nobody watches: who comes back a moment later goes on from them."""

TYPICAL_ENTRY_CHARS = 400
"""About how long a line is, beside its reason and its spec."""

POLL_MAX_S = 5.0
"""How many seconds pass at most between two looks, should a wake-up call be lost."""

RETRY_S = 1.0
"""How many seconds pass before a store that did not answer is asked again."""

PAUSE_PER_READER_S, PAUSE_MAX_S = 0.0005, 0.5
"""How many seconds of pause each reader adds between two wake-ups, and the longest pause."""

UNWATCHED_PAUSE_S = 0.1
"""How many seconds of pause there are while nobody watches, and lines are only counted."""


class Interest(Struct, frozen=True):
    """What somebody may see and wants to see; equal interests share their pages."""

    namespaces: frozenset[str]
    system: bool = False
    internal: bool = False  # administrators see what is internal
    only: frozenset[str] | None = None
    kind: str | None = None

    def wants(self, ns: str, kind: str) -> bool:
        """Tell whether a line about an object of a kind in a namespace is for them."""
        opened = self.system if ns == SYSTEM else not self.namespaces.isdisjoint((ANY, ns))
        return opened and (self.only is None or ns in self.only) and self.kind in (None, kind)


Encode = Callable[[JournalEntry, bool], str | None]
"""Returns a line as it is sent to administrators (True) or to all others; None if they do not see it."""


class CachedEntry:
    """A line, which is encoded once for each group of readers, when the first one wants it: many are never read."""

    __slots__ = ("_encode", "_line", "_texts", "kind", "ns", "seq", "size")

    def __init__(self, line: JournalEntry, encode: Encode) -> None:
        self.seq, self.ns, self.kind = line.seq, line.ns, line.kind
        self.size = TYPICAL_ENTRY_CHARS + len(line.spec or "") + len(line.reason or "")
        self._line, self._encode = line, encode
        self._texts: dict[bool, str | None] = {}

    def text(self, internal: bool) -> str | None:
        """Return the line as it is sent to a group of readers; None if they do not see it."""
        if internal not in self._texts:
            self._texts[internal] = self._encode(self._line, internal)
        return self._texts[internal]


class FeedPage(Struct, frozen=True):
    """What follows a number: the lines of interest as a message, how many they are, and the number to go on from."""

    message: str
    count: int
    seq: int


class JournalFeed:
    """The newest lines of the journal, for everybody in this process."""

    def __init__(self, store: Store, encode: Encode, *, keep: int = CACHE_ENTRIES) -> None:
        self._store, self._encode, self._keep = store, encode, keep
        self._entries: list[CachedEntry] = []
        self._size = 0
        self._first = 0  # everything that follows this number is kept
        self.seq = 0
        self._pages: dict[tuple[Interest, int], FeedPage] = {}
        self._new_entries: asyncio.Future[None] | None = None
        self._wakeup = asyncio.Event()
        self._listeners: list[Callable[[Sequence[JournalEntry]], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None
        self.readers = 0
        self.stopped = False

    # --- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin where the journal ends now."""
        self.seq = self._first = await self._store.reader.last_journal_seq()
        self._unsubscribe = self._store.subscribe(self._on_topics)
        self._task = asyncio.create_task(self._read_journal(), name="journal feed")

    async def stop(self) -> None:
        """Read no more; whoever waits is woken, and sees that it is over."""
        self.stopped = True
        self._unsubscribe()
        self._wake_readers()
        if self._task is not None:
            await cancel_tasks([self._task])

    def listen(self, listener: Callable[[Sequence[JournalEntry]], None]) -> None:
        """Call back with all lines that come in, in order."""
        self._listeners.append(listener)

    # --- what watchers ask -------------------------------------------------------------------------------------------

    async def wait_for_entries(self, after: int) -> None:
        """Wait until there is more than this number, or it is over."""
        while self.seq <= after and not self.stopped:
            if self._new_entries is None:
                self._new_entries = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._new_entries)

    async def page(self, interest: Interest, after: int) -> FeedPage:
        """Return what follows a number: from memory, or from the store where it is older than what is kept.

        If some of that was pruned, `EntriesPruned` is raised.
        """
        known = self._pages.get((interest, after))
        if known is not None:
            return known
        if after < self._first:
            return await self._page_from_store(interest, after)
        begin = bisect_right(self._entries, after, key=_number)
        made = self._pages[interest, after] = _news(
            *_fitting(interest, self._entries[begin : begin + PAGE_ENTRIES], after)
        )
        return made

    async def _page_from_store(self, interest: Interest, after: int) -> FeedPage:
        kept = self._first
        lines = await self._store.reader.journal(after, PAGE_ENTRIES, _filter(interest))
        await require_entries(self._store.reader, after)
        texts, seq = _fitting(interest, [self._cached(line) for line in lines], after)
        everything = len(lines) < PAGE_ENTRIES and (not lines or seq == lines[-1].seq)
        return _news(texts, max(kept, seq) if everything else seq)  # up to what was kept by then, nothing is missing

    def _cached(self, line: JournalEntry) -> CachedEntry:
        return CachedEntry(line, self._encode)

    # --- reading -----------------------------------------------------------------------------------------------------

    def _on_topics(self, topics: Topic) -> None:
        if topics & Topic.JOURNAL:
            self._wakeup.set()

    async def _read_journal(self) -> None:
        while True:
            self._wakeup.clear()
            try:
                lines = await self._store.reader.journal(self.seq, PAGE_ENTRIES, EVERYTHING)
            except StoreError as error:
                log.warning("the journal cannot be read: %s", error)
                await asyncio.sleep(RETRY_S)
                continue
            if lines:
                self._append(lines)
            if len(lines) < PAGE_ENTRIES:
                await self._pause(bool(lines))

    async def _pause(self, woken: bool) -> None:
        if woken:
            pause = min(self.readers * PAUSE_PER_READER_S, PAUSE_MAX_S) if self.readers else UNWATCHED_PAUSE_S
            await asyncio.sleep(pause)
        await wait_for_event(self._wakeup, POLL_MAX_S)

    def _append(self, lines: Sequence[JournalEntry]) -> None:
        notes = [self._cached(line) for line in lines]
        self._entries += notes
        self._size += sum(note.size for note in notes)
        self.seq = lines[-1].seq
        keep = self._keep if self.readers else min(self._keep, UNWATCHED_CACHE_ENTRIES)
        while len(self._entries) > 2 * keep or self._size > 2 * CACHE_MAX_CHARS:
            self._drop_older_half()
        self._pages.clear()
        for listener in self._listeners:
            listener(lines)
        self._wake_readers()

    def _drop_older_half(self) -> None:
        """Let go of the older half."""
        count = (len(self._entries) + 1) // 2
        self._first = self._entries[count - 1].seq
        self._size -= sum(note.size for note in self._entries[:count])
        del self._entries[:count]

    def _wake_readers(self) -> None:
        if self._new_entries is not None and not self._new_entries.done():
            self._new_entries.set_result(None)
        self._new_entries = None


def _filter(interest: Interest) -> JournalFilter:
    single = next(iter(interest.only)) if interest.only is not None and len(interest.only) == 1 else None
    return JournalFilter(ns=single, kind=interest.kind)


def _fitting(interest: Interest, notes: Sequence[CachedEntry], after: int) -> tuple[list[str], int]:
    """Return the notes that are of interest, as many as fit into one message, and the number up to which they are."""
    texts, size, seq = list[str](), 0, after
    for note in notes:
        text = note.text(interest.internal) if interest.wants(note.ns, note.kind) else None
        if text is not None:
            if texts and size + len(text) > PAGE_MAX_CHARS:
                break
            texts.append(text)
            size += len(text)
        seq = note.seq
    return texts, seq


def _news(texts: Sequence[str], seq: int) -> FeedPage:
    return FeedPage(f'{{"lines":[{",".join(texts)}],"seq":{seq}}}', len(texts), seq)


def _number(note: CachedEntry) -> int:
    return note.seq
