"""Troubles of work that goes on: whoever waits is told why, once and then at growing distance.

Work at a provider that does not answer is tried again until its deadline, which may be in half an hour. A line for each
attempt would bury the journal. So the second attempt is told, and then the fourth, the eighth, and so on: in the
journal, as the object's error, and to the journal of the whole that waits for it. An object that gets on has no error.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from stateward.aio.backoff import GrowingIntervals
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork, sanitize_text
from stateward.lifecycle import WORKER
from stateward.store.errors import StoreError
from stateward.store.records import JournalEntry, Object, Operation


def is_worth_reporting(attempt: int) -> bool:
    """Tell whether an attempt's trouble is to be told: that of the second, and of each power of two from there on."""
    return attempt > 1 and attempt & (attempt - 1) == 0


def journal_trouble(uow: UnitOfWork, found: Object, operation: Operation, text: str, parent: Operation | None) -> None:
    """Journal a trouble, and keep it with the object whose state the operation holds."""
    journal(uow, found, operation.id, WORKER, operation.who, "has trouble", reason=text)
    if found.op == operation.id:
        uow.save_object(found.key, replace(found, error=sanitize_text(text), version=uow.next_version(found.key)))
    if parent is not None:
        reason = sanitize_text(f"{found.id}: {text}")
        line = JournalEntry(
            parent.ns, parent.object, parent.kind, parent.id, uow.now, WORKER, "", "waits", None, None, reason
        )
        uow.append_journal(line)


class FaultIsolation:
    """Keeps an error with one of many objects from the others; it is logged at growing distance.

    An error of the store concerns all of them, and is raised.
    """

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._distances = log, GrowingIntervals(clock)

    @contextmanager
    def isolate(self, subject: str) -> Iterator[None]:
        """Do something with one object; an error ends only that."""
        try:
            yield
        except StoreError:
            raise
        except Exception:
            if self._distances.is_due(subject):
                self._log.exception("%s has failed, and is left for later", subject)
