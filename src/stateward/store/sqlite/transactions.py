"""Group commit: several transaction functions in one durable transaction, each isolated from the failures of others.

Durability costs one sync per commit, so all waiting functions are committed together. If one fails after it has
written, the group runs again with a savepoint around each function, and only the failed one is rolled back.
"""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from stateward.store.errors import StoreFull, WriteConflict
from stateward.store.port import TxFunction
from stateward.store.sqlite.apply import BulkWriter, Sequences
from stateward.store.sqlite.connections import begin_write
from stateward.store.sqlite.errors import translate_error
from stateward.store.sqlite.shared_file import FileIdentity
from stateward.store.sqlite.tx import SqliteTx
from stateward.store.topics import NO_TOPICS, Topic

MAX_ATTEMPTS = 5
"""The attempts of a function that raises `WriteConflict`. It reads current rows, so the second one should succeed."""

AnyTxFunction: TypeAlias = TxFunction[Any]


class TxOutcome(Struct, frozen=True):
    """The result of a transaction function: a value, or an error and no changes."""

    value: object = None
    error: BaseException | None = None
    topics: Topic = NO_TOPICS

    def unwrap(self) -> Any:  # noqa: ANN401 - whatever the function returns
        """Return the value or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


class TransactionLost(Exception):
    """SQLite has rolled the whole transaction back, with the changes of all functions."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class PartlyWritten(Exception):
    """A function failed after a write, without a savepoint to roll back to."""

    def __init__(self, outcome: TxOutcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


class TransactionRunner:
    """Runs transaction functions on the writer connection."""

    def __init__(
        self, connection: sqlite3.Connection, clock: Callable[[], float], busy_timeout_s: float, files: FileIdentity
    ) -> None:
        self._connection = connection
        self._files = files
        self._busy_timeout_s = busy_timeout_s
        self._clock = clock
        self._bulk_writer = BulkWriter(connection)
        self._sequences = Sequences(connection)

    def run(self, functions: Sequence[AnyTxFunction]) -> list[TxOutcome]:
        """Run functions and commit them together; returns after the commit is durable."""
        error: BaseException
        try:
            self._files.require()
            try:  # without savepoints first: few functions fail, and most of those before their first write
                return self._run_and_commit(functions, savepoints=False)
            except PartlyWritten as entangled:
                if len(functions) == 1 and not isinstance(entangled.outcome.error, WriteConflict):
                    return [entangled.outcome]
            return self._run_and_commit(functions, savepoints=True)
        except TransactionLost as lost:
            error = lost.error
        except Exception as raised:
            error = translate_error(raised) if isinstance(raised, sqlite3.Error) else raised
        if isinstance(error, StoreFull) and len(functions) > 1:
            # Some may fit: run each in a transaction of its own.
            return [self.run([function])[0] for function in functions]
        return [TxOutcome(error=error) for _ in functions]

    def _run_and_commit(self, functions: Sequence[AnyTxFunction], *, savepoints: bool) -> list[TxOutcome]:
        begin_write(self._connection, self._busy_timeout_s)
        self._sequences.reset()
        try:
            outcomes = [self._run_one(function, savepoints) for function in functions]
            self._sequences.save()
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        self._files.check()  # after the commit: a replaced file does not contain it
        return outcomes

    def _run_one(self, function: AnyTxFunction, savepoints: bool) -> TxOutcome:
        outcome = TxOutcome()
        for _ in range(MAX_ATTEMPTS):
            outcome = self._run_in_savepoint(function) if savepoints else self._run_without_savepoint(function)
            if not isinstance(outcome.error, WriteConflict):
                break
        return outcome

    def _run_in_savepoint(self, function: AnyTxFunction) -> TxOutcome:
        """Run a function in a savepoint, so that it can be rolled back alone; copies every page that it changes."""
        self._connection.execute("SAVEPOINT program")
        outcome = self._drive(function)
        if outcome.error is not None:
            self._check(outcome.error)
            self._connection.execute("ROLLBACK TO program")
        self._connection.execute("RELEASE program")
        return outcome

    def _run_without_savepoint(self, function: AnyTxFunction) -> TxOutcome:
        """Run a function without a savepoint; if it fails after a write, raise `PartlyWritten`."""
        before = self._connection.total_changes
        outcome = self._drive(function)
        if outcome.error is not None:
            self._check(outcome.error)
            if self._connection.total_changes != before:
                raise PartlyWritten(outcome)
        return outcome

    def _check(self, error: BaseException) -> None:
        if not self._connection.in_transaction:
            raise TransactionLost(error)

    def _drive(self, function: AnyTxFunction) -> TxOutcome:
        """Run a function to its end in one step: the methods of its transaction never suspend."""
        tx = SqliteTx(self._connection, self._bulk_writer, self._sequences, self._clock())
        try:
            steps = function(tx).__await__()
            next(steps)
            steps.close()
        except StopIteration as end:
            return TxOutcome(error=tx.failure) if tx.failure else TxOutcome(end.value, topics=tx.topics)
        except sqlite3.Error as error:
            return TxOutcome(error=translate_error(error))
        except BaseException as error:
            return TxOutcome(error=error)
        return TxOutcome(error=RuntimeError("a transaction function must await nothing but methods of its transaction"))
