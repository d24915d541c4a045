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
    exact: bool


def clause(name: str, table: str, sql: str, *, exact: bool = False, number: str = "r.seq") -> Clause:
    """Make a clause; `number` is what gives a row its number, where the store does."""
    return Clause(name, table, spelled(sql).replace("r.seq", number), exact)


BORN = clause(
    "born",
    "objects",
    "INSERT INTO objects SELECT {Object:r} FROM unnest({rows}::objects_row[]) r ON CONFLICT DO NOTHING RETURNING 1",
    exact=True,
)
MOVED = clause(
    "moved",
    "objects",
    """
    UPDATE objects o
    SET state = r.state, since = r.since, version = r.version, generation = r.generation, op = r.op, error = r.error
    FROM unnest({rows}::moved_row[]) r
    WHERE {o.ns==r.ns} AND o.id = r.id AND o.version = r.version - 1
    RETURNING 1
    """,
    exact=True,
)
REPLACED = clause(
    "replaced",
    "objects",
    """
    UPDATE objects o SET {Object=r}
    FROM unnest({rows}::objects_row[]) r
    WHERE {o.ns==r.ns} AND o.id = r.id AND o.version = r.version - 1
    RETURNING 1
    """,
    exact=True,
)
ACCEPTED = clause(
    "accepted",
    "operations",
    "INSERT INTO operations SELECT {Operation:r} FROM unnest({rows}::operations_row[]) r RETURNING 1",
)
STEPPED = clause(
    "stepped",
    "operations",
    """
    UPDATE operations o SET steps = r.steps
    FROM unnest({rows}::steps_row[]) r WHERE {o.ns==r.ns} AND o.id = r.op
    RETURNING 1
    """,
    exact=True,
)
RECAST = clause(
    "recast",
    "operations",
    """
    UPDATE operations o SET origin = r.origin, via = r.via, desired = r.desired, failing = r.failing
    FROM unnest({rows}::operations_row[]) r WHERE {o.ns==r.ns} AND o.id = r.id
    RETURNING 1
    """,
    exact=True,
)
ENDED = clause(
    "ended",
    "operations",
    """
    UPDATE operations o
    SET status = r.status, attempts = r.attempts, started = r.started, ended = r.ended, result = r.result,
        error = r.error
    FROM unnest({rows}::ended_row[]) r WHERE {o.ns==r.ns} AND o.id = r.op
    RETURNING 1
    """,
    exact=True,
)
ENQUEUED = clause(
    "enqueued",
    "work",
    "INSERT INTO work SELECT {WorkItem:r}, r.delayed FROM unnest({rows}::work_row[]) r RETURNING 1",
    number="coalesce(nullif(r.seq, 0), nextval('work_seq'))",
)
REQUEUED = clause(
    "requeued",
    "work",
    """
    UPDATE work w SET {WorkItem=r}, delayed = r.delayed
    FROM unnest({rows}::work_row[]) r WHERE {w.ns==r.ns} AND w.op = r.op
    RETURNING 1
    """,
    exact=True,
    number="coalesce(nullif(r.seq, 0), w.seq)",
)
BEGUN = clause(
    "begun",
    "work",
    """
    UPDATE work w SET deadline = r.deadline
    FROM unnest({rows}::work_row[]) r
    WHERE {w.ns==r.ns} AND w.op = r.op AND w.owner = r.owner AND w.epoch = r.epoch AND w.deadline IS NULL
    RETURNING 1
    """,
)
DEQUEUED = clause(
    "dequeued",
    "work",
    "DELETE FROM work w USING unnest({rows}::row_key[]) r WHERE {w.ns==r.ns} AND w.op = r.id RETURNING 1",
)
# The parents are locked in a fixed order, as children of the same parents may end in several processes at once.
RELIEVED = clause(
    "relieved",
    "work",
    """
    WITH parents AS MATERIALIZED (
        SELECT w.ns, w.op, e.ended
        FROM (SELECT ns, id, count(*)::integer AS ended FROM unnest({rows}::row_key[]) r GROUP BY ns, id) e
        JOIN work w ON {w.ns==e.ns} AND w.op = e.id
        ORDER BY w.seq
        FOR UPDATE OF w
    )
    UPDATE work w SET children = greatest(w.children - p.ended, 0) FROM parents p WHERE {w.ns==p.ns} AND w.op = p.op
    RETURNING 1
    """,
)
PROGRESSED = clause(
    "progressed",
    "progress",
    "INSERT INTO progress SELECT {Progress:r} FROM unnest({rows}::progress_row[]) r RETURNING 1",
    number="nextval('progress_seq')",
)
LOCKED = clause(
    "locked",
    "locks",
    "INSERT INTO locks SELECT {Lock:r} FROM unnest({rows}::locks_row[]) r RETURNING 1",
    number="coalesce(nullif(r.seq, 0), nextval('lock_seq'))",
)
GRANTED = clause(
    "granted",
    "locks",
    """
    UPDATE locks l SET waiting = false
    FROM unnest({rows}::locks_row[]) r
    WHERE {l.ns==r.ns} AND l.tree = r.tree AND l.path = r.path AND l.op = r.op AND l.mode = r.mode
    RETURNING 1
    """,
    exact=True,
)
UNLOCKED = clause(
    "unlocked",
    "locks",
    "DELETE FROM locks l USING unnest({rows}::row_key[]) r WHERE {l.ns || ''==r.ns} AND l.op = r.id RETURNING 1",
)
STOPPED = clause(
    "stopped",
    "timers",
    "DELETE FROM timers t USING unnest({rows}::row_key[]) r WHERE {t.ns==r.ns} AND t.id = r.id RETURNING 1",
)
TIMED = clause(
    "timed",
    "timers",
    """
    INSERT INTO timers SELECT {Timer:r} FROM unnest({rows}::timers_row[]) r
    ON CONFLICT (ns, id) DO UPDATE SET {Timer=excluded}
    RETURNING 1
    """,
)
ANSWERED = clause(
    "answered",
    "answers",
    """INSERT INTO answers SELECT {IdempotencyRecord:r} FROM unnest({rows}::answers_row[]) r
    ON CONFLICT DO NOTHING RETURNING 1""",
    exact=True,
)
LANED = clause(
    "laned",
    "lanes",
    """
    INSERT INTO lanes SELECT {Lane:r} FROM unnest({rows}::lanes_row[]) r
    ON CONFLICT (lane) DO UPDATE SET grp = excluded.grp, {Lane=excluded}
    RETURNING 1
    """,
)
GROUPED = clause(
    "grouped",
    "lane_groups",
    """
    INSERT INTO lane_groups SELECT r.grp, r.lanes FROM unnest({rows}::lane_groups_row[]) r
    ON CONFLICT (grp) DO UPDATE SET lanes = excluded.lanes
    RETURNING 1
    """,
)
# Lines get their numbers when it is their turn, in the order in which they were given.
JOURNALED = clause(
    "journaled",
    "journal",
    spelled(
        """
    INSERT INTO journal
    SELECT {JournalEntry:r} FROM turn, unnest({rows}::journal_row[]) WITH ORDINALITY AS r(<columns>, place)
    ORDER BY r.place
    RETURNING 1
    """,
        columns=", ".join(RECORDS["JournalEntry"]),
    ),
    number="nextval('journal_seq')",
)
