"""Running programs: several in one durable transaction, each as if it had one of its own.

The price of durability is paid per commit, so whatever is waiting is committed together. A program that fails is undone
alone: the group is then run again with each program between savepoints, and the others are none the wiser.
"""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from stateward.store.errors import StoreFull, WriteConflict
from stateward.store.port import TxFunction
from stateward.store.sqlite.apply import Sequences
from stateward.store.sqlite.connections import begin_write
from stateward.store.sqlite.errors import translate_error
from stateward.store.sqlite.shared_file import FileIdentity
from stateward.store.sqlite.tx import SqliteTx
from stateward.store.topics import NO_TOPICS

MAX_ATTEMPTS = 5
"""How often a program is run that finds its rows changed; it sees them as they are, so a second time should do."""

AnyTxFunction: TypeAlias = TxFunction[Any]


class TxOutcome(Struct, frozen=True):
    """How a program ended: with a value, or with an error and as if it had never run."""

    value: object = None
    error: BaseException | None = None
    topics: int = NO_TOPICS

    def unwrap(self) -> Any:  # noqa: ANN401 - whatever the program returns
        """Return the value or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


class TransactionLost(Exception):
    """SQLite has given the whole transaction up, the work of all its programs included."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class PartlyWritten(Exception):
    """A program failed after it had written something, and there was no savepoint to go back to."""

    def __init__(self, outcome: TxOutcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


class TransactionRunner:
    """Runs programs on the connection that writes."""

    def __init__(
        self, connection: sqlite3.Connection, clock: Callable[[], float], patience: float, files: FileIdentity
    ) -> None:
        self._connection = connection
        self._files = files
        self._patience = patience
        self._clock = clock
        self._sequences = Sequences(connection)

    def run(self, programs: Sequence[AnyTxFunction]) -> list[TxOutcome]:
        """Run programs and commit them together; returns when that is durable."""
        error: BaseException
        try:
            self._files.require()
            return self._run_together(programs)
        except TransactionLost as lost:
            error = lost.error
        except Exception as raised:
            error = translate_error(raised) if isinstance(raised, sqlite3.Error) else raised
        if isinstance(error, StoreFull) and len(programs) > 1:
            # There may be room for some of them: let each learn its own fate.
            return [self.run([program])[0] for program in programs]
        return [TxOutcome(error=error) for _ in programs]

    def _run_together(self, programs: Sequence[AnyTxFunction]) -> list[TxOutcome]:
        """Run programs without savepoints first: few fail, and most that do have not written anything by then."""
        try:
            return self._run_and_commit(programs, careful=False)
        except PartlyWritten as entangled:
            if len(programs) == 1 and not isinstance(entangled.outcome.error, WriteConflict):
                return [entangled.outcome]
        return self._run_and_commit(programs, careful=True)

    def _run_and_commit(self, programs: Sequence[AnyTxFunction], *, careful: bool) -> list[TxOutcome]:
        begin_write(self._connection, self._patience)
        self._sequences.reset()
        try:
            outcomes = [self._run_one(program, careful) for program in programs]
            self._sequences.save()
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        self._files.check()  # after the commit: a file that was replaced meanwhile does not have it
        return outcomes

    def _run_one(self, program: AnyTxFunction, careful: bool) -> TxOutcome:
        outcome = TxOutcome()
        for _ in range(MAX_ATTEMPTS):
            outcome = self._run_in_savepoint(program) if careful else self._run_without_savepoint(program)
            if not isinstance(outcome.error, WriteConflict):
                break
        return outcome

    def _run_in_savepoint(self, program: AnyTxFunction) -> TxOutcome:
        """Run a program such that it can be undone alone. This costs a copy of every page that it changes."""
        self._connection.execute("SAVEPOINT program")
        outcome = self._drive(program)
        if outcome.error is not None:
            self._check(outcome.error)
            self._connection.execute("ROLLBACK TO program")
        self._connection.execute("RELEASE program")
        return outcome

    def _run_without_savepoint(self, program: AnyTxFunction) -> TxOutcome:
        """Run a program that can be undone only if it fails before it writes."""
        before = self._connection.total_changes
        outcome = self._drive(program)
        if outcome.error is not None:
            self._check(outcome.error)
            if self._connection.total_changes != before:
                raise PartlyWritten(outcome)
        return outcome

    def _check(self, error: BaseException) -> None:
        if not self._connection.in_transaction:
            raise TransactionLost(error)

    def _drive(self, program: AnyTxFunction) -> TxOutcome:
        """Run a program to its end in one go: nothing that it may await ever waits."""
        tx = SqliteTx(self._connection, self._sequences, self._clock())
        try:
            steps = program(tx).__await__()
            next(steps)
            steps.close()
        except StopIteration as end:
            return TxOutcome(error=tx.failure) if tx.failure else TxOutcome(end.value, topics=tx.topics)
        except sqlite3.Error as error:
            return TxOutcome(error=translate_error(error))
        except BaseException as error:
            return TxOutcome(error=error)
        return TxOutcome(error=RuntimeError("a program may await nothing but its transaction"))
