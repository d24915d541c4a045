"""The way into a region: which calls get through, which are turned back, and which come twice."""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random

from stateward.aio.token_bucket import TokenBucket
from stateward.drivers.simulated.faults import CallFate, FaultProfile, draw_fate, draw_seconds

DEFAULT_RETRY_AFTER_S = 1.0
"""How long a caller is to wait who was throttled by chance."""


class FaultInjector:
    """What becomes of the calls to one region."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._scripted: deque[CallFate] = deque()
        self._duplicates: list[tuple[float, int, Callable[[float], object]]] = []
        self._order = count()
        self._bucket: TokenBucket | None = None

    def script_next(self, *fates: CallFate) -> None:
        """Say what is to become of the next calls, one for one; after them it is chance again."""
        self._scripted.extend(fates)

    def next_fate(self, profile: FaultProfile, now: float) -> tuple[CallFate, float]:
        """Say what becomes of a call that comes now, and how long to wait if it is throttled."""
        if self._scripted:
            return self._scripted.popleft(), DEFAULT_RETRY_AFTER_S
        short = self._take_from_budget(profile, now)
        return (CallFate.THROTTLED, short) if short else (draw_fate(profile, self._chance), DEFAULT_RETRY_AFTER_S)

    def _take_from_budget(self, profile: FaultProfile, now: float) -> float:
        """Take the call out of the region's budget; return how long it takes until there is some again."""
        if profile.calls_a_second is None or profile.dead:
            return 0.0
        if self._bucket is None:
            self._bucket = TokenBucket(profile.calls_a_second, profile.burst, now)
        self._bucket.rate, self._bucket.burst = profile.calls_a_second, profile.burst
        return self._bucket.take(now)

    def schedule_duplicate(self, profile: FaultProfile, now: float, deliver: Callable[[float], object]) -> None:
        """Deliver something once more, some time from now."""
        when = now + draw_seconds(profile.duplicate_after, self._chance)
        heappush(self._duplicates, (when, next(self._order), deliver))

    def deliver_due(self, now: float) -> None:
        """Deliver what has been on its way long enough, each at its own moment."""
        while self._duplicates and self._duplicates[0][0] <= now:
            when, _, deliver = heappop(self._duplicates)
            deliver(when)
