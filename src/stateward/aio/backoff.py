"""Delays before another attempt, and intervals before another report of the same subject."""

from collections.abc import Callable, Hashable
from random import Random

INITIAL_DELAY_S = 0.5
MAX_DELAY_S = 60.0

INITIAL_INTERVAL_S, MAX_INTERVAL_S = 5.0, 3_600.0
"""How many seconds pass before the same subject is due again: at first, and at most."""

REMEMBERED_SUBJECTS = 1_000


def backoff_delay(attempt: int, chance: Random, first: float = INITIAL_DELAY_S, longest: float = MAX_DELAY_S) -> float:
    """Return the seconds to wait after a failed attempt, counted from 1: exponential back-off with jitter."""
    ceiling = min(longest, first * 2.0 ** min(attempt - 1, 16))
    return ceiling * (0.5 + 0.5 * chance.random())


class GrowingIntervals:
    """Says whether a subject is due to be reported again; its interval doubles each time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next: dict[Hashable, tuple[float, float]] = {}  # when each is due, and its interval then

    def is_due(self, subject: Hashable) -> bool:
        """Return whether a subject is due now; its next interval is then twice as long."""
        now = self._clock()
        due, interval_s = self._next.pop(subject, (now, INITIAL_INTERVAL_S))
        if now > due + MAX_INTERVAL_S:  # it has not come up for long: start anew
            due, interval_s = now, INITIAL_INTERVAL_S
        is_due = now >= due
        if is_due:
            due, interval_s = now + interval_s, min(MAX_INTERVAL_S, interval_s * 2)
        self._next[subject] = due, interval_s
        if len(self._next) > REMEMBERED_SUBJECTS:
            del self._next[next(iter(self._next))]
        return is_due
