"""Who runs the programs: a thread, or whoever asks, on the spot."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from stateward.store.errors import Unavailable
from stateward.store.port import TxFunction
from stateward.store.sqlite.desk import WriterConnection

T = TypeVar("T")


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
