from typing import Any

import pytest
from msgspec.structs import replace

from stateward.schemas.waiting import WaitReason as Reason
from stateward.server.routes.wait_reasons import ExternalParty, LaneLoads, WaitContext, wait_reason
from stateward.store.port import LaneLoad
from stateward.store.records import Lane, Lock, Progress, WorkerRecord, WorkItem

WORK = WorkItem(
    ns="ns",
    op="o1",
    object="a",
    queue="a",
    seq=5,
    lane="aws/eu",
    grp="aws",
    priority=0,
    ready=True,
    remote=False,
    fenced=False,
    cancelled=False,
    children=0,
    not_before=0.0,
    deadline=None,
    owner=None,
    epoch=0,
    attempts=0,
    observe=False,
)
AHEAD = replace(WORK, op="o0", seq=1)
LANE = Lane("aws/eu", "aws", 2, 0.0, 0.0, 0)
NONE = LaneLoads({}, {})
PARKED = replace(WORK, deadline=200.0, not_before=200.0)
AGENT = ExternalParty("the agent")
REPORT = Progress("ns", "o1", 20.0, "step 1", None, None)
LOST = {"w/1": WorkerRecord("w/1", 15.0, 50.0, "host", 1)}
SILENT = "w/1 has been silent since 1970-01-01 00:00:50Z (lease 15 s)"


def around(**how: Any) -> WaitContext:
    return WaitContext(**{"now": 100.0, "queue": [WORK], "locks": (), "lanes": NONE, "live_workers": 1, **how})


def lanes(running: int, lane: Lane = LANE, groups: dict[str, int] | None = None, others: int = 0) -> LaneLoads:
    loads = {f"aws/{n}": LaneLoad(replace(LANE, lane=f"aws/{n}"), 1, False) for n in range(others)}
    return LaneLoads({**loads, lane.lane: LaneLoad(lane, running, True)}, groups or {})


def lock(op: str, *, waiting: bool) -> Lock:
    return Lock("ns", "t", "/a", "X", op, waiting, 0)


@pytest.mark.parametrize(
    ("work", "surroundings", "reason", "says"),
    [
        (WORK, around(), Reason.SOON, "it is next"),
        (WORK, around(live_workers=0), Reason.NO_WORKER, "no worker"),
        (WORK, around(unknown="the kind dns.record"), Reason.NO_WORKER, "no worker knows the kind dns.record"),
        (WORK, around(unknown="the kind dns.record", queue=[AHEAD, WORK]), Reason.QUEUE, "behind operation o0"),
        (
            replace(WORK, owner="w/1"),
            around(dead_workers=LOST, unknown="the kind dns.record"),
            Reason.ORPHANED,
            f"{SILENT}; no worker knows the kind dns.record",
        ),
        (replace(WORK, owner="w/1", deadline=60.0), around(), Reason.RUNNING, "w/1 works on it; no progress reported"),
        (
            replace(WORK, owner="w/1", deadline=60.0),
            around(since=10.0, report=REPORT),
            Reason.RUNNING,
            (
                "worker w/1 has worked on it since 1970-01-01 00:00:10Z; last report at 1970-01-01 00:00:20Z: step 1; "
                "it may take until 1970-01-01 00:01:00Z"
            ),
        ),
        (replace(WORK, owner="w/1"), around(), Reason.LANE, "w/1 has prefetched it"),
        (replace(WORK, owner="w/1", fenced=True), around(), Reason.GHOST, "no longer counts"),
        (WORK, around(queue=[AHEAD, WORK]), Reason.QUEUE, "behind operation o0 (1 ahead"),
        (
            WORK,
            around(locks=[lock("o1", waiting=True), lock("o9", waiting=False)]),
            Reason.LOCKS,
            "held by operation o9",
        ),
        (WORK, around(locks=[lock("o1", waiting=False)]), Reason.SOON, "it is next"),
        (
            replace(WORK, owner="w/1", deadline=60.0),
            around(dead_workers=LOST),
            Reason.ORPHANED,
            f"{SILENT}; a living worker",
        ),
        (replace(WORK, owner="w/1"), around(dead_workers=LOST), Reason.ORPHANED, f"its worker {SILENT}"),
        (
            replace(WORK, owner="w/1"),
            around(dead_workers=LOST, live_workers=0),
            Reason.ORPHANED,
            f"{SILENT}; no worker is alive",
        ),
        (
            replace(WORK, owner="w/1", fenced=True),
            around(dead_workers=LOST),
            Reason.GHOST,
            f"no longer counts; its worker {SILENT}",
        ),
        (replace(WORK, owner="w/2", deadline=60.0), around(dead_workers=LOST), Reason.RUNNING, "w/2 works on it"),
        (replace(WORK, remote=True), around(), Reason.REMOTE, "another party works on it"),
        (PARKED, around(), Reason.HELD, "held until it is continued; it may take until 1970-01-01 00:03:20Z"),
        (
            PARKED,
            around(external_party=AGENT, since=10.0, report=REPORT),
            Reason.REMOTE,
            (
                "the agent has worked on it since 1970-01-01 00:00:10Z; last report at 1970-01-01 00:00:20Z: step 1; "
                "it may take until 1970-01-01 00:03:20Z"
            ),
        ),
        (PARKED, around(external_party=AGENT, now=300.0), Reason.SOON, "it is next"),
        (replace(WORK, children=3), around(), Reason.CHILDREN, "it waits for 3 children"),
        (replace(WORK, not_before=200.0), around(), Reason.TIME, "it starts at 1970-01-01 00:03:20Z"),
        (replace(WORK, not_before=200.0, epoch=1), around(), Reason.TIME, "it continues at 1970-01-01 00:03:20Z"),
        (PARKED, around(signal="approved"), Reason.SIGNAL, "it waits for the signal approved; it may take until 1970"),
        (replace(PARKED, not_before=50.0), around(signal="approved"), Reason.SOON, "it is next"),
        (WORK, around(lanes=lanes(0, replace(LANE, back_off=160.0))), Reason.BACK_OFF, "until 1970-01-01 00:02:40Z"),
        (WORK, around(lanes=lanes(2)), Reason.LANE, "runs 2 of 2"),
        (WORK, around(lanes=lanes(0, groups={"aws": 1}, others=1)), Reason.GROUP, "1 of 1 lanes"),
        (WORK, around(lanes=lanes(1, groups={"aws": 1}, others=0)), Reason.SOON, "it is next"),
        (replace(WORK, children=3), around(queue=[AHEAD, WORK]), Reason.QUEUE, "behind"),
    ],
)
def test_what_a_piece_of_work_waits_for(work: WorkItem, surroundings: WaitContext, reason: Reason, says: str) -> None:
    code, text = wait_reason(work, surroundings)
    assert code is reason
    assert says in text
