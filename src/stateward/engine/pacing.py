"""When to try again: exponential back-off with full jitter."""

from random import Random

INITIAL_DELAY_S = 0.5
MAX_DELAY_S = 60.0


def backoff_delay(attempt: int, chance: Random, first: float = INITIAL_DELAY_S, longest: float = MAX_DELAY_S) -> float:
    """Return how many seconds to wait after a failed attempt, counted from 1."""
    ceiling = min(longest, first * 2.0 ** min(attempt - 1, 16))
    return ceiling * (0.5 + 0.5 * chance.random())
