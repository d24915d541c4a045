"""Running programs: several in one durable transaction, each as if it had one of its own.

The price of durability is paid per commit, so whatever is waiting is committed together. A program that fails is undone
alone: the group is then run again with each program between savepoints, and the others are none the wiser.
"""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from stateward.store.errors import Conflict, Full
from stateward.store.port import TxFunction
from stateward.store.sqlite.apply import Numbers
from stateward.store.sqlite.connections import begin
from stateward.store.sqlite.errors import fault
from stateward.store.sqlite.shared_file import FileIdentity
from stateward.store.sqlite.tx import SqliteTx
from stateward.store.topics import NOTHING

ATTEMPTS = 5
"""How often a program is run that finds its rows changed; it sees them as they are, so a second time should do."""

AnyProgram: TypeAlias = TxFunction[Any]


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


class Entangled(Exception):
    """A program failed after it had written something, and there was no savepoint to go back to."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


class Transactions:
    """Runs programs on the connection that writes."""

    def __init__(
        self, connection: sqlite3.Connection, clock: Callable[[], float], patience: float, files: FileIdentity
    ) -> None:
        self._connection = connection
        self._files = files
        self._patience = patience
        self._clock = clock
        self._numbers = Numbers(connection)

    def run(self, programs: Sequence[AnyProgram]) -> list[Outcome]:
        """Run programs and commit them together; returns when that is durable."""
        error: BaseException
        try:
            self._files.require()
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
        """Run programs without savepoints first: few fail, and most that do have not written anything by then."""
        try:
            return self._committed(programs, careful=False)
        except Entangled as entangled:
            if len(programs) == 1 and not isinstance(entangled.outcome.error, Conflict):
                return [entangled.outcome]
        return self._committed(programs, careful=True)

    def _committed(self, programs: Sequence[AnyProgram], *, careful: bool) -> list[Outcome]:
        begin(self._connection, self._patience)
        self._numbers.forget()
        try:
            outcomes = [self._one(program, careful) for program in programs]
            self._numbers.keep()
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        self._files.check()  # after the commit: a file that was replaced meanwhile does not have it
        return outcomes

    def _one(self, program: AnyProgram, careful: bool) -> Outcome:
        outcome = Outcome()
        for _ in range(ATTEMPTS):
            outcome = self._between_savepoints(program) if careful else self._hoping(program)
            if not isinstance(outcome.error, Conflict):
                break
        return outcome

    def _between_savepoints(self, program: AnyProgram) -> Outcome:
        """Run a program such that it can be undone alone. This costs a copy of every page that it changes."""
        self._connection.execute("SAVEPOINT program")
        outcome = self._driven(program)
        if outcome.error is not None:
            self._check(outcome.error)
            self._connection.execute("ROLLBACK TO program")
        self._connection.execute("RELEASE program")
        return outcome

    def _hoping(self, program: AnyProgram) -> Outcome:
        """Run a program that can be undone only if it fails before it writes."""
        before = self._connection.total_changes
        outcome = self._driven(program)
        if outcome.error is not None:
            self._check(outcome.error)
            if self._connection.total_changes != before:
                raise Entangled(outcome)
        return outcome

    def _check(self, error: BaseException) -> None:
        if not self._connection.in_transaction:
            raise Lost(error)

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
