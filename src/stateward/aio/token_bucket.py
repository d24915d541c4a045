"""A token bucket: so many calls at once, and so many a second for ever."""

from math import inf

TOLERANCE = 1e-6
"""The part of a token that may be missing: rounding errors must not make a caller wait twice."""


class TokenBucket:
    """A budget that refills with time up to `burst`. The caller passes the time in, by a clock of its own."""

    __slots__ = ("_level", "_max_debt", "_updated", "burst", "rate")

    def __init__(self, rate: float, burst: float, now: float, *, max_debt: float = inf) -> None:
        self.rate, self.burst = rate, burst
        self._level, self._updated = burst, now
        self._max_debt = max_debt

    def take(self, now: float) -> float:
        """Take one token and return 0; if there is none, return how many seconds it takes until there is one."""
        delay_s = self.delay_s(now)
        if delay_s == 0.0:
            self._level -= 1.0
        return delay_s

    def overdraw(self, now: float, tokens: float = 1.0) -> None:
        """Take tokens even if there are fewer; the debt, at most `max_debt`, has to refill first."""
        self._refill(now)
        self._level = max(self._level - tokens, -self._max_debt)

    def delay_s(self, now: float, tokens: float = 1.0) -> float:
        """Return how many seconds it takes until there are so many tokens; 0 if there are."""
        self._refill(now)
        missing = tokens - self._level
        return missing / self.rate if missing > TOLERANCE else 0.0

    def missing(self, now: float) -> float:
        """Return how many tokens are missing until the bucket is full."""
        self._refill(now)
        return self.burst - self._level

    def _refill(self, now: float) -> None:
        self._level = min(self.burst, self._level + max(0.0, now - self._updated) * self.rate)
        self._updated = now
