"""How often one token may call: a bucket for each, which fills by itself and is emptied by calls."""

from collections.abc import Callable

MOST_BUCKETS = 10_000
"""How many buckets are kept; full ones are forgotten first, and they are as good as new."""


class Buckets:
    """Buckets of one size, by name. A bucket holds the calls of one second."""

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._clock = clock
        self._full_at: dict[str, float] = {}  # when a bucket will be full again, had it no more calls

    def wait(self, name: str) -> float:
        """Take a call from a bucket; returns 0, or how many seconds it takes until there is one to be had."""
        now = self._clock()
        full_at = max(self._full_at.get(name, now), now) + 1 / self._rate
        late = full_at - (now + 1.0)
        if late > 1e-9:
            return late
        self._full_at[name] = full_at
        if len(self._full_at) > MOST_BUCKETS:
            self._forget(now)
        return 0.0

    def _forget(self, now: float) -> None:
        self._full_at = {name: at for name, at in self._full_at.items() if at > now}
