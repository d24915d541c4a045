"""The clauses that write: one for each kind of row, each a set, each counting what it wrote.

`{rows}` stands for an array of rows. What is `exact` must take effect on every row, or a race was lost: the versions
of the objects are the compare-and-set of every state change, and answers are first come, first served.
"""

from msgspec import Struct

from stateward.store.postgres.rows import RECORDS, spelled


class Clause(Struct, frozen=True):
    """How rows of one kind are written."""

    name: str
    table: str
    sql: str
    exact: bool = False


BORN = Clause(
    "born",
    "objects",
    spelled(
        "INSERT INTO objects SELECT {Object:r} FROM unnest({rows}::objects[]) r ON CONFLICT DO NOTHING RETURNING 1"
    ),
    exact=True,
)
MOVED = Clause(
    "moved",
    "objects",
    """
    UPDATE objects o
    SET state = r.state, since = r.since, version = r.version, generation = r.generation, op = r.op, error = r.error
    FROM unnest({rows}::moved_row[]) r
    WHERE o.ns = r.ns AND o.id = r.id AND o.version = r.version - 1
    RETURNING 1
    """,
    exact=True,
)
REPLACED = Clause(
    "replaced",
    "objects",
    spelled("""
    UPDATE objects o SET {Object=r}
    FROM unnest({rows}::objects[]) r
    WHERE o.ns = r.ns AND o.id = r.id AND o.version = r.version - 1
    RETURNING 1
    """),
    exact=True,
)
ACCEPTED = Clause(
    "accepted",
    "operations",
    spelled("INSERT INTO operations SELECT {Operation:r} FROM unnest({rows}::operations[]) r RETURNING 1"),
)
STEPPED = Clause(
    "stepped",
    "operations",
    """
    UPDATE operations o SET steps = r.steps
    FROM unnest({rows}::steps_row[]) r WHERE o.ns = r.ns AND o.id = r.op
    RETURNING 1
    """,
    exact=True,
)
ENDED = Clause(
    "ended",
    "operations",
    """
    UPDATE operations o
    SET status = r.status, attempts = r.attempts, started = r.started, ended = r.ended, result = r.result,
        error = r.error
    FROM unnest({rows}::ended_row[]) r WHERE o.ns = r.ns AND o.id = r.op
    RETURNING 1
    """,
    exact=True,
)
ENQUEUED = Clause(
    "enqueued",
    "work",
    spelled("INSERT INTO work SELECT {Work:r}, r.delayed FROM unnest({rows}::work[]) r RETURNING 1").replace(
        "r.seq", "coalesce(nullif(r.seq, 0), nextval('work_seq'))"
    ),
)
REQUEUED = Clause(
    "requeued",
    "work",
    spelled("""
    UPDATE work w SET {Work=r}, delayed = r.delayed
    FROM unnest({rows}::work[]) r WHERE w.ns = r.ns AND w.op = r.op
    RETURNING 1
    """),
    exact=True,
)
DEQUEUED = Clause(
    "dequeued",
    "work",
    "DELETE FROM work w USING unnest({rows}::row_key[]) r WHERE w.ns = r.ns AND w.op = r.id RETURNING 1",
)
# The parents are locked in a fixed order, as children of the same parents may end in several processes at once.
RELIEVED = Clause(
    "relieved",
    "work",
    """
    WITH parents AS MATERIALIZED (
        SELECT w.ns, w.op, e.ended
        FROM (SELECT ns, id, count(*)::integer AS ended FROM unnest({rows}::row_key[]) r GROUP BY ns, id) e
        JOIN work w ON w.ns = e.ns AND w.op = e.id
        ORDER BY w.seq
        FOR UPDATE OF w
    )
    UPDATE work w SET children = greatest(w.children - p.ended, 0) FROM parents p WHERE w.ns = p.ns AND w.op = p.op
    RETURNING 1
    """,
)
PROGRESSED = Clause(
    "progressed",
    "progress",
    spelled("INSERT INTO progress SELECT {Progress:r} FROM unnest({rows}::progress[]) r RETURNING 1").replace(
        "r.seq", "nextval('progress_seq')"
    ),
)
LOCKED = Clause(
    "locked",
    "locks",
    spelled("INSERT INTO locks SELECT {Lock:r} FROM unnest({rows}::locks[]) r RETURNING 1").replace(
        "r.seq", "coalesce(nullif(r.seq, 0), nextval('lock_seq'))"
    ),
)
GRANTED = Clause(
    "granted",
    "locks",
    """
    UPDATE locks l SET waiting = false
    FROM unnest({rows}::locks[]) r
    WHERE l.ns = r.ns AND l.tree = r.tree AND l.path = r.path AND l.op = r.op AND l.mode = r.mode
    RETURNING 1
    """,
    exact=True,
)
UNLOCKED = Clause(
    "unlocked",
    "locks",
    "DELETE FROM locks l USING unnest({rows}::row_key[]) r WHERE l.ns || '' = r.ns AND l.op = r.id RETURNING 1",
)
STOPPED = Clause(
    "stopped",
    "timers",
    "DELETE FROM timers t USING unnest({rows}::row_key[]) r WHERE t.ns = r.ns AND t.id = r.id RETURNING 1",
)
TIMED = Clause(
    "timed",
    "timers",
    spelled("""
    INSERT INTO timers SELECT {Timer:r} FROM unnest({rows}::timers[]) r
    ON CONFLICT (ns, id) DO UPDATE SET {Timer=excluded}
    RETURNING 1
    """),
)
ANSWERED = Clause(
    "answered",
    "answers",
    spelled(
        "INSERT INTO answers SELECT {Answer:r} FROM unnest({rows}::answers[]) r ON CONFLICT DO NOTHING RETURNING 1"
    ),
    exact=True,
)
GROUPED = Clause(
    "grouped",
    "lane_groups",
    """
    INSERT INTO lane_groups SELECT r.grp, r.lanes FROM unnest({rows}::lane_groups[]) r
    ON CONFLICT (grp) DO UPDATE SET lanes = excluded.lanes
    RETURNING 1
    """,
)
LANED = Clause(
    "laned",
    "lanes",
    spelled("""
    INSERT INTO lanes SELECT {Lane:r} FROM unnest({rows}::lanes[]) r
    ON CONFLICT (lane) DO UPDATE SET grp = excluded.grp, {Lane=excluded}
    RETURNING 1
    """),
)
# Lines get their numbers when it is their turn, in the order in which they were given.
JOURNALED = Clause(
    "journaled",
    "journal",
    spelled(
        """
    INSERT INTO journal
    SELECT <numbered> FROM turn, unnest({rows}::journal[]) WITH ORDINALITY AS r(<named>, place)
    ORDER BY r.place
    RETURNING 1
    """,
        numbered=spelled("{Line:r}").replace("r.seq", "nextval('journal_seq')"),
        named=", ".join(RECORDS["Line"]),
    ),
)
