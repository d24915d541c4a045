"""When to try again: exponential back-off with full jitter."""

from random import Random

FIRST = 0.5
LONGEST = 60.0


def back_off(attempt: int, chance: Random, first: float = FIRST, longest: float = LONGEST) -> float:
    """Return how many seconds to wait after a failed attempt, counted from 1."""
    ceiling = min(longest, first * 2.0 ** min(attempt - 1, 16))
    return ceiling * (0.5 + 0.5 * chance.random())
