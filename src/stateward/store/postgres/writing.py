# ruff: noqa: S608 - statements are put together from our own constants
"""A set of changes as few statements: each kind of row is one clause, and all clauses go in one `WITH`.

Round trips are what a transaction costs, so everything is sent at once: whole rows, as arrays of the tables' own types
(by far the cheapest form for the driver). The clauses take effect one after the other, in the order given here, and
count what they wrote. The journal comes last: its numbers are given under a lock that is held until the commit, which
is what puts them in the order of commits, so its turn is waited for only when all else is written and every exact
count is right.

One statement cannot change a row twice. Where two clauses touch the same row (an operation that is added and ended at
once), the later one goes into a further statement.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import astuple

from stateward.store.changes import Changes
from stateward.store.postgres import clauses
from stateward.store.postgres.clauses import Clause
from stateward.store.records import Key, Object, WorkItem

Rows: TypeAlias = Sequence[tuple[Any, ...]]
Known: TypeAlias = Mapping[Key, Object]
"""The objects that the transaction has read, as they are stored."""

_first_two = itemgetter(0, 1)


class Part(NamedTuple):
    """A clause with its rows."""

    clause: Clause
    rows: Rows

    def keys(self) -> set[tuple[Any, ...]]:
        """Return what tells the touched rows of the table from others."""
        if self.clause is clauses.LOCKED or self.clause is clauses.GRANTED:
            return {(row[0], row[4]) for row in self.rows}
        return set(map(_first_two, self.rows))


def parts_of(changes: Changes, known: Known, now: float) -> list[Part]:
    """Return the changes as parts in the order in which they take effect, without those that have no rows."""
    return [Part(clause, rows) for clause, rows in _all_rows(changes, known, now) if rows]


def _all_rows(changes: Changes, known: Known, now: float) -> Iterator[tuple[Clause, Rows]]:
    yield from _objects(changes.objects, known)
    yield clauses.ACCEPTED, _tuples(changes.operations)
    yield clauses.ENDED, _tuples(changes.ended)
    yield clauses.STEPPED, [(key.ns, key.id, steps) for key, steps in changes.steps]
    yield clauses.RECAST, _tuples(changes.renamed_states)
    yield clauses.DEQUEUED, changes.work_gone
    yield clauses.ENQUEUED, _work(changes.new_work, now)
    yield clauses.REQUEUED, _work(changes.work, now)
    yield clauses.BEGUN, _work(changes.prefetch_started, now)
    yield clauses.RELIEVED, changes.children_ended
    yield clauses.UNLOCKED, changes.locks_gone
    yield clauses.LOCKED, _tuples(changes.locks)
    yield clauses.GRANTED, _tuples(changes.locks_granted)
    yield clauses.STOPPED, changes.timers_gone
    yield clauses.TIMED, _tuples({one.key: one for one in changes.timers}.values())
    yield clauses.ANSWERED, sorted(_tuples(changes.idempotency_records), key=_first_two)
    yield clauses.LANED, sorted(_tuples({one.lane: one for one in changes.lanes}.values()))
    yield clauses.GROUPED, sorted(_tuples({one.grp: one for one in changes.groups}.values()))
    yield clauses.PROGRESSED, _tuples(changes.progress)


def _objects(objects: Iterable[Object], known: Known) -> Iterator[tuple[Clause, Rows]]:
    born, moved, replaced = [], [], []
    for one in objects:
        if one.version == 1:
            born.append(astuple(one))
        elif _only_moved(known.get(one.key), one):
            moved.append((one.ns, one.id, one.state, one.since, one.version, one.generation, one.op, one.error))
        else:
            replaced.append(astuple(one))
    yield clauses.BORN, born
    yield clauses.MOVED, moved
    yield clauses.REPLACED, replaced


def _only_moved(old: Object | None, new: Object) -> bool:
    """Tell whether nothing differs but what every move changes; a large spec is then neither sent nor stored again."""
    return (
        old is not None
        and old.version == new.version - 1
        and old.spec == new.spec
        and old.labels == new.labels
        and old.queue == new.queue
        and old.parent == new.parent
        and old.kind == new.kind
        and old.created == new.created
        and old.removed == new.removed
        and old.seen == new.seen
    )


def _tuples(records: Iterable[Any]) -> Rows:
    return list(map(astuple, records))


def _work(work: Iterable[WorkItem], now: float) -> Rows:
    return [(*astuple(one), one.not_before > now) for one in work]


def waves(parts: Iterable[Part]) -> list[list[Part]]:
    """Split the parts into as few statements as may be: at least one, and none that touches a row twice."""
    found: list[list[Part]] = [[]]
    for part in parts:
        rivals = [one for one in found[-1] if one.clause.table == part.clause.table]
        if any(not one.keys().isdisjoint(part.keys()) for one in rivals):
            found.append([])
        found[-1].append(part)
    return found


@cache
def statement(written: tuple[Clause, ...], *, journaled: bool, told: bool) -> str:
    """Compose a statement, which returns how many rows each clause wrote.

    Its values are the rows of each clause; then the journal's rows and the number of its lock; then the channel and
    what to say there.
    """
    places = {clause: f"${number}" for number, clause in enumerate(written, 1)}
    named = {clause.name: clause.sql.replace("{rows}", place) for clause, place in places.items()}
    named["tally"] = "SELECT " + ", ".join(
        ["1 AS one", *(f"(SELECT count(*) FROM {name}) AS {name}" for name in named)]
    )
    gate, last = "tally", len(written)
    if journaled:
        right = [f" AND {one.name} = cardinality({place})" for one, place in places.items() if one.exact]
        named["turn"] = f"SELECT pg_advisory_xact_lock(${last + 2}) FROM tally WHERE true{''.join(right)}"
        named["journaled"] = clauses.JOURNALED.sql.replace("{rows}", f"${last + 1}")
        gate, last = "turn", last + 2
    if told:
        named["told"] = f"SELECT pg_notify(${last + 1}, ${last + 2}) FROM {gate}"
    ends = [f", (SELECT count(*) FROM {name})" for name in ("journaled", "told") if name in named]
    with_all = ", ".join(f"{name} AS MATERIALIZED ({sql})" for name, sql in named.items())
    return f"WITH {with_all} SELECT tally.*{''.join(ends)} FROM tally"
