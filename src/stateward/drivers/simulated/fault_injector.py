"""The fault injector of a region: the fate of each call, and duplicates that arrive later."""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random

from stateward.aio.token_bucket import TokenBucket
from stateward.drivers.simulated.faults import CallFate, FaultProfile, draw_fate, draw_seconds

DEFAULT_RETRY_AFTER_S = 1.0
"""The retry-after of a call that was throttled at random."""


class FaultInjector:
    """Decides the fate of the calls to one region."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._scripted: deque[CallFate] = deque()
        self._duplicates: list[tuple[float, int, Callable[[float], object]]] = []
        self._order = count()
        self._bucket: TokenBucket | None = None

    def script_next(self, *fates: CallFate) -> None:
        """Set the fates of the next calls; later calls are random again."""
        self._scripted.extend(fates)

    def next_fate(self, profile: FaultProfile, now: float) -> tuple[CallFate, float]:
        """Return the fate of a call that arrives now, and the retry-after if it is throttled."""
        if self._scripted:
            return self._scripted.popleft(), DEFAULT_RETRY_AFTER_S
        short = self._take_from_budget(profile, now)
        return (CallFate.THROTTLED, short) if short else (draw_fate(profile, self._chance), DEFAULT_RETRY_AFTER_S)

    def _take_from_budget(self, profile: FaultProfile, now: float) -> float:
        """Take the call from the region's budget; return how long to wait if there is none left."""
        if profile.calls_a_second is None or profile.dead:
            return 0.0
        if self._bucket is None:
            self._bucket = TokenBucket(profile.calls_a_second, profile.burst, now)
        self._bucket.rate, self._bucket.burst = profile.calls_a_second, profile.burst
        return self._bucket.take(now)

    def schedule_duplicate(self, profile: FaultProfile, now: float, deliver: Callable[[float], object]) -> None:
        """Deliver a call once more, later."""
        when = now + draw_seconds(profile.duplicate_after, self._chance)
        heappush(self._duplicates, (when, next(self._order), deliver))

    def deliver_due(self, now: float) -> None:
        """Deliver the duplicates that are due, each at its own time."""
        while self._duplicates and self._duplicates[0][0] <= now:
            when, _, deliver = heappop(self._duplicates)
            deliver(when)
