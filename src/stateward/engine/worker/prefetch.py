"""Prefetching: claims that a worker holds for a full lane, to start one the moment another operation there ends.

A lane's slot is free when the end of its operation is committed, and a claim would fill it after that: the slot stands
empty for two commits. So where operations are short, the worker that runs them holds some of the next ones. A
prefetched operation does not run, and does not count against the limits. When the worker finishes an operation of the
lane, it starts a prefetched one in its slot at once, and says so in the report of that end. One transaction then frees
and fills the slot, so that never more operations run than the lane allows. A prefetched claim that a crash leaves
behind is observed first, as every claim that had an owner.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from stateward.engine.worker.attempt import RunningOperation
from stateward.store.records import Claim, Key

PREFETCH_WINDOW_S = 2.0
"""A worker prefetches for lanes whose operations take so many seconds at most; with longer ones, a claim's time is
nothing."""

PREFETCH_STALE_WINDOWS = 2.0
"""After so many windows a prefetched claim is returned, because its records may be out of date."""

LANE_TIME_SLICE_S = 5.0
"""How many seconds a lane may stay active while other lanes of its group wait for a slot."""

LANE_TIME_SLICE_MIN_S, TIME_SLICE_FACTOR = 0.25, 5.0
"""The shortest time slice of a lane in seconds, and how many operations long a slice is."""

REMEMBERED_LANES = 10_000
"""For how many lanes the duration of operations is remembered."""


class PrefetchPlan(Struct, frozen=True):
    """How many more claims to prefetch in each lane, and how many seconds its time slice and its operations last."""

    counts: Mapping[str, int]
    time_slices_s: Mapping[str, float]
    durations_s: Mapping[str, float]


NO_PREFETCH = PrefetchPlan({}, {}, {})
"""The plan of a worker that has finished no operation yet."""


class PrefetchedClaim(Struct, frozen=True):
    """A prefetched claim, with the store's time and the worker's own time at which it was claimed."""

    claim: Claim
    store_time: float
    claimed_at: float


class PrefetchBuffer:
    """The prefetched claims of a worker, the slots that they take over, and how long operations take in each lane.

    It calls `on_idle` when it holds claims for a lane where no operation runs any more that they could follow.
    """

    def __init__(self, on_idle: Callable[[], None], window_s: float = PREFETCH_WINDOW_S) -> None:
        self._on_idle, self._window_s = on_idle, window_s
        self._held: dict[str, deque[PrefetchedClaim]] = {}
        self._epochs: dict[Key, int] = {}  # of all known claims, those that are being returned included
        self._running: Counter[str] = Counter()
        self._durations_s: dict[str, float] = {}

    # --- slots -------------------------------------------------------------------------------------------------------

    def enter_slot(self, running: RunningOperation) -> None:
        """Count an operation that runs."""
        work = running.claim.work
        if work.lane or work.grp:
            self._running[work.lane] += 1

    def leave_slot(self, running: RunningOperation, seconds: float | None = None) -> bool:
        """Count an operation as gone from its lane's slot, once; returns whether it was in the slot until now.

        `seconds` is its duration, if it shows how long operations take.
        """
        if running.slot_released:
            return False
        running.slot_released = True
        lane = running.claim.work.lane
        if not (lane or running.claim.work.grp):
            return True
        self._running[lane] -= 1
        if not self._running[lane]:
            del self._running[lane]
            if lane in self._held:
                self._on_idle()
        if seconds is not None:
            if len(self._durations_s) >= REMEMBERED_LANES:
                self._durations_s.clear()
            self._durations_s[lane] = (self._durations_s.get(lane, seconds) + seconds) / 2
        return True

    def take_successor(self, ended: RunningOperation, now: float) -> RunningOperation | None:
        """Return the operation to start in the slot that another one has left, unless the next claim is stale."""
        work = ended.claim.work
        held = self._held.get(work.lane)
        if not held or now - held[0].claimed_at > PREFETCH_STALE_WINDOWS * self._window_s:
            return None
        prefetched = held.popleft()
        if not held:
            del self._held[work.lane]
        claim, begun_at = prefetched.claim, prefetched.store_time + now - prefetched.claimed_at
        self.forget([claim])
        started = replace(claim, work=replace(claim.work, deadline=begun_at + claim.operation.within))
        return RunningOperation(started, begun_at, predecessors=(work.key, *ended.predecessors))

    def plan(self) -> PrefetchPlan:
        """Return what to claim now: one prefetched operation for each slot of this worker, or none.

        Operations that share a call end together. If only some were followed at once, the others would follow after a
        claim, with a call of their own, and later ones with ever more calls.
        """
        counts: dict[str, int] = {}
        time_slices_s: dict[str, float] = {}
        durations_s = {lane: self._durations_s[lane] for lane in self._running if lane in self._durations_s}
        for lane, seconds in durations_s.items():
            missing = self._running[lane] - len(self._held.get(lane, ()))
            if missing > 0 and seconds <= self._window_s:
                counts[lane] = missing
            time_slices_s[lane] = min(LANE_TIME_SLICE_S, max(LANE_TIME_SLICE_MIN_S, TIME_SLICE_FACTOR * seconds))
        return PrefetchPlan(counts, time_slices_s, durations_s)

    # --- claims ------------------------------------------------------------------------------------------------------

    def __contains__(self, key: Key) -> bool:
        return key in self._epochs

    def __iter__(self) -> Iterator[Claim]:
        return (prefetched.claim for held in self._held.values() for prefetched in held)

    def add(self, claims: Iterable[Claim], store_time: float, claimed_at: float) -> None:
        """Hold claims."""
        for claim in claims:
            self._held.setdefault(claim.work.lane, deque()).append(PrefetchedClaim(claim, store_time, claimed_at))
            self._epochs[claim.work.key] = claim.work.epoch

    def take_unneeded(self, now: float) -> list[Claim]:
        """Return the claims to give back: stale ones, and those of lanes where this worker runs nothing any more."""
        oldest = now - PREFETCH_STALE_WINDOWS * self._window_s
        lanes = [lane for lane, held in self._held.items() if lane not in self._running or held[0].claimed_at < oldest]
        return [claim for lane in lanes for claim in self.release_lane(lane)]

    def release_lane(self, lane: str) -> list[Claim]:
        """Return the claims of a lane, to be given back; they stay known until `forget`."""
        return [prefetched.claim for prefetched in self._held.pop(lane, ())]

    def release_all(self) -> list[Claim]:
        """Return the claims of all lanes, to be given back."""
        return [claim for lane in list(self._held) for claim in self.release_lane(lane)]

    def forget(self, claims: Iterable[Claim]) -> None:
        """Forget claims, unless they were claimed again meanwhile."""
        for claim in claims:
            if self._epochs.get(claim.work.key) == claim.work.epoch:
                del self._epochs[claim.work.key]
