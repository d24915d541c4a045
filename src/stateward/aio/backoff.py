"""When to try again: exponential back-off with full jitter."""

from collections.abc import Callable, Hashable
from random import Random

INITIAL_DELAY_S = 0.5
MAX_DELAY_S = 60.0

INITIAL_INTERVAL_S, MAX_INTERVAL_S = 5.0, 3_600.0
"""How many seconds pass before the same subject is due again: at first, and at most."""

REMEMBERED_SUBJECTS = 1_000


def backoff_delay(attempt: int, chance: Random, first: float = INITIAL_DELAY_S, longest: float = MAX_DELAY_S) -> float:
    """Return how many seconds to wait after a failed attempt, counted from 1."""
    ceiling = min(longest, first * 2.0 ** min(attempt - 1, 16))
    return ceiling * (0.5 + 0.5 * chance.random())


class GrowingIntervals:
    """Remembers when something was told, and tells whether it is time to tell it again."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next: dict[Hashable, tuple[float, float]] = {}  # when each may be told again, and the distance then

    def is_due(self, subject: Hashable) -> bool:
        """Tell whether a subject is to be told now; the next time is then twice as far away."""
        now = self._clock()
        due, distance = self._next.pop(subject, (now, INITIAL_INTERVAL_S))
        if now > due + MAX_INTERVAL_S:  # that was another trouble
            due, distance = now, INITIAL_INTERVAL_S
        is_due = now >= due
        if is_due:
            due, distance = now + distance, min(MAX_INTERVAL_S, distance * 2)
        self._next[subject] = due, distance
        if len(self._next) > REMEMBERED_SUBJECTS:
            del self._next[next(iter(self._next))]
        return is_due
