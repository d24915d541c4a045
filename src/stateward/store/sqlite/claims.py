"""Claims on SQLite: the lanes with work, and the claim of work items.

Lanes with work are found by a loose index scan of the claimable work: the cost depends on the number of lanes, not on
the number of waiting operations.
"""

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile

from msgspec.json import encode

from stateward.store.port import KindFilter, LaneLoad
from stateward.store.records import OVERDUE_PRIORITY, STATE_FIELDS, Claim, Lane, LaneGroup, default_group, default_lane
from stateward.store.sqlite import codec

UNCLAIMED = "owner IS NULL AND ready = 1 AND remote = 0 AND fenced = 0 AND children = 0"
CLAIMABLE = f"delayed = 0 AND {UNCLAIMED}"
DELAYED = f"delayed = 1 AND {UNCLAIMED}"

PROMOTE = codec.render_sql("UPDATE work SET delayed = 0 WHERE <delayed> AND not_before <= ?", delayed=DELAYED)
AMONG = "IN (SELECT value FROM json_each(?1))"
UNKNOWN_OBJECT = codec.render_sql(
    """(
    o.kind || ' state ' || o.state <among>
    OR o.kind || ' version ' || CASE
        WHEN substr(o.spec, 2, 11) = '"$version":' THEN CAST(substr(o.spec, 13, 9) AS INTEGER) ELSE 1
    END <among>
)""",
    among=AMONG,
)
UNKNOWN_STATES = " OR ".join(f"p.kind || ' state ' || p.{name} {AMONG}" for name in STATE_FIELDS)

KNOWN = codec.render_sql(
    """(
    SELECT p.kind <among> AND NOT (p.kind || ' action ' || p.action <among> OR <unknown_states> OR <unknown_object>)
    FROM operations p JOIN objects o ON o.ns = p.ns AND o.id = p.object WHERE p.ns = work.ns AND p.id = work.op
)""",
    among=AMONG,
    unknown_states=UNKNOWN_STATES,
    unknown_object=UNKNOWN_OBJECT,
)
"""The condition that all of an operation is known; as a look-up of each row, so that the order of an index stays."""

KNOWN_TIMER = codec.render_sql(
    """coalesce((
    SELECT o.removed = 1 OR (
        o.kind <among> AND NOT (o.kind || ' action ' || timers.event <among> OR <unknown_object>)
    ) FROM objects o
    WHERE o.ns = timers.ns AND o.id = timers.object
), 1)""",
    among=AMONG,
    unknown_object=UNKNOWN_OBJECT,
)
"""The condition that a timer is not about an existing object of which something is unknown, and its event is known."""

EXPEDITED = f"(owner IS NULL AND priority = {OVERDUE_PRIORITY} AND remote = 0 AND fenced = 0)"
"""The condition that overdue work goes first in its lane already, and waits for a worker."""

# Packed, because each row that is fetched alone costs a change of the thread that has the GIL.
RUNNING = codec.json_packed("lane, grp, count(deadline)", "FROM work WHERE owner IS NOT NULL GROUP BY lane, grp")
WAITING = codec.render_sql(
    """
WITH RECURSIVE waiting (lane) AS (
    SELECT min(lane) FROM work WHERE <claimable>
    UNION ALL
    SELECT (SELECT min(lane) FROM work WHERE <claimable> AND lane > waiting.lane) FROM waiting WHERE lane IS NOT NULL
)
SELECT json_group_array(json_array(
    lane, (SELECT grp FROM work WHERE <claimable> AND lane = waiting.lane LIMIT 1)
)) FROM waiting WHERE lane IS NOT NULL
""",
    claimable=CLAIMABLE,
)
WAITING_KNOWN = WAITING.replace(CLAIMABLE, f"{CLAIMABLE} AND {KNOWN}")
DUE = codec.render_sql("SELECT DISTINCT lane, grp FROM work WHERE <delayed> AND not_before <= ?", delayed=DELAYED)
LANES = codec.render_sql("SELECT {Lane} FROM lanes")
LANES_AMONG = codec.json_packed("{Lane}", "FROM lanes WHERE lane IN (SELECT value FROM json_each(?))")
GROUPS = codec.render_sql("SELECT {LaneGroup} FROM lane_groups")
GROUPS_AMONG = codec.render_sql("SELECT {LaneGroup} FROM lane_groups WHERE grp IN (SELECT value FROM json_each(?))")

LANE, PRIORITY = codec.WORK.columns.index("lane"), codec.WORK.columns.index("priority")
CANDIDATE_COLUMNS = "{WorkItem:w}, {Operation:p}, {Object:o}"
CANDIDATE_ROWS = """
FROM json_each(?2) lanes
CROSS JOIN work w ON w.seq IN (
    SELECT seq FROM work WHERE lane = lanes.value AND <claimable> ORDER BY priority DESC, seq LIMIT ?3
)
CROSS JOIN operations p ON p.ns = w.ns AND p.id = w.op
CROSS JOIN objects o ON o.ns = w.ns AND o.id = w.object
"""
CANDIDATES = codec.json_packed(CANDIDATE_COLUMNS, CANDIDATE_ROWS, claimable=CLAIMABLE)
CANDIDATES_KNOWN = codec.json_packed(CANDIDATE_COLUMNS, CANDIDATE_ROWS, claimable=f"{CLAIMABLE} AND {KNOWN}")
CLAIM_WORK = """
UPDATE work
SET owner = ?, epoch = epoch + 1, attempts = attempts + 1,
    deadline = coalesce(deadline, ? + (SELECT within FROM operations p WHERE p.ns = work.ns AND p.id = work.op))
WHERE seq IN (SELECT value FROM json_each(?))
"""
PREFETCH_WORK = """
UPDATE work SET owner = ?, epoch = epoch + 1, attempts = attempts + 1 WHERE seq IN (SELECT value FROM json_each(?))
"""


def promote(connection: sqlite3.Connection, now: float) -> None:
    """Make delayed work items claimable that are due."""
    connection.execute(PROMOTE, (now,))


def busy_lanes(connection: sqlite3.Connection, kinds: KindFilter = None) -> tuple[list[LaneGroup], list[LaneLoad]]:
    """Return the lanes with claimable or running work, and their groups."""
    running, waiting = _running(connection), _waiting(connection, kinds)
    groups = {lane: grp for lane, (grp, _) in running.items()} | waiting
    packed = codec.fetch_packed(connection, LANES_AMONG, (encode(list(groups)).decode(),)) if groups else ()
    configured = {lane.lane: lane for lane in map(codec.lane_of, packed)}
    lanes = [configured.get(lane) or default_lane(lane, groups[lane]) for lane in sorted(groups)]
    names = {lane.grp for lane in lanes}
    rows = connection.execute(GROUPS_AMONG, (encode(list(names)).decode(),)) if names else ()
    known = {row[0]: LaneGroup(*row) for row in rows}
    return [known.get(name) or default_group(name) for name in sorted(names)], _loads(lanes, running, waiting)


def all_lanes(connection: sqlite3.Connection, now: float) -> tuple[list[LaneGroup], list[LaneLoad]]:
    """Return all lanes and groups that are configured or have work; read-only, so it also counts due delayed work."""
    running = _running(connection)
    waiting = _waiting(connection) | dict(connection.execute(DUE, (now,)).fetchall())
    groups = {lane: grp for lane, (grp, _) in running.items()} | waiting
    known = {row[0]: Lane(*row) for row in connection.execute(LANES)}
    lanes = [known.get(lane) or default_lane(lane, groups[lane]) for lane in sorted(known.keys() | groups.keys())]
    named = {row[0]: LaneGroup(*row) for row in connection.execute(GROUPS)}
    names = sorted(named.keys() | {lane.grp for lane in lanes})
    return [named.get(name) or default_group(name) for name in names], _loads(lanes, running, waiting)


def claim_work(
    connection: sqlite3.Connection,
    slots: Mapping[str, int],
    owner: str,
    now: float,
    prefetch: Mapping[str, int],
    kinds: KindFilter = None,
) -> list[Claim]:
    """Claim at most `slots[lane]` work items of each lane, and prefetch the next `prefetch[lane]`."""
    taken: list[Claim] = []
    held: list[Claim] = []
    for lane, rows in _candidates(connection, slots, prefetch, kinds).items():
        free = slots.get(lane, 0)
        taken += [codec.claim_of(row, owner, now) for row in rows[:free]]
        held += [codec.claim_of(row, owner) for row in takewhile(codec.is_never_started, rows[free:])]
    if taken:
        connection.execute(CLAIM_WORK, (owner, now, _seqs(taken)))
    if held:
        connection.execute(PREFETCH_WORK, (owner, _seqs(held)))
    return _in_claim_order(taken) + _in_claim_order(held)


def _candidates(
    connection: sqlite3.Connection, slots: Mapping[str, int], prefetch: Mapping[str, int], kinds: KindFilter
) -> dict[str, list[codec.Row]]:
    """Return the next claimable work of lanes, in order, with operations and objects.

    One query serves all lanes with the same limit, which is the same for most.
    """
    lanes: dict[int, list[str]] = {}
    for lane in {**slots, **prefetch}:
        lanes.setdefault(slots.get(lane, 0) + prefetch.get(lane, 0), []).append(lane)
    sql, known = (CANDIDATES, None) if kinds is None else (CANDIDATES_KNOWN, packed_kinds(kinds))
    candidates: dict[str, list[codec.Row]] = {}
    for limit, names in lanes.items():
        rows = codec.fetch_packed(connection, sql, (known, encode(names).decode(), limit))
        for row in sorted(rows, key=lambda row: (-row[PRIORITY], row[codec.WORK_SEQ])):
            candidates.setdefault(row[LANE], []).append(row)
    return candidates


def packed_kinds(kinds: Sequence[str]) -> str:
    """Return kinds as one JSON value."""
    return encode(kinds).decode()


def _seqs(claims: Iterable[Claim]) -> str:
    return encode([claim.work.seq for claim in claims]).decode()


def _in_claim_order(claims: list[Claim]) -> list[Claim]:
    return sorted(claims, key=lambda claim: (-claim.work.priority, claim.work.seq))


def _running(connection: sqlite3.Connection) -> dict[str, tuple[str, int]]:
    running: dict[str, tuple[str, int]] = {}
    for lane, grp, count in codec.fetch_packed(connection, RUNNING):
        running[lane] = grp, count + running.get(lane, (grp, 0))[1]
    return running


def _waiting(connection: sqlite3.Connection, kinds: KindFilter = None) -> dict[str, str]:
    """Return the lanes with claimable work, and their groups."""
    if kinds is None:
        return dict(codec.fetch_packed(connection, WAITING))
    return dict(codec.fetch_packed(connection, WAITING_KNOWN, (packed_kinds(kinds),)))


def _loads(lanes: Iterable[Lane], running: Mapping[str, tuple[str, int]], waiting: Collection[str]) -> list[LaneLoad]:
    return [LaneLoad(lane, running.get(lane.lane, ("", 0))[1], lane.lane in waiting) for lane in lanes]
