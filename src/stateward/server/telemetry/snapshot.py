"""Snapshots of the deployment for metrics and streams: counts that the store computes, never object by object."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from stateward.access.tokens import ANY, SYSTEM
from stateward.server.live.journal_feed import Interest
from stateward.server.live.stream_server import StateSnapshot
from stateward.store.port import LaneLoad, LaneWork, StateCounts, Store
from stateward.store.records import default_lane

Wanted = TypeVar("Wanted", bound=Hashable)
Answer = TypeVar("Answer")


class SharedReads(Generic[Wanted, Answer]):
    """Runs one read at a time for each thing; callers who come meanwhile share the next one.

    So each answer was read after its caller had asked for it.
    """

    def __init__(self, read: Callable[[Wanted], Awaitable[Answer]]) -> None:
        self._read = read
        self._next: dict[Wanted, asyncio.Task[Answer]] = {}
        self._running: dict[Wanted, asyncio.Task[Answer]] = {}

    async def get(self, wanted: Wanted) -> Answer:
        """Return what a read that has not begun yet finds."""
        task = self._next.get(wanted)
        if task is None:
            task = self._next[wanted] = asyncio.create_task(self._run(wanted, self._running.get(wanted)))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # all callers may have left
        return await asyncio.shield(task)

    async def _run(self, wanted: Wanted, before: "asyncio.Task[Answer] | None") -> Answer:
        if before is not None:
            await asyncio.wait([before])
        task = self._running[wanted] = self._next.pop(wanted)
        try:
            return await self._read(wanted)
        finally:
            if self._running[wanted] is task:
                del self._running[wanted]


MAX_STUCK_COUNTED = 1_000
"""How many stuck objects are counted at most."""


class LaneSnapshot(Struct, frozen=True):
    """A lane: running operations, capacity, whether it is backed off, waiting operations, age of the oldest."""

    lane: str
    running: int
    capacity: int
    backed_off: bool
    waiting: int = 0
    age: float = 0.0


class DeploymentSnapshot(Struct, frozen=True):
    """The numbers of a deployment, or of some namespaces, at one time."""

    objects: Mapping[tuple[str, str], int]
    lanes: Sequence[LaneSnapshot]
    stuck: int
    workers_alive: int
    workers_lost: int
    timer_late: float


class SnapshotReader:
    """Takes snapshots from the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: SharedReads[tuple[tuple[str, ...], str | None], StateCounts] = SharedReads(self._count)

    async def take(self, namespaces: frozenset[str] | None = None) -> DeploymentSnapshot:
        """Return a snapshot of the whole deployment, or of some namespaces only.

        Limits of lanes, workers and timers concern the whole deployment, and are left out for some namespaces.
        """
        reader, is_whole = self._store.reader, namespaces is None
        now = await reader.time()
        names = await reader.namespaces() if namespaces is None else sorted(namespaces)
        loads = (await reader.lanes())[1] if is_whole else []
        work = {lane_work.lane: lane_work for lane_work in await reader.work_by_lane(namespaces)}
        alive = [worker.is_alive(now) for worker in await reader.workers()] if is_whole else []
        timers = await reader.timers(None, 1) if is_whole else []
        counts: dict[tuple[str, str], int] = defaultdict(int)
        for (_, kind, state), count in (await self._counts.get((tuple(names), None))).counts.items():
            counts[kind, state] += count
        known = {load.lane.lane for load in loads}
        others = [
            LaneLoad(default_lane(lane, ""), lane_work.running, False)
            for lane, lane_work in work.items()
            if lane not in known
        ]
        return DeploymentSnapshot(
            objects=counts,
            lanes=[_lane(load, work.get(load.lane.lane), now) for load in (*loads, *others)],
            stuck=len(await reader.stuck(MAX_STUCK_COUNTED, namespaces)),
            workers_alive=sum(alive),
            workers_lost=len(alive) - sum(alive),
            timer_late=max(0.0, now - timers[0].due) if timers else 0.0,
        )

    async def count_states(self, interest: Interest) -> StateSnapshot:
        """Return the number of objects of interest to a reader, and the journal entry after which it is valid."""
        census = await self._counts.get((tuple(await self._names(interest)), interest.kind))
        counts: dict[str, dict[str, dict[str, int]]] = {}
        for (ns, kind, state), count in census.counts.items():
            counts.setdefault(ns, {}).setdefault(kind, {})[state] = count
        return StateSnapshot(census.seq, counts)

    async def _count(self, wanted: tuple[tuple[str, ...], str | None]) -> StateCounts:
        return await self._store.reader.count_by_namespace(*wanted)

    async def _names(self, interest: Interest) -> list[str]:
        known = await self._store.reader.namespaces()
        opened = [ns for ns in known if ns != SYSTEM and not interest.namespaces.isdisjoint((ANY, ns))]
        return [ns for ns in opened if interest.only is None or ns in interest.only]


def _lane(load: LaneLoad, work: LaneWork | None, now: float) -> LaneSnapshot:
    lane = load.lane
    shown = LaneSnapshot(lane.lane, load.running, lane.capacity, lane.back_off > now)
    if work is None:
        return shown
    return replace(shown, running=work.running, waiting=work.waiting, age=max(0.0, now - work.oldest))
