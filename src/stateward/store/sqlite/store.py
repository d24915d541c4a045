"""The store in an SQLite file: one writer, readers beside it, any number of processes."""

import sqlite3
import time
from collections.abc import Callable
from functools import partial
from os import PathLike, fspath
from typing import TypeAlias, TypeVar

from stateward.store.errors import StoreBusy
from stateward.store.port import Reader, Tx, TxFunction
from stateward.store.retention import Retention
from stateward.store.sqlite.connections import LOG_BYTES, SqliteSettings, Synchronous
from stateward.store.sqlite.readers import InlineReader, ReaderPool, ReadExecutor, SqliteReader
from stateward.store.sqlite.retention import SqliteRetention
from stateward.store.sqlite.shared_file import FileIdentity
from stateward.store.sqlite.wal import Checkpointer
from stateward.store.sqlite.writer import InlineWriter, WriteExecutor, WriterThread, open_writer_connection
from stateward.store.topics import Topic

TopicListener: TypeAlias = Callable[[Topic], None]


class Listeners:
    """The commit listeners of a store; they are called on the event loop."""

    def __init__(self) -> None:
        self._listeners: list[TopicListener] = []

    def add(self, listener: TopicListener) -> Callable[[], None]:
        """Add a listener; returns the function that removes it."""
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    def notify(self, topics: Topic) -> None:
        """Call all listeners, unless there are no topics."""
        if topics:
            for listener in tuple(self._listeners):
                listener(topics)


T = TypeVar("T")


class SqliteStore:
    """A database file, or with the path `:memory:` a database that lasts until it is closed.

    With `inline` there are no threads: everything runs on the event loop, in a deterministic order. It is for
    simulations, and a database in memory always runs so. An inline store does not detect commits of other processes.
    """

    reader: Reader
    retention: Retention
    serializes_writes = True

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        synchronous: Synchronous = "FULL",
        busy_timeout_s: float = 5.0,
        max_bytes: int | None = None,
        log_bytes: int = LOG_BYTES,
        readers: int = 2,
        inline: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = SqliteSettings(fspath(path), synchronous, busy_timeout_s, max_bytes, log_bytes=log_bytes)
        self._listeners = Listeners()
        files = FileIdentity(self.settings)
        opened = partial(open_writer_connection, self.settings, clock, files)
        self._writer: WriteExecutor
        self._read_executor: ReadExecutor
        if inline or self.settings.in_memory:
            self._writer = InlineWriter(opened, self._listeners.notify)
            self._read_executor = InlineReader(lambda: self._writer.writer_connection.connection)
        else:
            self._writer = WriterThread(opened, self._listeners.notify, Checkpointer(self.settings, files), files)
            self._read_executor = ReaderPool(self.settings, readers, files)
        self.reader = SqliteReader(self._read_executor, clock)
        self.retention = SqliteRetention(self._read_executor, self._writer)

    @property
    def connection(self) -> sqlite3.Connection:
        """The writer connection; for simulations, which check the tables themselves."""
        return self._writer.writer_connection.connection

    async def open(self) -> None:
        await self._writer.start()

    async def close(self) -> None:
        await self._writer.stop()
        await self._read_executor.close()

    async def transact(self, function: TxFunction[T]) -> T:
        return await self._writer.run(function)

    def subscribe(self, listener: Callable[[Topic], None]) -> Callable[[], None]:
        return self._listeners.add(listener)

    async def is_sole_user(self) -> bool:
        lock = self._writer.writer_connection.lock
        if lock is None or lock.is_undisturbed():
            return True

        async def test(_: Tx) -> bool:
            return lock.test_exclusive()

        try:
            return await self.transact(test)
        except StoreBusy:
            return False
