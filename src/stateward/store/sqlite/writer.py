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
from stateward.store.sqlite.apply import install
from stateward.store.sqlite.connections import Settings, begin, migrate, open_writer
from stateward.store.sqlite.errors import fault
from stateward.store.sqlite.shared_file import FileIdentity, LockFile, Others
from stateward.store.sqlite.transactions import AnyProgram, Outcome, Transactions
from stateward.store.sqlite.wal import Checkpoints
from stateward.store.topics import ANYTHING, NOTHING


class WriterConnection(Struct, frozen=True):
    """Everything that whoever writes has before them; a database in memory has no lock file."""

    connection: sqlite3.Connection
    transactions: Transactions
    lock: LockFile | None

    def close(self) -> None:
        """Close the database, then leave."""
        self.connection.close()
        if self.lock is not None:
            self.lock.close()


def open_writer_connection(settings: Settings, clock: Callable[[], float], files: FileIdentity) -> WriterConnection:
    """Open a database, bring it to this version's schema, and join its users."""
    connection, lock = open_writer(settings), None
    try:
        begin(connection, settings.busy_timeout)
        if not settings.in_memory:
            lock = LockFile(settings.lock_path)
            lock.enter()
        migrate(connection)
        connection.execute("UPDATE numbers SET work = work WHERE false")  # a read-only file shows only now
        connection.execute("COMMIT")
        install(connection)
        if lock is not None:
            files.remember()
    except BaseException as error:
        connection.close()
        if lock is not None:
            lock.close()
        raise (fault(error) if isinstance(error, sqlite3.Error) else error) from None
    return WriterConnection(connection, Transactions(connection, clock, settings.busy_timeout, files), lock)


T = TypeVar("T")

SWITCH_EVERY = 0.0005
"""How long a busy event loop may keep the interpreter's lock from us, in seconds; for the whole process.

Python's own five milliseconds are for threads that compute. Ours asks for the lock some twenty times per transaction,
and would wait a tenth of a second in all where the work itself takes a fiftieth.
"""


EMPTY_WITHIN = 2.0
"""How many seconds are waited for readers before the log of a replaced database is emptied."""


class Job(Struct, frozen=True):
    """A program and who waits for it."""

    program: AnyProgram
    future: Future[Any]


class Writer:
    """A thread with a connection of its own, which runs programs in groups."""

    def __init__(
        self,
        furnish: Callable[[], WriterConnection],
        tell: Callable[[int], None],
        checkpoints: Checkpoints,
        files: FileIdentity,
    ) -> None:
        self._furnish = furnish
        self._files = files
        self._tell = tell
        self._checkpoints = checkpoints
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._desk: WriterConnection | None = None
        self._loop: AbstractEventLoop
        self._thread: Thread

    @property
    def writer_connection(self) -> WriterConnection:
        if self._desk is None:
            raise Unavailable("the store is closed")
        return self._desk

    async def start(self) -> None:
        setswitchinterval(min(SWITCH_EVERY, getswitchinterval()))
        self._loop = get_running_loop()
        ready: Future[WriterConnection] = self._loop.create_future()
        self._thread = Thread(target=self._main, args=(ready,), name="stateward-writer", daemon=True)
        self._thread.start()
        self._desk = await ready

    async def run(self, program: TxFunction[T]) -> T:
        if self._desk is None:
            raise Unavailable("the store is closed")
        future: Future[T] = self._loop.create_future()
        self._jobs.put(Job(program, future))
        return await future

    async def stop(self) -> None:
        if self._desk is not None:
            self._desk = None
            self._jobs.put(None)
            await self._loop.run_in_executor(None, self._thread.join)

    def _main(self, ready: Future[WriterConnection]) -> None:
        try:
            desk = self._opened()
        except BaseException as error:
            self._later(_settle, ready, Outcome(error=error))
            return
        self._later(_settle, ready, Outcome(desk))
        try:
            self._work(desk)
        finally:
            self._checkpoints.stop()
            desk.close()

    def _opened(self) -> WriterConnection:
        desk = self._furnish()
        try:
            self._checkpoints.start(desk.connection)
        except BaseException:
            desk.close()
            raise
        return desk

    def _work(self, desk: WriterConnection) -> None:
        """Do all that is queued; when there is nothing, look what others have done."""
        assert desk.lock is not None, "only a file has a thread of its own"
        others = Others(desk.connection, desk.lock)
        queued: list[Job | None] = []
        was_replaced = False
        while None not in queued:
            queued = self._queued(others.every)
            jobs = [job for job in queued if job is not None and not job.future.cancelled()]
            outcomes = desk.transactions.run([job.program for job in jobs]) if jobs else []
            if not jobs:
                with suppress(StoreError):  # it is told to those who ask next
                    self._files.check()
            is_replaced = self._files.is_replaced  # read once: other threads may find it at any time
            if is_replaced and not was_replaced:
                self._empty_log(desk)
            is_news = others.have_written() or is_replaced is not was_replaced
            was_replaced = is_replaced
            topics = ANYTHING if is_news else NOTHING
            for outcome in outcomes:
                topics |= outcome.topics
            if jobs or topics:
                self._later(self._deliver, jobs, outcomes, topics)
            self._checkpoints.look(desk.connection)

    def _empty_log(self, desk: WriterConnection) -> None:
        """Bring the log into the file that was opened, when that is not the one that it now stands beside.

        Whoever opens the file that was put there would take the log for its own, and damage it. The file that was
        opened may still be somewhere, and is complete then.
        """
        assert desk.lock is not None
        if self._files.is_only_database_replaced() and desk.lock.undisturbed():
            with suppress(sqlite3.Error):
                desk.connection.execute(f"PRAGMA busy_timeout = {int(EMPTY_WITHIN * 1000)}").fetchone()
                desk.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def _queued(self, patience: float) -> list[Job | None]:
        queued: list[Job | None] = []
        with suppress(Empty):
            queued.append(self._jobs.get(timeout=patience))
            while True:
                queued.append(self._jobs.get_nowait())
        return queued

    def _deliver(self, jobs: list[Job], outcomes: list[Outcome], topics: int) -> None:
        for job, outcome in zip(jobs, outcomes, strict=True):
            _settle(job.future, outcome)
        self._tell(topics)

    def _later(self, callback: Callable[..., None], *args: object) -> None:
        with suppress(RuntimeError):  # the loop is gone, and so is everybody who waited
            self._loop.call_soon_threadsafe(callback, *args)


def _settle(future: Future[Any], outcome: Outcome) -> None:
    if future.done():  # whoever waited has given up
        return
    if outcome.error is not None:
        future.set_exception(outcome.error)
    else:
        future.set_result(outcome.value)


class Writing(Protocol):
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


class InlineWriting:
    """Runs each program at once and on the event loop: no threads, so everything happens in one order."""

    def __init__(self, furnish: Callable[[], WriterConnection], tell: Callable[[int], None]) -> None:
        self._furnish = furnish
        self._tell = tell
        self._desk: WriterConnection | None = None

    @property
    def writer_connection(self) -> WriterConnection:
        if self._desk is None:
            raise Unavailable("the store is closed")
        return self._desk

    async def start(self) -> None:
        self._desk = self._furnish()

    async def run(self, program: TxFunction[T]) -> T:
        (outcome,) = self.writer_connection.transactions.run([program])
        value: T = outcome.unwrap()
        self._tell(outcome.topics)
        return value

    async def stop(self) -> None:
        if self._desk is not None:
            self._desk.close()
            self._desk = None
