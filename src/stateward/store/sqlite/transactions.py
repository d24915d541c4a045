"""Running programs: several in one durable transaction, each as if it had one of its own.

The price of durability is paid per commit, so whatever is waiting is committed together. Each program stands between
savepoints: one that fails is undone alone, and the others are none the wiser.
"""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from stateward.store.errors import Conflict, Full
from stateward.store.port import Program
from stateward.store.sqlite.faults import fault
from stateward.store.sqlite.numbers import Numbers
from stateward.store.sqlite.topics import NOTHING
from stateward.store.sqlite.tx import SqliteTx

ATTEMPTS = 5
"""How often a program is run that finds its rows changed; it sees them as they are, so a second time should do."""

AnyProgram: TypeAlias = Program[Any]


class Outcome(Struct, frozen=True):
    """How a program ended: with a value, or with an error and as if it had never run."""

    value: object = None
    error: BaseException | None = None
    topics: int = NOTHING

    def unwrap(self) -> Any:  # noqa: ANN401 - whatever the program returns
        """Return the value or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


class Lost(Exception):
    """SQLite has given the whole transaction up, the work of all its programs included."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class Transactions:
    """Runs programs on the connection that writes."""

    def __init__(self, connection: sqlite3.Connection, clock: Callable[[], float]) -> None:
        self._connection = connection
        self._clock = clock
        self._numbers = Numbers(connection)

    def run(self, programs: Sequence[AnyProgram]) -> list[Outcome]:
        """Run programs and commit them together; returns when that is durable."""
        error: BaseException
        try:
            return self._together(programs)
        except Lost as lost:
            error = lost.error
        except Exception as raised:
            error = fault(raised) if isinstance(raised, sqlite3.Error) else raised
        if isinstance(error, Full) and len(programs) > 1:
            # There may be room for some of them: let each learn its own fate.
            return [self.run([program])[0] for program in programs]
        return [Outcome(error=error) for _ in programs]

    def _together(self, programs: Sequence[AnyProgram]) -> list[Outcome]:
        self._begin()
        try:
            alone = len(programs) == 1
            outcomes = [self._one(program, alone) for program in programs]
            if self._connection.in_transaction:
                self._numbers.keep()
                self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        return outcomes

    def _one(self, program: AnyProgram, alone: bool) -> Outcome:
        outcome = Outcome()
        for _ in range(ATTEMPTS):
            self._enter(alone)
            outcome = self._driven(program)
            if outcome.error is None:
                self._leave(alone)
                break
            self._undo(outcome.error, alone)
            if not isinstance(outcome.error, Conflict):
                break
        return outcome

    def _begin(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._numbers.forget()

    def _enter(self, alone: bool) -> None:
        """Begin a program. One that is alone needs no savepoint, which would cost a copy of every page it touches."""
        if not alone:
            self._connection.execute("SAVEPOINT program")
        elif not self._connection.in_transaction:
            self._begin()

    def _leave(self, alone: bool) -> None:
        if not alone:
            self._connection.execute("RELEASE program")

    def _undo(self, error: BaseException, alone: bool) -> None:
        if not self._connection.in_transaction:
            raise Lost(error)
        if alone:
            self._connection.execute("ROLLBACK")
        else:
            self._connection.execute("ROLLBACK TO program")
            self._connection.execute("RELEASE program")

    def _driven(self, program: AnyProgram) -> Outcome:
        """Run a program to its end in one go: nothing that it may await ever waits."""
        tx = SqliteTx(self._connection, self._numbers, self._clock())
        try:
            steps = program(tx).__await__()
            next(steps)
            steps.close()
        except StopIteration as end:
            return Outcome(error=tx.spoiled) if tx.spoiled else Outcome(end.value, topics=tx.topics)
        except sqlite3.Error as error:
            return Outcome(error=fault(error))
        except BaseException as error:
            return Outcome(error=error)
        return Outcome(error=RuntimeError("a program may await nothing but its transaction"))
