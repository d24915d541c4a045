"""Watching: the journal's numbers are the stream. A snapshot, then every line that follows it, each exactly once.

The stream is pulled by its reader, page by page, so that a slow reader holds nobody up; whoever reconnects goes on from
the number that it saw last. If some of what followed was pruned meanwhile, it is told so instead.
"""

import asyncio
from collections.abc import AsyncIterator

from stateward.engine.horizon import require_entries
from stateward.store.port import Store, Topic
from stateward.store.records import JournalEntry
from stateward.store.selection import JournalFilter

EVERYTHING = JournalFilter()


async def watch(
    store: Store, after: int, only: JournalFilter = EVERYTHING, page: int = 500
) -> AsyncIterator[JournalEntry]:
    """Yield journal lines that follow a number, for ever, in the order of their commits; or raise `LinesGone`."""
    news, behind = asyncio.Event(), True

    def told(topics: Topic) -> None:
        if topics & Topic.JOURNAL:
            news.set()

    stop = store.subscribe(told)
    try:
        while True:
            news.clear()
            lines = await store.reader.journal(after, page, only)
            if behind:  # who has caught up reads what is new, and nothing of that is ever pruned
                await require_entries(store.reader, after)
                behind = len(lines) == page
            for line in lines:
                yield line
                after = line.seq
            if len(lines) < page:
                await _wait(news)
    finally:
        stop()


async def _wait(news: asyncio.Event, safety: float = 5.0) -> None:
    """Wait for news; look from time to time anyway, should a wake-up call be lost."""
    try:
        async with asyncio.timeout(safety):
            await news.wait()
    except TimeoutError:
        return
