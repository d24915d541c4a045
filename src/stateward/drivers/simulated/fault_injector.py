"""The way into a region: which calls get through, which are turned back, and which come twice."""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random

from stateward.aio.token_bucket import TokenBucket
from stateward.drivers.simulated.faults import Fate, Temper, draw, draw_fate

WAIT = 1.0
"""How long a caller is to wait who was throttled by chance."""


class Gate:
    """What becomes of the calls to one region."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._foretold: deque[Fate] = deque()
        self._late: list[tuple[float, int, Callable[[float], object]]] = []
        self._order = count()
        self._bucket: TokenBucket | None = None

    def foretell(self, *fates: Fate) -> None:
        """Say what is to become of the next calls, one for one; after them it is chance again."""
        self._foretold.extend(fates)

    def fate(self, temper: Temper, now: float) -> tuple[Fate, float]:
        """Say what becomes of a call that comes now, and how long to wait if it is throttled."""
        if self._foretold:
            return self._foretold.popleft(), WAIT
        short = self._short(temper, now)
        return (Fate.THROTTLED, short) if short else (draw_fate(temper, self._chance), WAIT)

    def _short(self, temper: Temper, now: float) -> float:
        """Take the call out of the region's budget; return how long it takes until there is some again."""
        if temper.calls_a_second is None or temper.dead:
            return 0.0
        if self._bucket is None:
            self._bucket = TokenBucket(temper.calls_a_second, temper.burst, now)
        self._bucket.rate, self._bucket.burst = temper.calls_a_second, temper.burst
        return self._bucket.take(now)

    def repeat_later(self, temper: Temper, now: float, deliver: Callable[[float], object]) -> None:
        """Deliver something once more, some time from now."""
        when = now + draw(temper.duplicate_after, self._chance)
        heappush(self._late, (when, next(self._order), deliver))

    def deliver(self, now: float) -> None:
        """Deliver what has been on its way long enough, each at its own moment."""
        while self._late and self._late[0][0] <= now:
            when, _, deliver = heappop(self._late)
            deliver(when)
