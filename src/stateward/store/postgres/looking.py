"""What readers ask."""

from stateward.store.postgres.claiming import CLAIMABLE, DELAYED
from stateward.store.postgres.rows import spelled

# An operation is stored as waiting until it has ended; that somebody works on it is known from its work.
SHOWN_STATUS = (
    "CASE WHEN o.status = 'waiting' AND (w.owner IS NOT NULL AND w.deadline IS NOT NULL OR w.remote)"
    " THEN 'running' ELSE o.status END"
)
SHOWN = spelled("SELECT {Operation:o} FROM operations o LEFT JOIN work w ON w.ns = o.ns AND w.op = o.id").replace(
    "o.status", SHOWN_STATUS
)

OBJECT = spelled("SELECT {Object:o} FROM objects o WHERE o.ns = $1 AND o.id = $2")
OBJECTS = spelled("SELECT {Object:o} FROM objects o WHERE <chosen> ORDER BY o.id LIMIT ")
STATES = "SELECT o.kind, o.state, count(*) FROM objects o WHERE <chosen> GROUP BY o.kind, o.state"
OPERATION = spelled("<shown> WHERE o.ns = $1 AND o.id = $2", shown=SHOWN)
OPERATIONS_OF = spelled(
    "<shown> WHERE o.ns || '' = $1 AND o.object = $2 ORDER BY o.created DESC, o.id DESC LIMIT $3", shown=SHOWN
)
CHILDREN_OF = spelled("<shown> WHERE o.ns = $1 AND o.parent = $2 ORDER BY o.created, o.id", shown=SHOWN)
QUEUE_OF = spelled("SELECT {WorkItem:w} FROM work w WHERE w.ns || '' = $1 AND w.queue = $2 ORDER BY w.seq")
LINES = spelled("SELECT {JournalEntry:j} FROM journal j WHERE <chosen> ORDER BY j.seq LIMIT ")
LAST_LINE = "SELECT coalesce(max(seq), 0) FROM journal"
CENSUS = """
SELECT l.seq, o.ns, o.kind, o.state, o.count
FROM (SELECT coalesce(max(seq), 0) AS seq FROM journal) l
LEFT JOIN (
    SELECT ns, kind, state, count(*) AS count FROM objects
    WHERE ns = ANY($1::text[]) AND ($2::text IS NULL OR kind = $2) AND NOT removed GROUP BY ns, kind, state
) o ON true
"""
PROGRESS_OF = spelled("SELECT {Progress:p} FROM progress p WHERE p.ns = $1 AND p.op = $2 AND p.seq > $3 ORDER BY p.seq")
WORKERS = spelled("SELECT {Worker:k} FROM workers k ORDER BY k.id")
TIMERS = spelled("""
SELECT {Timer:t} FROM timers t WHERE $1::text IS NULL OR t.ns = $1 ORDER BY t.due, t.rank, t.ns, t.id LIMIT $2
""")
LOCKS_OF = spelled("SELECT {Lock:l} FROM locks l WHERE l.ns = $1 AND l.tree = $2 ORDER BY l.seq")
GROUPS = "SELECT grp, lanes FROM lane_groups"

LANES = spelled(
    """
WITH busy AS (
    SELECT lane, max(grp) AS grp,
           (count(*) FILTER (WHERE owner IS NOT NULL AND deadline IS NOT NULL))::integer AS running,
           bool_or((<claimable>) OR (<delayed>) AND not_before <= extract(epoch FROM clock_timestamp())) AS waiting
    FROM work GROUP BY lane
)
SELECT coalesce(b.lane, l.lane), coalesce(l.grp, b.grp), l.capacity, l.back_off, l.opened, l.throttled,
       coalesce(b.running, 0), coalesce(b.waiting, false), g.lanes
FROM busy b
FULL JOIN lanes l ON l.lane = b.lane
LEFT JOIN lane_groups g ON g.grp = coalesce(l.grp, b.grp)
ORDER BY 1
""",
    claimable=CLAIMABLE,
    delayed=DELAYED,
)

WORK_BY_LANE = """
SELECT w.lane, count(*) FILTER (WHERE w.owner IS NOT NULL AND w.deadline IS NOT NULL OR w.remote),
       count(*) FILTER (WHERE (w.owner IS NULL OR w.deadline IS NULL) AND NOT w.remote), min(o.created)
FROM work w JOIN operations o ON o.ns = w.ns AND o.id = w.op
WHERE NOT w.fenced AND ($1::text[] IS NULL OR w.ns = ANY ($1)) GROUP BY w.lane ORDER BY w.lane
"""
STUCK = """
WITH clock AS MATERIALIZED (SELECT extract(epoch FROM clock_timestamp())::double precision AS now),
late AS (
    SELECT w.seq, w.deadline AS since, false AS orphaned FROM clock, work w WHERE w.deadline <= clock.now
    UNION ALL
    SELECT w.seq, k.seen + k.lease, true FROM clock, workers k JOIN work w ON w.owner = k.id
    WHERE k.seen + k.lease < clock.now
), first AS (SELECT seq, min(since) AS since, bool_or(orphaned) AS orphaned FROM late GROUP BY seq)
SELECT w.ns, w.object, b.kind, b.state, w.op, o.action, w.owner, w.attempts, w.deadline, f.since, f.orphaned
FROM first f
JOIN work w ON w.seq = f.seq
JOIN objects b ON b.ns = w.ns AND b.id = w.object
JOIN operations o ON o.ns = w.ns AND o.id = w.op
WHERE $1::text[] IS NULL OR w.ns = ANY ($1)
ORDER BY f.since, w.seq LIMIT $2
"""
# One step in the index for each namespace, however many objects it has.
NAMESPACES = """
WITH RECURSIVE found(ns) AS (
    (SELECT ns FROM objects ORDER BY ns LIMIT 1)
    UNION ALL
    SELECT (SELECT o.ns FROM objects o WHERE o.ns > found.ns ORDER BY o.ns LIMIT 1)
    FROM found WHERE found.ns IS NOT NULL
)
SELECT ns FROM found WHERE ns IS NOT NULL
"""

# A deadline that has passed under a live worker wakes nobody: that worker is about to answer for it.
NEXT_WAKE = spelled(
    """
WITH clock AS MATERIALIZED (SELECT extract(epoch FROM clock_timestamp())::double precision AS now)
SELECT least(
    (SELECT min(due) FROM timers),
    (SELECT min(not_before) FROM work WHERE <delayed>),
    (SELECT w.deadline FROM clock, work w
     WHERE w.deadline IS NOT NULL AND (w.deadline >= clock.now OR NOT EXISTS (
         SELECT FROM workers k WHERE k.id = w.owner AND k.seen + k.lease >= clock.now
     ))
     ORDER BY w.deadline LIMIT 1)
)
""",
    delayed=DELAYED,
)
