"""The windows of a process: what people and programs see of it, fed from one reader of the journal.

An application has them if whoever made it put them there; a route that needs them says so otherwise.
"""

from collections.abc import Sequence
from functools import partial

import msgspec

from stateward.access.lifecycle import TOKEN
from stateward.engine import Engine
from stateward.engine.kinds import Kinds
from stateward.server.errors import NotReady
from stateward.server.live.journal_feed import Feed
from stateward.server.live.operation_followers import Following
from stateward.server.live.stream_server import Stream
from stateward.server.presenter import present_line
from stateward.server.service import Connection
from stateward.server.telemetry.prometheus_metrics import Metrics
from stateward.server.telemetry.snapshot import Surveyor
from stateward.store.records import JournalEntry


class Windows:
    """The feed of the journal, and what looks at it: the stream, the followers of operations, the metrics."""

    def __init__(self, engine: Engine) -> None:
        surveyor = Surveyor(engine.store)
        self.feed = Feed(engine.store, partial(encode_line, engine.kinds))
        self.stream = Stream(self.feed, surveyor.snapshot)
        self.following = Following(engine.store)
        self.metrics = Metrics(list(engine.kinds), surveyor.survey)
        self.feed.listen(self.metrics.hear)
        self.feed.listen(self._hear)
        self.metrics.readers.set_function(lambda: self.feed.readers)

    async def __aenter__(self) -> "Windows":
        await self.feed.start()
        self.following.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _hear(self, lines: Sequence[JournalEntry]) -> None:
        if any(line.kind == TOKEN.kind for line in lines):
            self.following.wake()  # the stream has heard of it already

    async def close(self) -> None:
        """Let everybody go who looks; they may come back to another process."""
        await self.following.stop()
        await self.feed.stop()


def encode_line(kinds: Kinds, line: JournalEntry, internal: bool) -> str | None:
    """Return a line as JSON, as administrators (`internal`) or all others see it; None if they do not."""
    shown = present_line(kinds.disclosure(internal=internal), line)
    return None if shown is None else msgspec.json.encode(shown).decode()


def windows_of(connection: Connection) -> Windows:
    """Return the windows of the application that a connection is to."""
    windows: Windows | None = connection.app.state.get("windows")
    if windows is None:
        raise NotReady("this process has no windows: ask a server")
    return windows
