"""Claiming: how many operations of which lane may start now.

A group allows so many lanes to be active at once, and a lane so many operations. The limits are checked by counting
rows, so that no counter can leak. Lanes share a group in time slices: while other lanes of the group wait for a slot, a
lane that has used up its time slice gets no new operations until the running ones have ended.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from stateward.engine.kinds import Kinds
from stateward.engine.worker.prefetch import LANE_TIME_SLICE_S, NO_PREFETCH, PrefetchPlan
from stateward.store.changes import Changes
from stateward.store.port import LaneLoad, Tx
from stateward.store.records import DEFAULT_LANES, Claim, Lane, LaneGroup, WorkerRecord

BACK_OFF_INITIAL_S, BACK_OFF_MAX_S = 0.5, 60.0
"""How many seconds a throttled lane pauses; the pause doubles with each further throttling."""

BACK_OFF_RESET_S = 60.0
"""A lane that was not throttled for so many seconds after its pause starts again with a short one."""


class Allotment(Struct, frozen=True):
    """How many operations to claim and to prefetch in each lane, and the lanes that become active by it.

    `demands` says for each group how many lanes with work it has for each lane that may be active.
    """

    rooms: dict[str, int]
    prefetched: dict[str, int]
    opened: list[Lane]
    demands: dict[str, float]


class ClaimResult(Struct, frozen=True):
    """The claims, the store's time, and whether a lane gave all it was asked for, and so may have more."""

    claimed_at: float
    claims: list[Claim]
    prefetched: list[Claim]
    has_more: bool


async def claim(
    tx: Tx, kinds: Kinds, worker: WorkerRecord, room: int, prefetch: PrefetchPlan = NO_PREFETCH
) -> ClaimResult:
    """Claim up to `room` operations for a worker, and prefetch as planned.

    If the last heartbeat was a while ago, the claim sends one too: a worker that counts as dead must own nothing.
    """
    groups, loads = await tx.lane_loads(kinds.filter)
    allotment = allot(groups, loads, room, tx.now, prefetch)
    if not allotment.rooms and not allotment.prefetched:
        return ClaimResult(tx.now, [], [], has_more=False)
    taken = await tx.claim(allotment.rooms, worker.id, allotment.prefetched, kinds.filter)
    kinds.pass_over_unknown((claim.object, claim.operation) for claim in taken)
    if taken and tx.now - worker.seen > worker.lease / 3:
        await tx.heartbeat(worker)
    if allotment.opened:
        await tx.apply(Changes(lanes=allotment.opened))
    claims = [claim for claim in taken if not claim.work.is_prefetched]
    # The group that takes longest goes first: where many start at once, the last ones start a while later, and they do
    # so again whenever they end together.
    claims.sort(key=lambda claim: (-claim.work.priority, -allotment.demands.get(claim.work.grp, 0.0)))
    claimed = Counter(claim.work.lane for claim in claims)
    has_more = any(claimed[lane] == share for lane, share in allotment.rooms.items())
    return ClaimResult(tx.now, claims, taken[len(claims) :], has_more)


async def back_off_lane(tx: Tx, lane: str, after: float) -> float:
    """Pause a throttled lane, longer each time it is throttled again; returns for how many seconds.

    A call that is throttled while the lane pauses was sent before the pause, so it does not make the pause longer.
    """
    _, loads = await tx.lane_loads()
    for load in loads:
        if load.lane.lane == lane:
            left = load.lane.back_off - tx.now
            times = load.lane.throttled + (left <= 0) if left > -BACK_OFF_RESET_S else 1
            pause = max(after, left, min(BACK_OFF_MAX_S, BACK_OFF_INITIAL_S * 2.0**times) if left <= 0 else 0.0)
            await tx.apply(Changes(lanes=[replace(load.lane, back_off=tx.now + pause, throttled=times)]))
            return pause
    return 0.0


def allot(
    groups: Sequence[LaneGroup], loads: Sequence[LaneLoad], room: int, now: float, prefetch: PrefetchPlan = NO_PREFETCH
) -> Allotment:
    """Share a worker's free slots between the lanes that have waiting work, within all limits."""
    limits = {group.grp: group.lanes for group in groups}
    by_group: dict[str, list[LaneLoad]] = defaultdict(list)
    for load in loads:
        by_group[load.lane.grp].append(load)
    served: list[LaneLoad] = []
    lasting: set[str] = set()
    demands: dict[str, float] = {}
    for name, lanes in by_group.items():
        limit = limits.get(name, DEFAULT_LANES) if name else len(lanes)
        demands[name] = len(lanes) / max(1, limit)
        group_served, group_lasting = _lanes_to_serve(lanes, limit, now, prefetch)
        served += group_served
        lasting |= group_lasting
    rooms = _share_room([load for load in served if load.running < load.lane.capacity], room)
    opened = [
        replace(load.lane, opened=now)
        for load in served
        if load.running == 0 and load.lane.grp and load.lane.lane in rooms
    ]
    return Allotment(
        rooms, {lane: count for lane, count in prefetch.counts.items() if lane in lasting}, opened, demands
    )


def _lanes_to_serve(
    lanes: Sequence[LaneLoad], limit: int, now: float, prefetch: PrefetchPlan
) -> tuple[list[LaneLoad], set[str]]:
    """Return the lanes of a group that may get work now, and the active ones that may when its operations have ended.

    Only the latter may get prefetched work: started after the time slice, it would keep other lanes from the group's
    slot.
    """
    active = [load for load in lanes if load.running]
    # A full lane counts as well: it may get work as soon as an operation has left it.
    unfilled = [load for load in lanes if 0 < load.lane.capacity >= load.running]
    ready = [load for load in unfilled if load.waiting and load.lane.back_off <= now]
    waiting = sorted((load for load in ready if not load.running), key=lambda load: load.lane.opened)
    is_crowded = len(active) + len(waiting) > limit
    # If the limit was lowered, the lanes that were opened last stay active, and the others run dry.
    kept = {load.lane.lane for load in sorted(active, key=lambda load: -load.lane.opened)[:limit]}
    # If few lanes are waiting, use short time slices: draining a lane completely would leave group slots idle.
    time_slices_s = prefetch.time_slices_s if len(waiting) < limit else {}
    left_s = {
        load.lane.lane: load.lane.opened + time_slices_s.get(load.lane.lane, LANE_TIME_SLICE_S) - now
        if is_crowded
        else inf
        for load in active
        if load.lane.lane in kept
    }
    continued = [load for load in ready if left_s.get(load.lane.lane, -inf) >= 0]
    lasting = {
        load.lane.lane for load in continued if left_s[load.lane.lane] >= prefetch.durations_s.get(load.lane.lane, 0.0)
    }
    return continued + waiting[: max(0, limit - len(active))], lasting


def _share_room(lanes: Iterable[LaneLoad], room: int) -> dict[str, int]:
    """Share free slots evenly. Slots that one lane cannot use go to the others, the remainder to the least served."""
    rooms: dict[str, int] = {}
    open_lanes = sorted(lanes, key=lambda load: (load.running, load.lane.opened, load.lane.lane))
    while room and open_lanes:
        share = max(1, room // len(open_lanes))
        for load in open_lanes:
            given = rooms.get(load.lane.lane, 0)
            more = min(share, room, load.lane.capacity - load.running - given)
            rooms[load.lane.lane] = given + more
            room -= more
        open_lanes = [load for load in open_lanes if rooms[load.lane.lane] < load.lane.capacity - load.running]
    return {lane: share for lane, share in rooms.items() if share > 0}
