"""The reason why an operation does not run yet, from its work item, queue, locks and lane, in this order."""

from collections.abc import Collection, Mapping

from msgspec import Struct

from stateward.engine.transitions import time_text
from stateward.schemas.waiting import WaitReason
from stateward.store.port import LaneLoad
from stateward.store.records import Lock, Object, Progress, WorkerRecord, WorkItem, default_group, default_lane


class LaneLoads(Struct, frozen=True):
    """The current loads of lanes, and the limits of groups."""

    loads: dict[str, LaneLoad]
    groups: dict[str, int]

    def load(self, work: WorkItem) -> LaneLoad:
        """Return the load of a work item's lane."""
        return self.loads.get(work.lane) or LaneLoad(default_lane(work.lane, work.grp), 0, True)

    def active_lanes(self, grp: str) -> int:
        """Return how many lanes of a group have running operations."""
        return sum(load.running > 0 for load in self.loads.values() if load.lane.grp == grp)

    def max_active_lanes(self, grp: str) -> int:
        """Return how many lanes of a group may be active."""
        return self.groups.get(grp, default_group(grp).lanes)


class ExternalParty(Struct, frozen=True):
    """The external party (such as an agent) that carries out an operation."""

    name: str = "another party"
    absent: Object | None = None  # the party's object, if its state says that it cannot report


class WaitContext(Struct, frozen=True):
    """Everything that may delay a work item."""

    now: float
    queue: list[WorkItem]  # the queue of its object, in order
    locks: Collection[Lock]  # of its tree
    lanes: LaneLoads
    live_workers: int  # number of workers whose lease is valid
    dead_workers: Mapping[str, WorkerRecord] = {}  # workers whose lease has expired, by id
    external_party: ExternalParty | None = None  # None if a worker of ours does the work
    unknown: str = ""  # what no live worker knows of it, such as "the kind app.vm"
    signal: str | None = None  # the signal for which its handler waits
    since: float | None = None  # since when it is carried out
    report: Progress | None = None  # the last one about it


def describe_dead_worker(worker: WorkerRecord) -> str:
    """Return since when a dead worker has sent no heartbeat."""
    return f"has been silent since {time_text(worker.seen)} (lease {worker.lease:g} s)"


def wait_reason(work: WorkItem, around: WaitContext) -> tuple[WaitReason, str]:
    """Return the reason why a work item waits, as a code and as a sentence."""
    lost = around.dead_workers.get(work.owner or "")
    if work.fenced:
        outlived = "has yet to confirm that it stopped" if lost is None else describe_dead_worker(lost)
        return WaitReason.GHOST, f"its result no longer counts; its worker {work.owner} {outlived}"
    if lost is not None:
        return WaitReason.ORPHANED, f"its worker {lost.id} {describe_dead_worker(lost)}; {_successor(around)}"
    if work.is_prefetched:
        text = f"worker {work.owner} has prefetched it; it starts when a slot is free in lane {work.lane}"
        return WaitReason.LANE, text
    if work.owner is not None:
        return WaitReason.RUNNING, _describe_work(f"worker {work.owner}", work, around)
    ahead = [other.op for other in around.queue if other.seq < work.seq]
    if ahead:
        return WaitReason.QUEUE, f"it stands behind operation {ahead[-1]} ({len(ahead)} ahead of it)"
    return _reason_before_lane(work, around) or _lane_reason(work, around)


def _successor(around: WaitContext) -> str:
    if around.unknown:
        return f"no worker knows {around.unknown}, to take it over"
    return "a living worker will take it over" if around.live_workers else "no worker is alive to take it over"


def _reason_before_lane(work: WorkItem, around: WaitContext) -> tuple[WaitReason, str] | None:
    if any(lock.op == work.op and lock.waiting for lock in around.locks):
        holders = sorted({lock.op for lock in around.locks if lock.op != work.op and not lock.waiting})
        named = f"operation{'s' * (len(holders) > 1)} {', '.join(holders)}"
        return WaitReason.LOCKS, f"locks are held by {named if holders else 'earlier requests'}"
    if around.signal is not None and work.not_before > around.now:
        return WaitReason.SIGNAL, f"it waits for the signal {around.signal}{_until(work)}"
    parked = work.is_parked and work.not_before > around.now
    if work.remote or (parked and around.external_party is not None):
        return WaitReason.REMOTE, _describe_party(around.external_party or ExternalParty(), work, around)
    if work.children:
        return WaitReason.CHILDREN, f"it waits for {work.children:,} {'child' if work.children == 1 else 'children'}"
    if parked:
        return WaitReason.HELD, f"it is held until it is continued{_until(work)}"
    if work.not_before > around.now:
        verb = "continues at" if work.epoch else "starts at"
        return WaitReason.TIME, f"it {verb} {time_text(work.not_before)}"
    if around.unknown:
        return WaitReason.NO_WORKER, f"no worker knows {around.unknown}"
    return None


def _describe_party(party: ExternalParty, work: WorkItem, around: WaitContext) -> str:
    """Return that a party works on it, or that it waits for one that is not connected."""
    absent = party.absent
    if absent is None:
        return _describe_work(party.name, work, around)
    away = f"which is not connected: {absent.id} is {absent.state} since {time_text(absent.since)}"
    return f"it has waited for {party.name}{_since(around)}, {away}; {_last_report(around)}{_until(work)}"


def _describe_work(worker: str, work: WorkItem, around: WaitContext) -> str:
    """Return who works on it, since when, the last report, and until when it may take."""
    working = "works on it" if around.since is None else f"has worked on it{_since(around)}"
    return f"{worker} {working}; {_last_report(around)}{_until(work)}"


def _since(around: WaitContext) -> str:
    return "" if around.since is None else f" since {time_text(around.since)}"


def _last_report(around: WaitContext) -> str:
    report = around.report
    return "no progress reported" if report is None else f"last report at {time_text(report.at)}: {report.text}"


def _until(work: WorkItem) -> str:
    return "" if work.deadline is None else f"; it may take until {time_text(work.deadline)}"


def _lane_reason(work: WorkItem, around: WaitContext) -> tuple[WaitReason, str]:
    load, name = around.lanes.load(work), work.lane or "(default)"
    if load.lane.back_off > around.now:
        return WaitReason.BACK_OFF, f"lane {name} is backed off until {time_text(load.lane.back_off)}"
    if load.running >= load.lane.capacity:
        return WaitReason.LANE, f"lane {name} runs {load.running} of {load.lane.capacity} operations"
    active, limit = around.lanes.active_lanes(work.grp), around.lanes.max_active_lanes(work.grp)
    if load.running == 0 and active >= limit:
        return WaitReason.GROUP, f"group {work.grp or '(default)'} has {active} of {limit} lanes active"
    if not around.live_workers:
        return WaitReason.NO_WORKER, "no worker is alive"
    return WaitReason.SOON, "it is next: a worker with a free slot will take it"
