"""The rate limiter: a token bucket for each key, for limits on requests and on wrong tokens."""

from collections.abc import Callable
from heapq import nlargest

from stateward.aio.token_bucket import TokenBucket

MAX_KEYS = 10_000
"""How many buckets are kept; full ones are dropped first, because they equal new ones."""

MAX_DEBT_S = 60.0
"""How many seconds at most an overdrawn bucket takes until it has tokens again."""


class RateLimiter:
    """Buckets of one size, by name. A bucket holds the calls of `span` seconds."""

    def __init__(self, rate: float, clock: Callable[[], float], span: float = 1.0) -> None:
        self._rate = rate
        self._clock = clock
        self._span = span
        self._buckets: dict[str, TokenBucket] = {}

    def take(self, name: str) -> float:
        """Take a call from a bucket and return 0; if there is none, return how many seconds it takes until there is."""
        late = self.delay_s(name)
        if late > 0:
            return late
        self.overdraw(name)
        return 0.0

    def delay_s(self, name: str) -> float:
        """Return how many seconds it takes until a call can be taken from a bucket."""
        now = self._clock()
        return (self._buckets.get(name) or self._new(now)).delay_s(now)

    def overdraw(self, name: str) -> None:
        """Take a call from a bucket, even from an empty one: the debt has to refill first."""
        now = self._clock()
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = self._new(now)
        bucket.overdraw(now)
        if len(self._buckets) > MAX_KEYS:
            self._forget(now)

    def _new(self, now: float) -> TokenBucket:
        return TokenBucket(self._rate, self._rate * self._span, now, max_debt=self._rate * MAX_DEBT_S)

    def _forget(self, now: float) -> None:
        """Keep the buckets that are not full; of too many, the emptier half."""
        missing = {name: missing for name, bucket in self._buckets.items() if (missing := bucket.missing(now)) > 0}
        if len(missing) > MAX_KEYS:
            missing = dict(nlargest(MAX_KEYS // 2, missing.items(), key=lambda entry: entry[1]))
        self._buckets = {name: self._buckets[name] for name in missing}
