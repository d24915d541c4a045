"""The live feeds of a process: the journal feed, and the stream, followers and metrics that read from it.

`LiveFeeds` is put into the application's state by the process that runs the application. A route that needs it raises
`NotReady` if it is missing.
"""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial

import msgspec

from stateward.access import Grant
from stateward.access.lifecycle import TOKEN
from stateward.access.sessions import SESSION
from stateward.engine import Engine
from stateward.engine.kinds import Kinds
from stateward.plugin.readiness import NotReady
from stateward.server.errors import TooMany
from stateward.server.live.journal_feed import JournalFeed
from stateward.server.live.operation_followers import OperationFollowers, ProgressEvent
from stateward.server.live.stream_server import JournalStream
from stateward.server.presenter import entry_view_for
from stateward.server.service import AnyConnection
from stateward.server.telemetry.prometheus_metrics import Metrics
from stateward.server.telemetry.snapshot import SnapshotReader
from stateward.store.records import JournalEntry, Key

FOLLOWED_PER_TOKEN = 100
"""How many streams of operations a token may have open at once in this process: each holds a connection and a task."""

RETRY_AFTER_S = 5.0
"""After how many seconds a client with too many streams may try again."""


class LiveFeeds:
    """The journal feed and its readers: the stream, the followers of operations, the metrics."""

    def __init__(self, engine: Engine) -> None:
        snapshots = SnapshotReader(engine.store)
        self.feed = JournalFeed(engine.store, partial(encode_entry, engine.kinds))
        self.stream = JournalStream(self.feed, snapshots.count_states)
        self.operation_followers = OperationFollowers(engine.store)
        self.metrics = Metrics(list(engine.kinds), snapshots.take)
        self._followed_by_token: Counter[str] = Counter()
        self.feed.listen(self.metrics.count_entries)
        self.feed.listen(self._on_entries)
        self.metrics.readers.set_function(lambda: self.feed.readers)

    async def __aenter__(self) -> "LiveFeeds":
        await self.feed.start()
        self.operation_followers.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def follow_operation(self, grant: Grant, key: Key, after: int = 0) -> AsyncIterator[ProgressEvent]:
        """Return the progress lines of an operation after a number, then its end; raises if the token has too many.

        The iterator ends early when the token is revoked, when it or its session expires, and when the server stops.
        """
        if self._followed_by_token[grant.token] >= FOLLOWED_PER_TOKEN:
            why = f"this token follows {FOLLOWED_PER_TOKEN} operations already, which is the limit; end one of these"
            raise TooMany(RETRY_AFTER_S, why)
        return self._count_followed(grant, key, after)

    async def _count_followed(self, grant: Grant, key: Key, after: int) -> AsyncIterator[ProgressEvent]:
        """Count the stream from its first event on: an iterator that is never used has no end that could be counted."""
        if self._followed_by_token[grant.token] >= FOLLOWED_PER_TOKEN:
            return
        self._followed_by_token[grant.token] += 1
        try:
            async for event in self.operation_followers.follow(key, after, lambda: not self.stream.is_over(grant)):
                yield event
        finally:
            self._followed_by_token[grant.token] -= 1
            if not self._followed_by_token[grant.token]:
                del self._followed_by_token[grant.token]

    def _on_entries(self, entries: Sequence[JournalEntry]) -> None:
        if any(entry.kind in (TOKEN.kind, SESSION.kind) for entry in entries):
            self.operation_followers.wake()  # the stream listens to the feed itself

    async def close(self) -> None:
        """Disconnect all readers; they may reconnect to another process."""
        await self.operation_followers.stop()
        await self.feed.stop()


def encode_entry(kinds: Kinds, entry: JournalEntry, internal: bool) -> str | None:
    """Return a journal entry as JSON for administrators (`internal`) or for others; None if it is hidden from them."""
    shown = entry_view_for(kinds.disclosure(internal=internal), entry)
    return None if shown is None else msgspec.json.encode(shown).decode()


def live_feeds_of(connection: AnyConnection) -> LiveFeeds:
    """Return the live feeds of the application that serves a connection."""
    live_feeds: LiveFeeds | None = connection.app.state.get("live_feeds")
    if live_feeds is None:
        raise NotReady("streaming is not available in this process; use a running server")
    return live_feeds
