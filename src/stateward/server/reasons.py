"""Why a piece of work does not run yet: read off its row, its queue, its locks and its lane, in this order."""

from collections.abc import Collection
from enum import StrEnum

from msgspec import Struct

from stateward.engine.texts import time_text
from stateward.store.port import LaneLoad
from stateward.store.records import Lock, Work, default_group, default_lane


class Reason(StrEnum):
    """What a piece of work waits for."""

    RUNNING = "running"
    REMOTE = "another party works on it"
    GHOST = "fenced"
    QUEUE = "queue"
    LOCKS = "locks"
    CHILDREN = "children"
    TIME = "time"
    BACK_OFF = "lane backed off"
    LANE = "lane full"
    GROUP = "group full"
    NO_WORKER = "no worker"
    SOON = "next claim"


class Lanes(Struct, frozen=True):
    """The lanes and groups as they are now."""

    loads: dict[str, LaneLoad]
    groups: dict[str, int]

    def load(self, work: Work) -> LaneLoad:
        """Return the lane that a piece of work is in."""
        return self.loads.get(work.lane) or LaneLoad(default_lane(work.lane, work.grp), 0, True)

    def active(self, grp: str) -> int:
        """Return how many lanes of a group have something running."""
        return sum(load.running > 0 for load in self.loads.values() if load.lane.grp == grp)

    def limit(self, grp: str) -> int:
        """Return how many lanes of a group may be active."""
        return self.groups.get(grp, default_group(grp).lanes)


class Around(Struct, frozen=True):
    """What is known about the surroundings of a piece of work."""

    now: float
    line: list[Work]  # its queue, in order
    locks: Collection[Lock]  # of its tree
    lanes: Lanes
    workers: int  # that are alive


def why_waiting(work: Work, around: Around) -> tuple[Reason, str]:
    """Return what a piece of work waits for, as a code and as a sentence."""
    if work.fenced:
        return Reason.GHOST, "its result no longer counts; its worker has yet to confirm that it stopped"
    if work.spare:
        return Reason.LANE, f"worker {work.owner} holds it ready, for the next place that it leaves in lane {work.lane}"
    if work.owner is not None:
        return Reason.RUNNING, f"worker {work.owner} works on it"
    ahead = [one.op for one in around.line if one.seq < work.seq]
    if ahead:
        return Reason.QUEUE, f"it stands behind operation {ahead[-1]} ({len(ahead)} ahead of it)"
    return _at_the_head(work, around) or _in_its_lane(work, around)


def _at_the_head(work: Work, around: Around) -> tuple[Reason, str] | None:
    if any(lock.op == work.op and lock.waiting for lock in around.locks):
        holders = sorted({lock.op for lock in around.locks if lock.op != work.op and not lock.waiting})
        return Reason.LOCKS, f"locks are held by {', '.join(holders) or 'those who asked before'}"
    if work.remote:
        return Reason.REMOTE, "another party works on it and has not reported its end"
    if work.children:
        return Reason.CHILDREN, f"{work.children} of its children have not ended"
    if work.not_before > around.now:
        return Reason.TIME, f"it is not to begin before {time_text(work.not_before)}"
    return None


def _in_its_lane(work: Work, around: Around) -> tuple[Reason, str]:
    load, name = around.lanes.load(work), work.lane or "(default)"
    if load.lane.back_off > around.now:
        return Reason.BACK_OFF, f"lane {name} is backed off until {time_text(load.lane.back_off)}"
    if load.running >= load.lane.capacity:
        return Reason.LANE, f"lane {name} runs {load.running} of {load.lane.capacity} operations"
    active, limit = around.lanes.active(work.grp), around.lanes.limit(work.grp)
    if load.running == 0 and active >= limit:
        return Reason.GROUP, f"group {work.grp or '(default)'} has {active} of {limit} lanes active"
    if not around.workers:
        return Reason.NO_WORKER, "no worker is alive"
    return Reason.SOON, "it is next: a worker with a free slot will take it"
