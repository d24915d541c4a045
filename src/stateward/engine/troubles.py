"""Troubles: errors of operations that are retried, recorded at growing intervals.

An operation at a provider that does not answer is retried until its deadline, maybe for half an hour. An entry for each
attempt would flood the journal. So the error of the second attempt is recorded, then of the fourth, the eighth, and so
on: in the journal, as the object's error, and in the journal of the parent operation's object.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from stateward.aio.backoff import GrowingIntervals
from stateward.engine.stored_texts import sanitize_text
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import WORKER
from stateward.store.errors import StoreError
from stateward.store.records import JournalEntry, Object, Operation


def is_worth_reporting(attempt: int) -> bool:
    """Return whether an attempt's error is recorded: that of the second, and of each further power of two."""
    return attempt > 1 and attempt & (attempt - 1) == 0


def journal_trouble(uow: UnitOfWork, record: Object, operation: Operation, text: str, parent: Operation | None) -> None:
    """Journal an error of an operation that goes on, and set it as the error of the object that the operation holds."""
    journal(uow, record, operation.id, WORKER, operation.who, "has trouble", reason=text)
    if record.op == operation.id:
        uow.save_object(record.key, replace(record, error=sanitize_text(text), version=uow.next_version(record.key)))
    if parent is not None:
        reason = sanitize_text(f"{record.id}: {text}")
        entry = JournalEntry(
            parent.ns, parent.object, parent.kind, parent.id, uow.now, WORKER, "", "waits", None, None, reason
        )
        uow.append_journal(entry)


class FaultIsolation:
    """Keeps the error of one object from affecting the others of a round, and logs it at growing intervals.

    An error of the store concerns all objects, and is raised.
    """

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._intervals = log, GrowingIntervals(clock)

    @contextmanager
    def isolate(self, subject: str) -> Iterator[None]:
        """Run the body for one object; an error ends only the body."""
        try:
            yield
        except StoreError:
            raise
        except Exception:
            if self._intervals.is_due(subject):
                self._log.exception("%s has failed; it is tried again in the next round", subject)
