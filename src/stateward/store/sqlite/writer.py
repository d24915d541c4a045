"""The one thread that writes.

Programs are queued from the event loop. The thread takes all that are queued at once and commits them together, so the
busier it gets, the more programs share the price of a commit; nobody is kept waiting for company.
"""

import sqlite3
from asyncio import AbstractEventLoop, Future, get_running_loop
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from sys import getswitchinterval, setswitchinterval
from threading import Thread
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from stateward.store.errors import StoreError, Unavailable
from stateward.store.port import TxFunction
from stateward.store.sqlite.apply import create_trigger_views
from stateward.store.sqlite.connections import SqliteSettings, begin_write, migrate_schema, open_writer
from stateward.store.sqlite.errors import translate_error
from stateward.store.sqlite.shared_file import ExternalChanges, FileIdentity, LockFile
from stateward.store.sqlite.transactions import AnyTxFunction, TransactionRunner, TxOutcome
from stateward.store.sqlite.wal import Checkpointer
from stateward.store.topics import EVERY_TOPIC, NO_TOPICS


class WriterConnection(Struct, frozen=True):
    """Everything that whoever writes has before them; a database in memory has no lock file."""

    connection: sqlite3.Connection
    transactions: TransactionRunner
    lock: LockFile | None

    def close(self) -> None:
        """Close the database, then leave."""
        self.connection.close()
        if self.lock is not None:
            self.lock.close()


def open_writer_connection(
    settings: SqliteSettings, clock: Callable[[], float], files: FileIdentity
) -> WriterConnection:
    """Open a database, bring it to this version's schema, and join its users."""
    connection, lock = open_writer(settings), None
    try:
        begin_write(connection, settings.busy_timeout)
        if not settings.in_memory:
            lock = LockFile(settings.lock_path)
            lock.join()
        migrate_schema(connection)
        connection.execute("UPDATE numbers SET work = work WHERE false")  # a read-only file shows only now
        connection.execute("COMMIT")
        create_trigger_views(connection)
        if lock is not None:
            files.remember()
    except BaseException as error:
        connection.close()
        if lock is not None:
            lock.close()
        raise (translate_error(error) if isinstance(error, sqlite3.Error) else error) from None
    return WriterConnection(connection, TransactionRunner(connection, clock, settings.busy_timeout, files), lock)


T = TypeVar("T")

SWITCH_INTERVAL_S = 0.0005
"""How long a busy event loop may keep the interpreter's lock from us, in seconds; for the whole process.

Python's own five milliseconds are for threads that compute. Ours asks for the lock some twenty times per transaction,
and would wait a tenth of a second in all where the work itself takes a fiftieth.
"""


EMPTY_WAL_TIMEOUT_S = 2.0
"""How many seconds are waited for readers before the log of a replaced database is emptied."""


class QueuedTransaction(Struct, frozen=True):
    """A program and who waits for it."""

    program: AnyTxFunction
    future: Future[Any]


class WriterThread:
    """A thread with a connection of its own, which runs programs in groups."""

    def __init__(
        self,
        open_connection: Callable[[], WriterConnection],
        tell: Callable[[int], None],
        checkpoints: Checkpointer,
        files: FileIdentity,
    ) -> None:
        self._open_connection = open_connection
        self._files = files
        self._tell = tell
        self._checkpoints = checkpoints
        self._jobs: SimpleQueue[QueuedTransaction | None] = SimpleQueue()
        self._open: WriterConnection | None = None
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

    async def run(self, program: TxFunction[T]) -> T:
        if self._open is None:
            raise Unavailable("the store is closed")
        future: Future[T] = self._loop.create_future()
        self._jobs.put(QueuedTransaction(program, future))
        return await future

    async def stop(self) -> None:
        if self._open is not None:
            self._open = None
            self._jobs.put(None)
            await self._loop.run_in_executor(None, self._thread.join)

    def _main(self, ready: Future[WriterConnection]) -> None:
        try:
            opened = self._opened()
        except BaseException as error:
            self._later(_resolve, ready, TxOutcome(error=error))
            return
        self._later(_resolve, ready, TxOutcome(opened))
        try:
            self._work(opened)
        finally:
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
        """Do all that is queued; when there is nothing, look what others have done."""
        assert opened.lock is not None, "only a file has a thread of its own"
        others = ExternalChanges(opened.connection, opened.lock)
        queued: list[QueuedTransaction | None] = []
        was_replaced = False
        while None not in queued:
            queued = self._queued(others.every)
            jobs = [job for job in queued if job is not None and not job.future.cancelled()]
            outcomes = opened.transactions.run([job.program for job in jobs]) if jobs else []
            if not jobs:
                with suppress(StoreError):  # it is told to those who ask next
                    self._files.check()
            is_replaced = self._files.is_replaced  # read once: other threads may find it at any time
            if is_replaced and not was_replaced:
                self._empty_log(opened)
            is_news = others.detect() or is_replaced is not was_replaced
            was_replaced = is_replaced
            topics = EVERY_TOPIC if is_news else NO_TOPICS
            for outcome in outcomes:
                topics |= outcome.topics
            if jobs or topics:
                self._later(self._deliver, jobs, outcomes, topics)
            self._checkpoints.advance(opened.connection)

    def _empty_log(self, opened: WriterConnection) -> None:
        """Bring the log into the file that was opened, when that is not the one that it now stands beside.

        Whoever opens the file that was put there would take the log for its own, and damage it. The file that was
        opened may still be somewhere, and is complete then.
        """
        assert opened.lock is not None
        if self._files.is_only_database_replaced() and opened.lock.is_undisturbed():
            with suppress(sqlite3.Error):
                opened.connection.execute(f"PRAGMA busy_timeout = {int(EMPTY_WAL_TIMEOUT_S * 1000)}").fetchone()
                opened.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def _queued(self, patience: float) -> list[QueuedTransaction | None]:
        queued: list[QueuedTransaction | None] = []
        with suppress(Empty):
            queued.append(self._jobs.get(timeout=patience))
            while True:
                queued.append(self._jobs.get_nowait())
        return queued

    def _deliver(self, jobs: list[QueuedTransaction], outcomes: list[TxOutcome], topics: int) -> None:
        for job, outcome in zip(jobs, outcomes, strict=True):
            _resolve(job.future, outcome)
        self._tell(topics)

    def _later(self, callback: Callable[..., None], *args: object) -> None:
        with suppress(RuntimeError):  # the loop is gone, and so is everybody who waited
            self._loop.call_soon_threadsafe(callback, *args)


def _resolve(future: Future[Any], outcome: TxOutcome) -> None:
    if future.done():  # whoever waited has given up
        return
    if outcome.error is not None:
        future.set_exception(outcome.error)
    else:
        future.set_result(outcome.value)


class WriteExecutor(Protocol):
    """Runs programs one after the other on the one connection that writes."""

    @property
    def writer_connection(self) -> WriterConnection:
        """What it works with; raises `Unavailable` while it is not at work."""

    async def start(self) -> None:
        """Open the database; raises what keeps it from that."""

    async def run(self, program: TxFunction[T]) -> T:
        """Have a program run; returns when it is durable."""

    async def stop(self) -> None:
        """Finish what was begun and close the database."""


class InlineWriter:
    """Runs each program at once and on the event loop: no threads, so everything happens in one order."""

    def __init__(self, open_connection: Callable[[], WriterConnection], tell: Callable[[int], None]) -> None:
        self._open_connection = open_connection
        self._tell = tell
        self._open: WriterConnection | None = None

    @property
    def writer_connection(self) -> WriterConnection:
        if self._open is None:
            raise Unavailable("the store is closed")
        return self._open

    async def start(self) -> None:
        self._open = self._open_connection()

    async def run(self, program: TxFunction[T]) -> T:
        (outcome,) = self.writer_connection.transactions.run([program])
        value: T = outcome.unwrap()
        self._tell(outcome.topics)
        return value

    async def stop(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
