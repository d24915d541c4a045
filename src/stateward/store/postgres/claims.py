"""Claims on PostgreSQL: work items are counted and claimed under one short lock per lane group.

Limits are checked by counting running rows, never by a stored counter, so a dead worker leaks nothing. The lock of a
group is taken in its own statement, before the one that counts, which then sees the claims of the previous holder.
The default lane without limits needs no lock: rows that another transaction claims are skipped.
"""

from collections.abc import Collection, Iterable

from stateward.store.port import LaneLoad
from stateward.store.postgres.codec import render_sql
from stateward.store.postgres.connections import Row
from stateward.store.records import (
    OVERDUE_PRIORITY,
    STATE_FIELDS,
    UNLIMITED,
    Lane,
    LaneGroup,
    default_group,
    default_lane,
)

DUE_BATCH_ROWS = 1000

CLAIMABLE = "ready AND NOT remote AND NOT fenced AND children = 0 AND owner IS NULL AND NOT delayed"
DELAYED = CLAIMABLE.replace("NOT delayed", "delayed")
"""Word for word as in the partial indexes, or PostgreSQL would not use those."""


OBJECT_WORDS = """o.kind || ' state ' || o.state, o.kind || ' version ' || CASE
        WHEN substr(o.spec, 2, 11) = '"$version":' THEN substring(substr(o.spec, 13, 9) FROM '^[0-9]+') ELSE '1'
    END"""
STATE_WORDS = ", ".join(f"p.kind || ' state ' || p.{name}" for name in STATE_FIELDS)

KNOWN = render_sql(
    """(
    SELECT p.kind = ANY ($<place>::text[])
        AND NOT ARRAY[p.kind || ' action ' || p.action, <state_words>, <object_words>] && $<place>::text[]
    FROM operations p JOIN objects o ON {o.ns==p.ns} AND o.id = p.object WHERE {p.ns==work.ns} AND p.id = work.op
)""",
    state_words=STATE_WORDS,
    object_words=OBJECT_WORDS,
)
"""The condition that all of an operation is known; a look-up of each row, which the planner cannot turn round."""

KNOWN_TIMER = render_sql(
    """coalesce((
    SELECT o.removed OR (
        o.kind = ANY ($<place>::text[])
        AND NOT ARRAY[o.kind || ' action ' || t.event, <object_words>] && $<place>::text[]
    ) FROM objects o WHERE o.ns = t.ns AND o.id = t.object
), true)""",
    object_words=OBJECT_WORDS,
)
"""The condition that a timer is not about an existing object of which something is unknown, and its event is known."""

EXPEDITED = f"(work.owner IS NULL AND work.priority = {OVERDUE_PRIORITY} AND NOT work.remote AND NOT work.fenced)"
"""The condition that overdue work goes first in its lane already, and waits for a worker."""


def with_filter(sql: str, place: int) -> tuple[str, str]:
    """Return a statement without and with the filter by kind, whose parameter has this number."""
    conditions = {"known": f"AND {KNOWN}", "known_timer": f"AND {KNOWN_TIMER}"}
    known = sql
    for name, condition in conditions.items():
        known = known.replace(f"<{name}>", condition.replace("<place>", str(place)))
        sql = sql.replace(f"<{name}>", "")
    return sql, known


# Lanes with claimable work, by a loose index scan.
HEADS = render_sql(
    """heads AS (
    (SELECT lane, grp FROM work WHERE <claimable> <known> ORDER BY lane, priority DESC, seq LIMIT 1)
    UNION ALL
    SELECT n.lane, n.grp FROM heads h CROSS JOIN LATERAL (
        SELECT lane, grp FROM work WHERE <claimable> AND lane > h.lane <known>
        ORDER BY lane, priority DESC, seq LIMIT 1
    ) n
)""",
    claimable=CLAIMABLE,
)

DUE_ROWS = render_sql(
    """due AS MATERIALIZED (
    SELECT ns, op FROM work WHERE <delayed> AND not_before <= $1 ORDER BY not_before LIMIT $2 FOR UPDATE SKIP LOCKED
), ripe AS (
    UPDATE work w SET delayed = false FROM due d WHERE {w.ns==d.ns} AND w.op = d.op
    RETURNING w.lane, w.grp
)""",
    delayed=DELAYED,
)

PROMOTE_DUE = render_sql("WITH <ripe> SELECT count(*) FROM ripe", ripe=DUE_ROWS)

LOCK_GROUPS, LOCK_GROUPS_KNOWN = with_filter(
    render_sql(
        """
WITH RECURSIVE <heads>, <ripe>, found AS MATERIALIZED (
    SELECT DISTINCT coalesce(l.grp, f.grp) AS grp
    FROM (SELECT lane, grp FROM heads UNION SELECT lane, grp FROM ripe) f LEFT JOIN lanes l ON l.lane = f.lane
    WHERE NOT (f.lane = '' AND coalesce(l.grp, f.grp) = '' AND coalesce(l.capacity, <unlimited>) = <unlimited>)
    ORDER BY grp
)
SELECT grp, pg_advisory_xact_lock(hashtextextended(grp, $3)) FROM found
""",
        heads=HEADS,
        ripe=DUE_ROWS,
        unlimited=str(UNLIMITED),
    ),
    4,
)

LOADS, LOADS_KNOWN = with_filter(
    render_sql(
        """
WITH RECURSIVE <heads>, busy AS (
    SELECT lane, max(grp) AS grp, sum(running)::integer AS running, bool_or(waiting) AS waiting
    FROM (
        SELECT lane, grp, 0 AS running, true AS waiting FROM heads
        UNION ALL
        SELECT lane, grp, (deadline IS NOT NULL)::integer, false FROM work WHERE owner IS NOT NULL
    ) every
    GROUP BY lane
)
SELECT b.lane, coalesce(l.grp, b.grp), l.capacity, l.back_off, l.opened, l.throttled, b.running, b.waiting, g.lanes
FROM busy b
LEFT JOIN lanes l ON l.lane = b.lane
LEFT JOIN lane_groups g ON g.grp = coalesce(l.grp, b.grp)
ORDER BY b.lane
""",
        heads=HEADS,
    ),
    1,
)

CLAIM_WORK, CLAIM_WORK_KNOWN = with_filter(
    render_sql(
        """
WITH chosen AS MATERIALIZED (
    SELECT c.*, r.room
    FROM unnest($1::text[], $2::integer[], $5::integer[]) AS r(lane, room, spare)
    CROSS JOIN LATERAL (
        SELECT ns, op, lane, priority, seq, deadline FROM work WHERE lane = r.lane AND <claimable> <known>
        ORDER BY priority DESC, seq LIMIT r.room + r.spare FOR UPDATE SKIP LOCKED
    ) c
), placed AS (
    SELECT *, row_number() OVER (PARTITION BY lane ORDER BY priority DESC, seq) > room AS spare FROM chosen
), wanted AS (
    SELECT ns, op, spare FROM (
        SELECT *, bool_or(spare AND deadline IS NOT NULL)
                  OVER (PARTITION BY lane ORDER BY priority DESC, seq) AS held_up
        FROM placed
    ) p WHERE NOT held_up
), taken AS (
    UPDATE work w
    SET owner = $3, epoch = w.epoch + 1, attempts = w.attempts + 1,
        deadline = CASE WHEN NOT c.spare THEN
            coalesce(w.deadline, $4 + (SELECT within FROM operations o WHERE o.ns = w.ns AND o.id = w.op)) END
    FROM wanted c
    WHERE {w.ns==c.ns} AND w.op = c.op
    RETURNING {WorkItem:w}
)
SELECT {WorkItem:t} FROM taken t ORDER BY t.deadline IS NULL, t.priority DESC, t.seq
""",
        claimable=CLAIMABLE,
    ),
    6,
)

# A separate statement, so that it sees the changes that the last owner of the work committed.
CLAIMED_ROWS = render_sql("""
SELECT {Operation:o}, {Object:b}
FROM unnest($1::row_key[]) WITH ORDINALITY AS k(ns, id, place)
JOIN operations o ON {o.ns==k.ns} AND o.id = k.id
JOIN objects b ON {b.ns==o.ns} AND b.id = o.object
ORDER BY k.place
""")


def lane_load(row: Row) -> tuple[LaneGroup, LaneLoad]:
    """Return a lane's group and load from a row; without configuration they have the defaults."""
    name, grp, capacity, back_off, opened, throttled, running, waiting, lanes = row
    lane = default_lane(name, grp) if capacity is None else Lane(name, grp, capacity, back_off, opened, throttled)
    group = default_group(grp) if lanes is None else LaneGroup(grp, lanes)
    return group, LaneLoad(lane, running, waiting)


def loads_of(rows: Iterable[Row], locked: Collection[str]) -> tuple[list[LaneGroup], list[LaneLoad]]:
    """Return groups and loads; work of groups that are not locked is left to the next claim."""
    groups: dict[str, LaneGroup] = {}
    loads = []
    for group, load in map(lane_load, rows):
        ours = group.grp in locked or is_unlimited(load.lane)
        if load.running or (load.waiting and ours):
            groups[group.grp] = group
            loads.append(load if ours else LaneLoad(load.lane, load.running, waiting=False))
    return list(groups.values()), loads


def is_unlimited(lane: Lane) -> bool:
    """Return whether a lane has no limits, so that its running work need not be counted."""
    return not lane.lane and not lane.grp and lane.capacity == UNLIMITED
