"""Connections that only read, and the threads that use them: beside the writer, and never waiting for it.

A question about one row is answered on the spot: to hand it to a thread and the answer back costs several times what
the answer does. Whatever may take longer goes to a thread, and so does a glance when the database makes readers wait.
"""

import sqlite3
from asyncio import get_running_loop, to_thread
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from msgspec.structs import replace

from stateward.store.errors import Busy, Unavailable
from stateward.store.sqlite.connections import open_reader
from stateward.store.sqlite.faults import fault
from stateward.store.sqlite.identity import FileIdentity
from stateward.store.sqlite.settings import Settings

T = TypeVar("T")


class Reading(Protocol):
    """Where questions are asked."""

    async def ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """Answer a question."""

    async def glance(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """Answer a question that is answered from a page or two."""

    async def close(self) -> None:
        """Close the connections."""


class Pool:
    """A few threads, each with a connection while it answers. Nothing stays open between two questions."""

    def __init__(self, settings: Settings, size: int, files: FileIdentity) -> None:
        self._settings = settings
        self._files = files
        self._idle: list[sqlite3.Connection] = []
        self._at_hand: sqlite3.Connection | None = None
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="stateward-reader")
        self._closed = False

    async def ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        self._require_open()
        return await get_running_loop().run_in_executor(self._threads, self._answer, question)

    async def glance(self, question: Callable[[sqlite3.Connection], T]) -> T:
        self._require_open()
        try:
            if self._at_hand is None:
                self._at_hand = self._opened(replace(self._settings, busy_timeout=0.0))
            return answer(self._at_hand, question)
        except Busy:
            return await self.ask(question)

    async def close(self) -> None:
        self._closed = True
        if self._at_hand is not None:
            self._at_hand.close()
        await to_thread(self._threads.shutdown)
        while self._idle:
            self._idle.pop().close()

    def _answer(self, question: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._lent()
        try:
            return answer(connection, question)
        finally:
            self._idle.append(connection)

    def _lent(self) -> sqlite3.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._opened(self._settings)

    def _opened(self, settings: Settings) -> sqlite3.Connection:
        connection = open_reader(settings)
        try:
            self._files.check()  # what has just been opened may be another file
        except BaseException:
            connection.close()
            raise
        return connection

    def _require_open(self) -> None:
        if self._closed:
            raise Unavailable("the store is closed")
        self._files.require()


class InlineReading:
    """Answers on the spot, on the connection that writes; nothing can be under way there."""

    def __init__(self, connection: Callable[[], sqlite3.Connection]) -> None:
        self._connection = connection

    async def ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        return answer(self._connection(), question)

    async def glance(self, question: Callable[[sqlite3.Connection], T]) -> T:
        return answer(self._connection(), question)

    async def close(self) -> None:
        pass


def answer(connection: sqlite3.Connection, question: Callable[[sqlite3.Connection], T]) -> T:
    """Ask, and say what went wrong in the words of the store."""
    try:
        return question(connection)
    except sqlite3.Error as error:
        raise fault(error) from error
