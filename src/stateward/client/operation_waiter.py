"""Waiting for the end of operations, one or thousands, without polling each of them all the time.

The journal names the objects with news, and only their operations are read again. Not every end is journaled (hidden
operations that succeed, fenced work), so a few of the other operations are read in turn as well.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

from stateward.client.errors import Unreachable
from stateward.client.output import err
from stateward.errors import StatewardError, count_text
from stateward.schemas.operations import OperationView

if TYPE_CHECKING:
    from stateward.client.api import ApiClient

IN_TURN = 20
"""Operations that are read in each round even without a journal entry."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0

MOST_TOLD = 10
"""How many operations are named that go on after the end of the waiting."""


class TookTooLong(StatewardError):
    """Operations have not ended within the timeout; they go on."""

    exit_code = 1
    operations: list[str]
    seconds: float

    def __str__(self) -> str:
        many = len(self.operations)
        several = f"{count_text(many, 'operation')} have" if many > 1 else "the operation has"
        goes = "they go on" if many > 1 else "it goes on"
        return f"{several} not ended after {self.seconds:g} s; {goes}: {', '.join(self.operations[:5])}"


@contextmanager
def naming_open_operations(ns: str, operations: Mapping[str, str]) -> Iterator[None]:
    """Say how to follow operations (what each does, by id) if Ctrl-C or the loss of the server ends the waiting.

    They are durable: they go on in the server, or as soon as a server runs again.
    """
    try:
        yield
    except (KeyboardInterrupt, Unreachable):
        for op, what in list(operations.items())[:MOST_TOLD]:
            named = f"Operation {op} ({what})" if what else f"Operation {op}"
            _tell(f"{named} goes on; to follow it: stateward logs -f {op} -n {ns}")
        if len(operations) > MOST_TOLD:
            more = f"{len(operations) - MOST_TOLD} more operations go on; to list them: stateward operations -n {ns}"
            _tell(more)
        raise


def _tell(line: str) -> None:
    err().print(line, markup=False, highlight=False, soft_wrap=True)


class OperationWaiter:
    """Iterates over operations of one namespace as they end."""

    def __init__(
        self,
        client: "ApiClient",
        ns: str,
        operations: Sequence[OperationView],
        *,
        timeout: float | None = None,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._ns = client, ns
        self._pending = {operation.id: operation for operation in operations}
        self._timeout, self._pause, self._clock = timeout, pause, clock
        self._until = None if timeout is None else clock() + timeout
        self._after = 0
        self._since = min(operation.created for operation in operations).isoformat() if operations else None

    def __iter__(self) -> Iterator[OperationView]:
        pause = FIRST_PAUSE
        while self._pending:
            due = (self._client.operation(self._ns, op) for op in self._due())
            ended = [operation for operation in due if operation.has_ended]
            for operation in ended:
                del self._pending[operation.id]
                yield operation
            pause = FIRST_PAUSE if ended else min(pause * 1.5, LONGEST_PAUSE)
            if self._pending:
                if self._until is not None and self._timeout is not None and self._clock() >= self._until:
                    raise TookTooLong(list(self._pending), self._timeout)
                self._pause(pause if self._until is None else min(pause, max(self._until - self._clock(), 0.01)))

    def _due(self) -> list[str]:
        """Return the operations to read: those with journal entries, and the next few in turn."""
        named = self._news() if len(self._pending) > IN_TURN else set()
        turn = list(islice(self._pending, IN_TURN))
        for op in turn:
            self._pending[op] = self._pending.pop(op)  # to the end of the queue
        return list(
            dict.fromkeys([*turn, *(op for op, operation in self._pending.items() if {op, operation.object} & named)])
        )

    def _news(self) -> set[str]:
        page = self._client.journal(self._after, ns=self._ns, since=self._since)
        self._after = page.after
        return {line.object for line in page.lines} | {line.op for line in page.lines if line.op is not None}
