"""Troubles of work that goes on: whoever waits is told why, once and then at growing distance.

Work at a provider that does not answer is tried again until its deadline, which may be in half an hour. A line for each
attempt would bury the journal. So the second attempt is told, and then the fourth, the eighth, and so on: in the
journal, as the object's error, and to the journal of the whole that waits for it. An object that gets on has no error.
"""

import logging
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from stateward.engine.texts import sanitize_text
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import WORKER
from stateward.store.errors import StoreError
from stateward.store.records import JournalEntry, Object, Operation

FIRST, LONGEST = 5.0, 3_600.0
"""How many seconds pass before the same trouble is told again: at first, and at most."""

MOST = 1_000
"""How many troubles are remembered."""


def is_worth_telling(attempt: int) -> bool:
    """Tell whether an attempt's trouble is to be told: that of the second, and of each power of two from there on."""
    return attempt > 1 and attempt & (attempt - 1) == 0


def note_trouble(uow: UnitOfWork, found: Object, operation: Operation, text: str, parent: Operation | None) -> None:
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


class GrowingIntervals:
    """Remembers when something was told, and tells whether it is time to tell it again."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next: dict[Hashable, tuple[float, float]] = {}  # when each may be told again, and the distance then

    def is_due(self, subject: Hashable) -> bool:
        """Tell whether a subject is to be told now; the next time is then twice as far away."""
        now = self._clock()
        due, distance = self._next.pop(subject, (now, FIRST))
        if now > due + LONGEST:  # that was another trouble
            due, distance = now, FIRST
        is_due = now >= due
        if is_due:
            due, distance = now + distance, min(LONGEST, distance * 2)
        self._next[subject] = due, distance
        if len(self._next) > MOST:
            del self._next[next(iter(self._next))]
        return is_due
