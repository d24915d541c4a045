"""Claiming: how much of which lane may be taken now. The limits are derived by counting, so no counter can leak.

A group allows so many lanes to be active at once, a lane so many operations. Lanes take turns: when others of the
group wait for a place, a lane that has been active for a while gets nothing new until it has run dry.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from stateward.engine.worker.prefetch import LANE_TIME_SLICE_S, NO_PREFETCH, PrefetchPlan
from stateward.store.changes import Changes
from stateward.store.port import LaneLoad, Tx
from stateward.store.records import Claim, Lane, LaneGroup, WorkerRecord

DEFAULT_LANES = 10
"""How many lanes of a group may be active at once where nothing was set."""


class Allotment(Struct, frozen=True):
    """How much may be claimed of each lane, how many spares, and which lanes become active by it."""

    rooms: dict[str, int]
    prefetched: dict[str, int]
    opened: list[Lane]


class ClaimResult(Struct, frozen=True):
    """What was claimed, the store's time then, and whether a lane gave all it was asked for, and so may have more."""

    at: float
    claims: list[Claim]
    prefetched: list[Claim]
    more: bool


async def claim(tx: Tx, worker: WorkerRecord, room: int, pace: PrefetchPlan = NO_PREFETCH) -> ClaimResult:
    """Claim up to `room` operations for a worker, and the spares that it wants.

    Where the last sign of life was a while ago, the claim is one as well: a worker that was taken for dead meanwhile
    must not hold anything as a dead one.
    """
    groups, loads = await tx.lane_loads()
    allotment = allot(groups, loads, room, tx.now, pace)
    if not allotment.rooms and not allotment.prefetched:
        return ClaimResult(tx.now, [], [], more=False)
    taken = await tx.claim(allotment.rooms, worker.id, allotment.prefetched)
    if taken and tx.now - worker.seen > worker.lease / 3:
        await tx.heartbeat(worker)
    if allotment.opened:
        await tx.apply(Changes(lanes=allotment.opened))
    claims = [one for one in taken if not one.work.is_prefetched]
    begun = Counter(one.work.lane for one in claims)
    more = any(begun[lane] == share for lane, share in allotment.rooms.items())
    return ClaimResult(tx.now, claims, taken[len(claims) :], more)


async def throttle(tx: Tx, lane: str, after: float) -> float:
    """Back one lane off, longer each time that it is throttled again; returns for how many seconds.

    What is said while it is backed off was asked before: one answer may be about many operations, and counts once.
    """
    _, loads = await tx.lane_loads()
    for load in loads:
        if load.lane.lane == lane:
            left = load.lane.back_off - tx.now
            times = load.lane.throttled + (left <= 0) if left > -60 else 1
            pause = max(after, left, min(60.0, 0.5 * 2.0**times) if left <= 0 else 0.0)
            await tx.apply(Changes(lanes=[replace(load.lane, back_off=tx.now + pause, throttled=times)]))
            return pause
    return 0.0


def allot(
    groups: Sequence[LaneGroup], loads: Sequence[LaneLoad], room: int, now: float, pace: PrefetchPlan = NO_PREFETCH
) -> Allotment:
    """Share room between the lanes that have something waiting, within all limits."""
    limits = {group.grp: group.lanes for group in groups}
    by_group: dict[str, list[LaneLoad]] = defaultdict(list)
    for load in loads:
        by_group[load.lane.grp].append(load)
    served: list[LaneLoad] = []
    for name, lanes in by_group.items():
        served += _lanes_to_serve(lanes, limits.get(name, DEFAULT_LANES) if name else len(lanes), now, pace)
    rooms = _share_room([load for load in served if load.running < load.lane.capacity], room)
    active = {load.lane.lane for load in served if load.running}
    opened = [
        replace(load.lane, opened=now)
        for load in served
        if load.running == 0 and load.lane.grp and load.lane.lane in rooms
    ]
    return Allotment(rooms, {lane: most for lane, most in pace.wanted.items() if lane in active}, opened)


def _lanes_to_serve(lanes: Sequence[LaneLoad], limit: int, now: float, pace: PrefetchPlan) -> list[LaneLoad]:
    """Return the lanes of a group that may be given something now; a full one, spares alone."""
    active = [load for load in lanes if load.running]
    ready = [load for load in lanes if load.waiting and load.lane.back_off <= now and _is_open(load)]
    waiting = sorted((load for load in ready if not load.running), key=lambda load: load.lane.opened)
    crowded = len(active) + len(waiting) > limit
    # Where the limit was lowered, those go on that were opened last; the others run dry.
    kept = {load.lane.lane for load in sorted(active, key=lambda load: -load.lane.opened)[:limit]}
    # Few others, and those who go on to their end would leave places empty after it: turns are short then.
    turns = pace.turns if len(waiting) < limit else {}
    tired = {
        load.lane.lane
        for load in active
        if crowded and now - load.lane.opened > turns.get(load.lane.lane, LANE_TIME_SLICE_S)
    }
    going_on = [load for load in ready if load.lane.lane in kept - tired]
    return going_on + waiting[: max(0, limit - len(active))]


def _is_open(load: LaneLoad) -> bool:
    """Tell whether a lane may have something new: now, or as soon as something has left it."""
    return 0 < load.lane.capacity >= load.running


def _share_room(lanes: Iterable[LaneLoad], room: int) -> dict[str, int]:
    """Share room evenly, what one lane cannot use going to the others; what is left over to the least served."""
    rooms: dict[str, int] = {}
    hungry = sorted(lanes, key=lambda load: (load.running, load.lane.opened, load.lane.lane))
    while room and hungry:
        share = max(1, room // len(hungry))
        for load in hungry:
            given = rooms.get(load.lane.lane, 0)
            more = min(share, room, load.lane.capacity - load.running - given)
            rooms[load.lane.lane] = given + more
            room -= more
        hungry = [load for load in hungry if rooms[load.lane.lane] < load.lane.capacity - load.running]
    return {lane: share for lane, share in rooms.items() if share > 0}
