"""Token buckets by name: each fills by itself and is emptied by calls."""

from collections.abc import Callable
from heapq import nlargest

MOST_BUCKETS = 10_000
"""How many buckets are kept; full ones are forgotten first, and they are as good as new."""

LONGEST_DEBT = 60.0
"""After how many seconds at most a bucket that was overdrawn has something again."""


class Buckets:
    """Buckets of one size, by name. A bucket holds the calls of one second, or of several."""

    def __init__(self, rate: float, clock: Callable[[], float], span: float = 1.0) -> None:
        self._rate = rate
        self._clock = clock
        self._span = span
        self._full_at: dict[str, float] = {}  # when a bucket will be full again, had it no more calls

    def wait(self, name: str) -> float:
        """Take a call from a bucket; returns 0, or how many seconds it takes until there is one to be had."""
        late = self.delay(name)
        if late > 0:
            return late
        self.charge(name)
        return 0.0

    def delay(self, name: str) -> float:
        """Return how many seconds it takes until a call can be taken from a bucket."""
        now = self._clock()
        late = max(self._full_at.get(name, now), now) + 1 / self._rate - (now + self._span)
        return late if late > 1e-9 else 0.0

    def charge(self, name: str) -> None:
        """Take a call from a bucket, even from an empty one: what is overdrawn has to fill first."""
        now = self._clock()
        full_at = max(self._full_at.get(name, now), now) + 1 / self._rate
        self._full_at[name] = min(full_at, now + self._span + LONGEST_DEBT)
        if len(self._full_at) > MOST_BUCKETS:
            self._forget(now)

    def _forget(self, now: float) -> None:
        """Keep what is not full; of too many, the emptier half."""
        left = {name: at for name, at in self._full_at.items() if at > now}
        if len(left) > MOST_BUCKETS:
            left = dict(nlargest(MOST_BUCKETS // 2, left.items(), key=lambda one: one[1]))
        self._full_at = left
