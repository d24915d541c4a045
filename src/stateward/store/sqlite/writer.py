"""The writer of a database: a thread with the writer connection, or the event loop itself.

Transaction functions are queued from the event loop. The thread takes all that are queued and commits them together
(group commit), so the cost of a commit is shared by more functions under load, and none waits for another to arrive.
"""

import logging
import sqlite3
import time
from asyncio import AbstractEventLoop, Future, get_running_loop
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from sys import getswitchinterval, setswitchinterval
from threading import Thread
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from stateward.aio.backoff import GrowingIntervals
from stateward.store.errors import StoreError, Unavailable
from stateward.store.port import TxFunction
from stateward.store.sqlite.apply import create_trigger_views
from stateward.store.sqlite.connections import SqliteSettings, begin_write, migrate_schema, open_writer
from stateward.store.sqlite.errors import translate_error
from stateward.store.sqlite.shared_file import ExternalChanges, FileIdentity, LockFile
from stateward.store.sqlite.transactions import AnyTxFunction, TransactionRunner, TxOutcome
from stateward.store.sqlite.wal import Checkpointer
from stateward.store.topics import ALL_TOPICS, NO_TOPICS, Topic

log = logging.getLogger("stateward.store")


class WriterConnection(Struct, frozen=True):
    """The writer connection, its transaction runner, and the lock file (None for a database in memory)."""

    connection: sqlite3.Connection
    transactions: TransactionRunner
    lock: LockFile | None

    def close(self) -> None:
        """Close the database, then release the lock file."""
        self.connection.close()
        if self.lock is not None:
            self.lock.close()


def open_writer_connection(
    settings: SqliteSettings, clock: Callable[[], float], files: FileIdentity
) -> WriterConnection:
    """Open a database, migrate its schema, and register as a user of the file."""
    connection, lock = open_writer(settings), None
    try:
        begin_write(connection, settings.busy_timeout_s)
        if not settings.in_memory:
            lock = LockFile(settings.lock_path, settings.busy_timeout_s)
            lock.join()
        migrate_schema(connection)
        connection.execute("UPDATE numbers SET work = work WHERE false")  # fails on a read-only file
        connection.execute("COMMIT")
        create_trigger_views(connection)
        if lock is not None:
            files.remember()
    except BaseException as error:
        connection.close()
        if lock is not None:
            lock.close()
        raise (translate_error(error) if isinstance(error, sqlite3.Error) else error) from None
    return WriterConnection(connection, TransactionRunner(connection, clock, settings.busy_timeout_s, files), lock)


T = TypeVar("T")

SWITCH_INTERVAL_S = 0.0005
"""The switch interval of the interpreter: how long a busy event loop may keep the GIL from the writer thread.

The default of 5 ms suits threads that compute. The writer thread takes the GIL about twenty times per transaction, so
it would wait 100 ms for work of 2 ms.
"""


EMPTY_WAL_TIMEOUT_S = 2.0
"""How long to wait for readers before the WAL of a replaced database is emptied."""


class QueuedTransaction(Struct, frozen=True):
    """A transaction function and the future of its caller."""

    function: AnyTxFunction
    future: Future[Any]


class WriterThread:
    """A thread with its own connection, which runs queued transaction functions in groups."""

    def __init__(
        self,
        open_connection: Callable[[], WriterConnection],
        notify: Callable[[Topic], None],
        checkpoints: Checkpointer,
        files: FileIdentity,
    ) -> None:
        self._open_connection = open_connection
        self._files = files
        self._notify = notify
        self._checkpoints = checkpoints
        self._queue: SimpleQueue[QueuedTransaction | None] = SimpleQueue()
        self._open: WriterConnection | None = None
        self._reports = GrowingIntervals(time.monotonic)
        self._loop: AbstractEventLoop
        self._thread: Thread

    @property
    def writer_connection(self) -> WriterConnection:
        if self._open is None:
            raise Unavailable("the store is closed")
        return self._open

    async def start(self) -> None:
        setswitchinterval(min(SWITCH_INTERVAL_S, getswitchinterval()))
        self._loop = get_running_loop()
        ready: Future[WriterConnection] = self._loop.create_future()
        self._thread = Thread(target=self._main, args=(ready,), name="stateward-writer", daemon=True)
        self._thread.start()
        self._open = await ready

    async def run(self, function: TxFunction[T]) -> T:
        if self._open is None:
            raise Unavailable("the store is closed")
        future: Future[T] = self._loop.create_future()
        self._queue.put(QueuedTransaction(function, future))
        return await future

    async def stop(self) -> None:
        if self._open is not None:
            self._open = None
            self._queue.put(None)
            await self._loop.run_in_executor(None, self._thread.join)

    def _main(self, ready: Future[WriterConnection]) -> None:
        try:
            opened = self._opened()
        except BaseException as error:
            self._call_soon(_resolve, ready, TxOutcome(error=error))
            return
        self._call_soon(_resolve, ready, TxOutcome(opened))
        try:
            self._work(opened)
        except Exception:
            log.exception("the writer of the database has ended; restart this process")
        finally:
            self._call_soon(self._refuse_writes)
            self._checkpoints.stop()
            opened.close()

    def _opened(self) -> WriterConnection:
        opened = self._open_connection()
        try:
            self._checkpoints.start(opened.connection)
        except BaseException:
            opened.close()
            raise
        return opened

    def _work(self, opened: WriterConnection) -> None:
        """Run the queued functions; when idle, detect commits of other processes."""
        assert opened.lock is not None, "only a file has a thread of its own"
        external = ExternalChanges(opened.connection, opened.lock)
        queued: list[QueuedTransaction | None] = []
        was_replaced = False
        while None not in queued:
            queued = self._queued(external.interval_s)
            items = [item for item in queued if item is not None and not item.future.cancelled()]
            outcomes = opened.transactions.run([item.function for item in items]) if items else []
            if not items:
                with suppress(StoreError):  # the next transaction raises it
                    self._files.check()
            is_replaced = self._files.is_replaced  # read once: another thread may set it at any time
            is_changed = is_replaced is not was_replaced
            with self._surviving("check its files"):
                if is_replaced and not was_replaced:
                    self._empty_log(opened)
                is_changed |= external.detect()
            was_replaced = is_replaced
            topics = ALL_TOPICS if is_changed else NO_TOPICS
            for outcome in outcomes:
                topics |= outcome.topics
            if items or topics:
                self._call_soon(self._deliver, items, outcomes, topics)
            with self._surviving("checkpoint its WAL"):
                self._checkpoints.advance(opened.connection)

    @contextmanager
    def _surviving(self, task: str) -> Iterator[None]:
        """Log an error at growing intervals, and continue: without this thread, nothing could be written any more."""
        try:
            yield
        except Exception as error:
            if self._reports.is_due((task, type(error))):
                log.exception("the writer of the database could not %s; it tries again", task)

    def _refuse_writes(self) -> None:
        """Refuse the queued functions, and all later ones: the thread has ended."""
        self._open = None
        for item in self._queued(0):
            if item is not None:
                _resolve(item.future, TxOutcome(error=Unavailable("the writer of the database has ended")))

    def _empty_log(self, opened: WriterConnection) -> None:
        """Checkpoint the WAL into the opened file, after another file was put at its path.

        A process that opens the new file would apply this WAL to it and damage it. The opened file may still exist
        elsewhere, and is complete then.
        """
        assert opened.lock is not None
        if self._files.is_only_database_replaced() and opened.lock.is_undisturbed():
            with suppress(sqlite3.Error):
                opened.connection.execute(f"PRAGMA busy_timeout = {int(EMPTY_WAL_TIMEOUT_S * 1000)}").fetchone()
                opened.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def _queued(self, timeout_s: float) -> list[QueuedTransaction | None]:
        queued: list[QueuedTransaction | None] = []
        with suppress(Empty):
            queued.append(self._queue.get(timeout=timeout_s))
            while True:
                queued.append(self._queue.get_nowait())
        return queued

    def _deliver(self, items: list[QueuedTransaction], outcomes: list[TxOutcome], topics: Topic) -> None:
        for item, outcome in zip(items, outcomes, strict=True):
            _resolve(item.future, outcome)
        self._notify(topics)

    def _call_soon(self, callback: Callable[..., None], *args: object) -> None:
        with suppress(RuntimeError):  # the loop is closed, and no caller waits
            self._loop.call_soon_threadsafe(callback, *args)


def _resolve(future: Future[Any], outcome: TxOutcome) -> None:
    if future.done():  # the caller was cancelled
        return
    if outcome.error is not None:
        future.set_exception(outcome.error)
    else:
        future.set_result(outcome.value)


class WriteExecutor(Protocol):
    """Runs transaction functions one after the other on the writer connection."""

    @property
    def writer_connection(self) -> WriterConnection:
        """The writer connection; raises `Unavailable` while the store is not open."""

    async def start(self) -> None:
        """Open the database; raises the error that prevents it."""

    async def run(self, function: TxFunction[T]) -> T:
        """Run a transaction function; returns after its commit is durable."""

    async def stop(self) -> None:
        """Finish queued functions and close the database."""


class InlineWriter:
    """Runs each function at once on the event loop, without threads, so that the order is deterministic."""

    def __init__(self, open_connection: Callable[[], WriterConnection], notify: Callable[[Topic], None]) -> None:
        self._open_connection = open_connection
        self._notify = notify
        self._open: WriterConnection | None = None

    @property
    def writer_connection(self) -> WriterConnection:
        if self._open is None:
            raise Unavailable("the store is closed")
        return self._open

    async def start(self) -> None:
        self._open = self._open_connection()

    async def run(self, function: TxFunction[T]) -> T:
        (outcome,) = self.writer_connection.transactions.run([function])
        value: T = outcome.unwrap()
        self._notify(outcome.topics)
        return value

    async def stop(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
