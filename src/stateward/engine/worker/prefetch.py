"""Spares: what a worker holds ready for a lane that is full, to begin it the moment that something there has ended.

A place in a lane is free when the end of what ran there is committed, and would be filled by a claim after that: two
commits during which it stands empty. So where work is short, the worker that runs it holds some of what comes next.
A spare does not run, and does not count against the limits. When the worker is done with something in the lane it
begins a spare in its place at once, and tells so in the report of that end: the one leaves and the other comes in one
transaction, so never more of them run than before. Whoever finds a spare that was left behind looks first, as with
everything that was owned.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from stateward.store.records import Claim, Key, WorkItem

PREFETCH_WINDOW_S = 0.2
"""For how many seconds a worker holds spares: with longer work, a claim's time is nothing, and others may be sooner."""

PREFETCH_STALE_S = 5.0
"""After how many times that long a spare is given back: what is known about it may have become old."""

LANE_TIME_SLICE_S = 5.0
"""How many seconds a lane may stay active while others of its group wait for a place."""

SHORTEST_TURN, TURNS = 0.25, 5.0
"""How many seconds, and how many times the length of its work, a lane is active at least before others have a turn."""

MOST_LANES = 10_000
"""Of how many lanes it is remembered how long their work takes."""


class PrefetchPlan(Struct, frozen=True):
    """How many more spares a worker wants of each lane, and how many seconds a turn of each of its lanes lasts."""

    wanted: Mapping[str, int]
    turns: Mapping[str, float]


NO_PREFETCH = PrefetchPlan({}, {})
"""That of a worker which has seen no work yet."""


class PrefetchedClaim(Struct, frozen=True):
    """A spare, the store's time when it was claimed, and when that was by our own clock."""

    claim: Claim
    at: float
    since: float


class PrefetchBuffer:
    """The spares of a worker, and how long work takes in each lane where it works."""

    def __init__(self, ahead: float = PREFETCH_WINDOW_S) -> None:
        self._ahead = ahead
        self._held: dict[str, deque[PrefetchedClaim]] = {}
        self._known: dict[Key, int] = {}  # with their epochs; those that are being given back are still known
        self._running: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}

    # --- how long work takes -----------------------------------------------------------------------------------------

    def began(self, work: WorkItem) -> None:
        """Note that something runs."""
        if work.lane or work.grp:
            self._running[work.lane] += 1

    def ended(self, work: WorkItem, seconds: float | None) -> None:
        """Note that something has left its place, and how long it was there, if it tells how long work takes."""
        lane = work.lane
        if not (lane or work.grp):
            return
        self._running[lane] -= 1
        if not self._running[lane]:
            del self._running[lane]
        if seconds is not None:
            if len(self._seconds) >= MOST_LANES:
                self._seconds.clear()
            self._seconds[lane] = (self._seconds.get(lane, seconds) + seconds) / 2

    def plan(self) -> PrefetchPlan:
        """Return what is wanted now: at most one spare for each place that is ours."""
        known = {lane: self._seconds[lane] for lane in self._running if lane in self._seconds}
        wanted = {lane: self._soon(lane, seconds) - len(self._held.get(lane, ())) for lane, seconds in known.items()}
        turns = {lane: min(LANE_TIME_SLICE_S, max(SHORTEST_TURN, TURNS * seconds)) for lane, seconds in known.items()}
        return PrefetchPlan({lane: most for lane, most in wanted.items() if most > 0}, turns)

    def _soon(self, lane: str, seconds: float) -> int:
        """Return how many of a lane's places are likely to change within the time ahead."""
        return int(self._running[lane] * min(1.0, self._ahead / max(seconds, 1e-6)))

    # --- the spares themselves ---------------------------------------------------------------------------------------

    def __contains__(self, key: Key) -> bool:
        return key in self._known

    def __iter__(self) -> Iterator[Claim]:
        return (one.claim for held in self._held.values() for one in held)

    def idle(self, lane: str) -> bool:
        """Tell whether there are spares for a lane where nothing runs that they could follow."""
        return lane in self._held and lane not in self._running

    def hold(self, claims: Iterable[Claim], at: float, since: float) -> None:
        """Hold what was claimed."""
        for claim in claims:
            self._held.setdefault(claim.work.lane, deque()).append(PrefetchedClaim(claim, at, since))
            self._known[claim.work.key] = claim.work.epoch

    def take_next(self, lane: str, now: float) -> PrefetchedClaim | None:
        """Return the spare to be begun in a lane, no longer a spare from now on."""
        held = self._held.get(lane)
        if not held or now - held[0].since > PREFETCH_STALE_S * self._ahead:
            return None
        one = held.popleft()
        if not held:
            del self._held[lane]
        self.forget([one.claim])
        return one

    def unneeded(self, now: float) -> list[Claim]:
        """Return spares to be given back: those of lanes where nothing of ours runs any more, and old ones."""
        oldest = now - PREFETCH_STALE_S * self._ahead
        lanes = [lane for lane, held in self._held.items() if lane not in self._running or held[0].since < oldest]
        return [claim for lane in lanes for claim in self.release_lane(lane)]

    def release_lane(self, lane: str) -> list[Claim]:
        """Hold the spares of a lane no longer; they are to be given back, and known until that is done."""
        return [one.claim for one in self._held.pop(lane, ())]

    def release_all(self) -> list[Claim]:
        """Hold nothing any longer."""
        return [claim for lane in list(self._held) for claim in self.release_lane(lane)]

    def forget(self, spares: Iterable[Claim]) -> None:
        """Know of these no more, unless they were claimed again meanwhile."""
        for one in spares:
            if self._known.get(one.work.key) == one.work.epoch:
                del self._known[one.work.key]
