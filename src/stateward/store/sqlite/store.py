"""The store in an SQLite file: nothing to install, one writer, readers beside it, any number of processes."""

import time
from collections.abc import Callable
from functools import partial
from os import PathLike, fspath
from typing import TypeAlias, TypeVar

from stateward.store.errors import Busy
from stateward.store.port import Reader, Topic, Tx, TxFunction
from stateward.store.retention import Pruning
from stateward.store.sqlite.connections import LOG_BYTES, Settings, Synchronous
from stateward.store.sqlite.readers import InlineReading, Pool, Reading, SqliteReader
from stateward.store.sqlite.retention import SqlitePruning
from stateward.store.sqlite.shared_file import FileIdentity
from stateward.store.sqlite.wal import Checkpoints
from stateward.store.sqlite.writer import InlineWriting, Writer, Writing, open_writer_connection

TopicListener: TypeAlias = Callable[[Topic], None]


class Listeners:
    """The listeners of one store; they are called on the event loop."""

    def __init__(self) -> None:
        self._listeners: list[TopicListener] = []

    def add(self, listener: TopicListener) -> Callable[[], None]:
        """Add a listener and return how to remove it."""
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    def tell(self, topics: int) -> None:
        """Call everybody, if there is anything to tell."""
        if topics:
            for listener in tuple(self._listeners):
                listener(Topic(topics))


T = TypeVar("T")


class SqliteStore:
    """A database file, or with the path `:memory:` a database that is gone when it is closed.

    `inline` does without threads: everything runs on the event loop at once, in one order. It is for simulations, and
    is how a database in memory is always run. A store that runs inline does not hear of what other processes commit.
    """

    reader: Reader
    pruning: Pruning
    serializes_writes = True

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        synchronous: Synchronous = "FULL",
        busy_timeout: float = 5.0,
        max_bytes: int | None = None,
        log_bytes: int = LOG_BYTES,
        readers: int = 2,
        inline: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = Settings(fspath(path), synchronous, busy_timeout, max_bytes, log_bytes=log_bytes)
        self._listeners = Listeners()
        files = FileIdentity(self.settings)
        desk = partial(open_writer_connection, self.settings, clock, files)
        self._writing: Writing
        self._reading: Reading
        if inline or self.settings.in_memory:
            self._writing = InlineWriting(desk, self._listeners.tell)
            self._reading = InlineReading(lambda: self._writing.writer_connection.connection)
        else:
            self._writing = Writer(desk, self._listeners.tell, Checkpoints(self.settings, files), files)
            self._reading = Pool(self.settings, readers, files)
        self.reader = SqliteReader(self._reading, clock)
        self.pruning = SqlitePruning(self._reading, self._writing)

    async def open(self) -> None:
        await self._writing.start()

    async def close(self) -> None:
        await self._writing.stop()
        await self._reading.close()

    async def transact(self, program: TxFunction[T]) -> T:
        return await self._writing.run(program)

    def subscribe(self, listener: Callable[[Topic], None]) -> Callable[[], None]:
        return self._listeners.add(listener)

    async def is_sole_user(self) -> bool:
        lock = self._writing.writer_connection.lock
        if lock is None or lock.undisturbed():
            return True

        async def test(_: Tx) -> bool:
            return lock.test()

        try:
            return await self.transact(test)
        except Busy:
            return False
