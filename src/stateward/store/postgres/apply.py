# ruff: noqa: S608 - statements are put together from our own constants
"""The writer of change sets: each kind of row is one clause, and all clauses are one `WITH` statement.

A transaction costs round trips, so a change set is sent at once: whole rows, as arrays of the tables' row types (by far
the cheapest form for the driver). The clauses take effect in order, and each counts its rows. The journal comes last:
its sequence numbers are assigned under a lock that is held until the commit, which puts them in the order of commits.
So the lock is taken only after all else is written and every exact count is right.

One statement cannot change a row twice. If two clauses touch the same row (an operation that is added and ended at
once), the later one goes into a further statement.

`{rows}` stands for an array of rows. An `exact` clause must have an effect on every row, or a race was lost: the
versions of objects are the compare-and-set of every state change, and the first writer of an idempotency record wins.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import astuple

from stateward.store.changes import Changes, sort_objects
from stateward.store.postgres.codec import render_sql
from stateward.store.records import JournalEntry, Key, Object, WorkItem


class Clause(Struct, frozen=True):
    """The SQL that writes rows of one kind."""

    name: str
    table: str
    sql: str
    exact: bool


def _clause(name: str, table: str, sql: str, *, exact: bool = False, number: str = "r.seq") -> Clause:
    """Return a clause; `number` is the SQL that assigns a row its sequence number, if the store does."""
    return Clause(name, table, render_sql(sql).replace("r.seq", number), exact)


def _insert(
    name: str,
    table: str,
    columns: str,
    on_conflict: str = "",
    *,
    exact: bool = False,
    number: str = "r.seq",
    row_type: str | None = None,
) -> Clause:
    """Return the clause that inserts rows into a table; their type has the table's name, unless it is given."""
    rows = f"unnest({{rows}}::{row_type or f'{table}_row'}[]) r"
    sql = f"INSERT INTO {table} SELECT {columns} FROM {rows} {on_conflict} RETURNING 1"
    return _clause(name, table, sql, exact=exact, number=number)


def _update_operations(name: str, row_type: str, key: str, *columns: str) -> Clause:
    """Return the exact clause that sets columns of operations; `key` is the column of the rows with their id."""
    settings = ", ".join(f"{column} = r.{column}" for column in columns)
    rows = f"unnest({{rows}}::{row_type}[]) r WHERE {{o.ns==r.ns}} AND o.id = r.{key}"
    return _clause(name, "operations", f"UPDATE operations o SET {settings} FROM {rows} RETURNING 1", exact=True)


def _delete(name: str, table: str, where: str) -> Clause:
    """Return the clause that deletes rows by key, on the aliases `t` of the table and `r` of the keys."""
    sql = f"DELETE FROM {table} t USING unnest({{rows}}::row_key[]) r WHERE {where} RETURNING 1"
    return _clause(name, table, sql)


CREATED_OBJECTS = _insert("created", "objects", "{Object:r}", "ON CONFLICT DO NOTHING", exact=True)
TRANSITIONED_OBJECTS = _clause(
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
REPLACED_OBJECTS = _clause(
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
OPERATION_ROW = "operations_row_2"
NEW_OPERATIONS = _insert("accepted", "operations", "{Operation:r}", row_type=OPERATION_ROW)
# A text for an operation has a row type, whatever the text is. This row was ended: a statement of its own masks it.
MASKED_ARGS = _clause(
    "masked",
    "operations",
    """
    UPDATE operations o SET args = r.steps
    FROM unnest({rows}::steps_row[]) r WHERE {o.ns==r.ns} AND o.id = r.op
    RETURNING 1
    """,
    exact=True,
)
OPERATION_STEPS = _update_operations("stepped", "steps_row", "op", "steps")
RENAMED_STATES = _update_operations("recast", OPERATION_ROW, "id", "origin", "via", "desired", "failing")
ENDED_OPERATIONS = _clause(
    "ended",
    "operations",
    """
    UPDATE operations o
    SET status = r.status, attempts = r.attempts, started = r.started, ended = r.ended, result = r.result,
        error = r.error, steps = coalesce(r.steps, o.steps)
    FROM unnest({rows}::ended_row_2[]) r WHERE {o.ns==r.ns} AND o.id = r.op
    RETURNING 1
    """,
    exact=True,
)
NEW_WORK = _insert(
    "enqueued", "work", "{WorkItem:r}, r.delayed", number="coalesce(nullif(r.seq, 0), nextval('work_seq'))"
)
CHANGED_WORK = _clause(
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
STARTED_PREFETCHED = _clause(
    "begun",
    "work",
    """
    UPDATE work w SET deadline = r.deadline
    FROM unnest({rows}::work_row[]) r
    WHERE {w.ns==r.ns} AND w.op = r.op AND w.owner = r.owner AND w.epoch = r.epoch AND w.deadline IS NULL
    RETURNING 1
    """,
)
REMOVED_WORK = _delete("dequeued", "work", "{t.ns==r.ns} AND t.op = r.id")
# Parents are locked in a fixed order, because their children may end in several processes at once.
ENDED_CHILDREN = _clause(
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
PROGRESS_ENTRIES = _insert("progressed", "progress", "{Progress:r}", number="nextval('progress_seq')")
NEW_LOCKS = _insert("locked", "locks", "{Lock:r}", number="coalesce(nullif(r.seq, 0), nextval('lock_seq'))")
GRANTED_LOCKS = _clause(
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
RELEASED_LOCKS = _delete("unlocked", "locks", "{t.ns || ''==r.ns} AND t.op = r.id")
NEW_SIGNALS = _insert("signalled", "signals", "{Signal:r}", number="nextval('signal_seq')")
TAKEN_SIGNALS = _clause(
    "taken",
    "signals",
    """
    DELETE FROM signals t USING unnest({rows}::signals_row[]) r
    WHERE {t.ns==r.ns} AND t.op = r.op AND t.seq = r.seq
    RETURNING 1
    """,
    exact=True,
)
REMOVED_TIMERS = _delete("stopped", "timers", "{t.ns==r.ns} AND t.id = r.id")
TIMERS = _insert("timed", "timers", "{Timer:r}", "ON CONFLICT (ns, id) DO UPDATE SET {Timer=excluded}")
IDEMPOTENCY_RECORDS = _insert("answered", "answers", "{IdempotencyRecord:r}", "ON CONFLICT DO NOTHING", exact=True)
LANES = _insert("laned", "lanes", "{Lane:r}", "ON CONFLICT (lane) DO UPDATE SET grp = excluded.grp, {Lane=excluded}")
REMOVED_LANES = _delete(
    "unlaned", "lanes", "t.lane = r.id AND NOT EXISTS (SELECT FROM work w WHERE w.lane = r.id OFFSET 0)"
)
LANE_GROUPS = _insert(
    "grouped", "lane_groups", "{LaneGroup:r}", "ON CONFLICT (grp) DO UPDATE SET lanes = excluded.lanes"
)
# Entries get their numbers under the journal lock, in the given order.
JOURNAL_ENTRIES = _clause(
    "journaled",
    "journal",
    render_sql(
        """
    INSERT INTO journal
    SELECT {JournalEntry:r} FROM locked_journal, unnest({rows}::journal_row[]) WITH ORDINALITY AS r(<columns>, place)
    ORDER BY r.place
    RETURNING 1
    """,
        columns=", ".join(JournalEntry.__struct_fields__),
    ),
    number="nextval('journal_seq')",
)


Rows: TypeAlias = Sequence[tuple[Any, ...]]

_first_two = itemgetter(0, 1)
_transition_columns = attrgetter("ns", "id", "state", "since", "version", "generation", "op", "error")


class ClauseRows(NamedTuple):
    """A clause with its rows."""

    clause: Clause
    rows: Rows

    def keys(self) -> set[tuple[Any, ...]]:
        """Return the keys of the touched rows."""
        if self.clause is NEW_LOCKS or self.clause is GRANTED_LOCKS:
            return {(row[0], row[4]) for row in self.rows}
        return set(map(_first_two, self.rows))


def clause_rows_of(changes: Changes, known: Mapping[Key, Object], now: float) -> list[ClauseRows]:
    """Return the clauses with rows, in the order in which they take effect."""
    return [ClauseRows(clause, rows) for clause, rows in _all_rows(changes, known, now) if rows]


def _all_rows(changes: Changes, known: Mapping[Key, Object], now: float) -> Iterator[tuple[Clause, Rows]]:
    created, transitioned, replaced = sort_objects(changes.objects, known)
    yield CREATED_OBJECTS, _tuples(created)
    yield TRANSITIONED_OBJECTS, [_transition_columns(record) for record in transitioned]
    yield REPLACED_OBJECTS, _tuples(replaced)
    yield NEW_OPERATIONS, _tuples(changes.operations)
    yield ENDED_OPERATIONS, _tuples(changes.ended)
    yield MASKED_ARGS, [(key.ns, key.id, args) for key, args in changes.masked_args]
    yield OPERATION_STEPS, [(key.ns, key.id, steps) for key, steps in changes.steps]
    yield RENAMED_STATES, _tuples(changes.renamed_states)
    yield REMOVED_WORK, changes.work_gone
    yield NEW_WORK, _work(changes.new_work, now)
    yield CHANGED_WORK, _work(changes.work, now)
    yield STARTED_PREFETCHED, _work(changes.prefetch_started, now)
    yield ENDED_CHILDREN, changes.children_ended
    yield RELEASED_LOCKS, changes.locks_gone
    yield NEW_LOCKS, _tuples(changes.locks)
    yield GRANTED_LOCKS, _tuples(changes.locks_granted)
    yield NEW_SIGNALS, _tuples(changes.signals)
    yield TAKEN_SIGNALS, _tuples(changes.signals_gone)
    yield REMOVED_TIMERS, changes.timers_gone
    yield TIMERS, _tuples({timer.key: timer for timer in changes.timers}.values())
    yield IDEMPOTENCY_RECORDS, sorted(_tuples(changes.idempotency_records), key=_first_two)
    yield REMOVED_LANES, [("", lane) for lane in changes.lanes_gone]
    yield LANES, sorted(_tuples({lane.lane: lane for lane in changes.lanes}.values()))
    yield LANE_GROUPS, sorted(_tuples({group.grp: group for group in changes.groups}.values()))
    yield PROGRESS_ENTRIES, _tuples(changes.progress)


def _tuples(records: Iterable[Any]) -> Rows:
    return list(map(astuple, records))


def _work(work: Iterable[WorkItem], now: float) -> Rows:
    return [(*astuple(work_item), work_item.not_before > now) for work_item in work]


def split_statements(parts: Iterable[ClauseRows]) -> list[list[ClauseRows]]:
    """Split the clauses into as few statements as possible: at least one, and none that touches a row twice."""
    statements: list[list[ClauseRows]] = [[]]
    for part in parts:
        rivals = [rival for rival in statements[-1] if rival.clause.table == part.clause.table]
        if any(not rival.keys().isdisjoint(part.keys()) for rival in rivals):
            statements.append([])
        statements[-1].append(part)
    return statements


@cache  # bounded by: the combinations of changes in transactions
def compose_statement(written: tuple[Clause, ...], *, journaled: bool, notified: bool) -> str:
    """Return a statement that executes the clauses and returns their row counts.

    Its values are the rows of each clause, then the journal's rows and the number of its lock, then the channel and the
    payload of the notification.
    """
    places = {clause: f"${number}" for number, clause in enumerate(written, 1)}
    named = {clause.name: clause.sql.replace("{rows}", place) for clause, place in places.items()}
    named["tally"] = "SELECT " + ", ".join(
        ["1 AS one", *(f"(SELECT count(*) FROM {name}) AS {name}" for name in named)]
    )
    gate, last = "tally", len(written)
    if journaled:
        right = [f" AND {column.name} = cardinality({place})" for column, place in places.items() if column.exact]
        named["locked_journal"] = f"SELECT pg_advisory_xact_lock(${last + 2}) FROM tally WHERE true{''.join(right)}"
        named["journaled"] = JOURNAL_ENTRIES.sql.replace("{rows}", f"${last + 1}")
        gate, last = "locked_journal", last + 2
    if notified:
        named["notified"] = f"SELECT pg_notify(${last + 1}, ${last + 2}) FROM {gate}"
    ends = [f", (SELECT count(*) FROM {name})" for name in ("journaled", "notified") if name in named]
    with_all = ", ".join(f"{name} AS MATERIALIZED ({sql})" for name, sql in named.items())
    return f"WITH {with_all} SELECT tally.*{''.join(ends)} FROM tally"
