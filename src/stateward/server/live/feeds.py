"""The live_feeds of a process: what people and programs see of it, fed from one reader of the journal.

An application has them if whoever made it put them there; a route that needs them says so otherwise.
"""

from collections.abc import Sequence
from functools import partial

import msgspec

from stateward.access.lifecycle import TOKEN
from stateward.engine import Engine
from stateward.engine.kinds import Kinds
from stateward.server.errors import NotReady
from stateward.server.live.journal_feed import JournalFeed
from stateward.server.live.operation_followers import OperationFollowers
from stateward.server.live.stream_server import JournalStream
from stateward.server.presenter import entry_view_for
from stateward.server.service import AnyConnection
from stateward.server.telemetry.prometheus_metrics import Metrics
from stateward.server.telemetry.snapshot import SnapshotReader
from stateward.store.records import JournalEntry


class LiveFeeds:
    """The feed of the journal, and what looks at it: the stream, the followers of operations, the metrics."""

    def __init__(self, engine: Engine) -> None:
        surveyor = SnapshotReader(engine.store)
        self.feed = JournalFeed(engine.store, partial(encode_entry, engine.kinds))
        self.stream = JournalStream(self.feed, surveyor.count_states)
        self.operation_followers = OperationFollowers(engine.store)
        self.metrics = Metrics(list(engine.kinds), surveyor.take)
        self.feed.listen(self.metrics.count_entries)
        self.feed.listen(self._hear)
        self.metrics.readers.set_function(lambda: self.feed.readers)

    async def __aenter__(self) -> "LiveFeeds":
        await self.feed.start()
        self.operation_followers.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _hear(self, lines: Sequence[JournalEntry]) -> None:
        if any(line.kind == TOKEN.kind for line in lines):
            self.operation_followers.wake()  # the stream has heard of it already

    async def close(self) -> None:
        """Let everybody go who looks; they may come back to another process."""
        await self.operation_followers.stop()
        await self.feed.stop()


def encode_entry(kinds: Kinds, line: JournalEntry, internal: bool) -> str | None:
    """Return a line as JSON, as administrators (`internal`) or all others see it; None if they do not."""
    shown = entry_view_for(kinds.disclosure(internal=internal), line)
    return None if shown is None else msgspec.json.encode(shown).decode()


def live_feeds_of(connection: AnyConnection) -> LiveFeeds:
    """Return the live_feeds of the application that a connection is to."""
    live_feeds: LiveFeeds | None = connection.app.state.get("live_feeds")
    if live_feeds is None:
        raise NotReady("this process has no live_feeds: ask a server")
    return live_feeds
