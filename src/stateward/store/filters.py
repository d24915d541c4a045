"""Filters and pages of listings, and the WHERE clause of a filter."""

# bounded by: one query
import re
from collections.abc import Collection
from enum import StrEnum
from typing import ClassVar, NamedTuple

from msgspec import Struct, field

from stateward.store.records import Status


class Selector(Struct, frozen=True):
    """A filter of objects; None matches all values. Removed objects never match. Only sorted pages may name several
    namespaces.
    """

    ns: str | tuple[str, ...]
    kind: str | None = None
    parent: str | tuple[str, ...] | None = None
    states: tuple[str, ...] | None = None
    labels: tuple[tuple[str, str], ...] = ()
    name_like: str | None = None  # a part of the id, case-insensitive
    ids: tuple[str, ...] | None = None
    id_prefix: str | None = None

    @property
    def id_end(self) -> str:
        """A text behind all ids that begin with the prefix."""
        return f"{self.id_prefix or ''}{LAST}"


LAST = "\U0010ffff"


class GroupColumn(StrEnum):
    """A column by whose values objects are counted."""

    KIND = "kind"
    STATE = "state"
    PARENT = "parent"
    LABELS = "labels"


class GroupField(Struct, frozen=True):
    """A value of objects by which they are counted: a column, or one of the labels."""

    column: GroupColumn
    label: str | None = None


BY_STATE = (GroupField(GroupColumn.KIND), GroupField(GroupColumn.STATE))


def group_columns(fields: tuple[GroupField, ...]) -> str:
    """Return the columns that hold these values, each once."""
    return ", ".join(dict.fromkeys(field.column for field in fields))


class Page(Struct, frozen=True):
    """A page of a listing in key order: at most `limit` rows with keys greater than `after`."""

    after: str | None = None
    limit: int = 100


MISSING_NUMBER = -1.7e308
"""The sort value of an object without a number; infinity could not stand in a cursor."""

SORT_CHARS = 100
"""Texts are ordered by their first characters, so that a cursor has a limited length."""


class SortOrder(Struct, frozen=True):
    """The order of a sorted listing: by a column, or by a label or a field of the spec, then by namespace and id.

    An object without the value comes before all others. A descending order is the exact reverse.
    """

    column: str  # a text column, `since` or `created`; or `labels` or `spec`, with a path
    path: tuple[str, ...] = ()
    is_number: bool = False
    is_descending: bool = False


class SortedPage(Struct, frozen=True):
    """A page of a sorted listing: at most `limit` rows behind a row with the sort value, namespace and id `after`."""

    order: SortOrder
    after: tuple[str | float, str, str] | None = None
    limit: int = 100

    @property
    def is_by_id(self) -> bool:
        """Whether an index has each namespace in this order: a page reads only the first rows of each."""
        return self.order.column == "id"

    @property
    def id_bound(self) -> str:
        """The first or last id that a page by ids can have, because only the first characters of ids are compared."""
        value = "" if self.after is None else str(self.after[0])
        return f"{value}{LAST}" if self.order.is_descending else value


class SearchText(Struct, frozen=True):
    """A searched text, in the forms that the stores look for; ASCII letters match in both cases."""

    text: str

    @property
    def pieces(self) -> list[str]:
        """The pieces that the JSON text of a label's `name=value` has for certain, whatever stands between them."""
        return [piece for piece in re.split(r'[="\\]+', self.text) if piece]

    @property
    def end(self) -> str:
        """A text behind all that begin with the searched one."""
        return self.text + LAST


class JournalFilter(Struct, frozen=True):
    """A filter of journal entries; None matches all values. `since` and `upto` are inclusive, `until` is exclusive."""

    ns: str | None = None
    object: str | None = None
    kind: str | None = None
    op: str | None = None
    actor: str | None = None
    since: float | None = None
    until: float | None = None
    upto: int | None = None  # the number of the last entry

    @property
    def needs_walk(self) -> bool:
        """Whether entries that don't match must be read, because no index has all that is named."""
        by_index = self.ns is not None and self.object is not None
        return not by_index and (self.object, self.kind, self.op, self.actor) != (None, None, None, None)


class OperationCursor(NamedTuple):
    """A place in a list of operations, newest first: behind the operation of this time and id."""

    created: float
    id: str


NEWEST = OperationCursor(float("inf"), "")
"""The place before the newest operation."""


class OperationFilter(Struct, frozen=True):
    """A filter of operations in one namespace; None matches all values.

    Without `object` and `group` it matches *entries*: an operation that is no part of another one, and of an action on
    many objects the first. An entry matches if its operation does, or one of its parts.
    """

    ns: str
    object: str | None = None
    kind: str | None = None
    action: str | None = None
    statuses: tuple[Status, ...] | None = None
    who: str | None = None
    group: str | None = None  # the entry that they are parts of
    oldest: OperationCursor | None = None  # the last operation that may be looked at

    @property
    def wants_entries(self) -> bool:
        """Whether it matches entries only."""
        return self.object is None and self.group is None

    @property
    def needs_walk(self) -> bool:
        """Whether entries that don't match must be read, because no index has what is named."""
        is_filtered = (self.kind, self.action, self.statuses, self.who) != (None, None, None, None)
        return self.wants_entries and is_filtered and not self.is_about_open_work

    @property
    def is_about_open_work(self) -> bool:
        """Whether nothing that has ended can match."""
        return self.statuses is not None and not set(self.statuses) - set(OPEN_STATUSES)


OPEN_STATUSES = (Status.WAITING, Status.RUNNING)
"""The statuses of operations that have not ended."""


# The stored status is `waiting` until the end; whether an operation runs is derived from its work item.
RUNNING = "(w.owner IS NOT NULL AND w.deadline IS NOT NULL OR w.remote)"
DISPLAYED_STATUS = f"CASE WHEN o.status = 'waiting' AND {RUNNING} THEN 'running' ELSE o.status END"
# So is the time when its work began, from the deadline of its first state, as at its end (`completion`).
DISPLAYED_START = """coalesce(o.started, CASE WHEN o.status = 'waiting' AND w.deadline IS NOT NULL AND (
    o.hidden OR (SELECT b.state FROM objects b WHERE b.ns = o.ns AND b.id = o.object) = o.via
) THEN <later>(o.created, w.deadline - o.within) END)"""
DISPLAYED_ATTEMPTS = "CASE WHEN o.status = 'waiting' THEN coalesce(w.attempts, o.attempts) ELSE o.attempts END"

LAST_JOURNAL_SEQ = "SELECT coalesce(max(seq), 0) FROM journal"
STUCK_ROWS = """
w.ns, w.object, b.kind, b.state, w.op, o.action, w.owner, w.attempts, w.deadline, f.since, f.orphaned
FROM first f
JOIN work w ON w.seq = f.seq
JOIN objects b ON b.ns = w.ns AND b.id = w.object
JOIN operations o ON o.ns = w.ns AND o.id = w.op
"""

ENTRY = "o.parent IS NULL AND (o.bulk IS NULL OR o.bulk = o.id)"
"""The condition of an index: the operation stands in lists by itself."""

PARTS = """(
    SELECT p.id FROM operations p WHERE p.ns = ? AND p.parent = ?
    UNION ALL SELECT p.id FROM operations p WHERE p.ns = ? AND p.bulk = ?
)"""


class WhereClause(Struct):
    """A WHERE clause and its values."""

    ordered_join: ClassVar[str] = "CROSS JOIN"  # without statistics, SQLite reads all operations before their work

    parts: list[str] = field(default_factory=list)
    values: list[object] = field(default_factory=list)

    def add(self, part: str, *values: object) -> None:
        """Add a condition with a `?` for each value."""
        self.parts.append(part)
        self.values += values

    def add_given(self, part: str, value: object) -> None:
        """Add a condition with one `?`, unless the filter does not name the value."""
        if value is not None:
            self.add(part, value)

    def add_journal_filter(self, only: JournalFilter, prefix: str = "", ns: str = "ns") -> None:
        """Add the conditions of a journal filter; `prefix` comes before the name of a column, `ns` is the first one."""
        for column in (ns, "object", "kind", "op", "actor"):
            self.add_given(f"{prefix}{column} = ?", only.ns if column == ns else getattr(only, column))
        self.add_given(f"{prefix}at >= ?", only.since)
        self.add_given(f"{prefix}at < ?", only.until)
        self.add_given(f"{prefix}seq <= ?", only.upto)

    def add_operation_filter(self, only: OperationFilter, before: OperationCursor | None, running: str) -> None:
        """Add the conditions of a filter, but for the namespace, on operations `o` with their work `w`.

        `running` is the condition on a work item `w` that somebody works on it.
        """
        self.add_given("o.who = ?", only.who)
        if before is not None:
            self.add("(o.created, o.id) < (?, ?)", *before)
        if only.oldest is not None:
            self.add("(o.created, o.id) >= (?, ?)", *only.oldest)
        if only.wants_entries:
            self.add(ENTRY)
            self._add_entry_filter(only, running)
            return
        self.add_given("o.object = ?", only.object)
        if only.group is not None:
            self.add(f"o.id IN {PARTS}", *(only.ns, only.group) * 2)
        for condition, values in (_own_conditions(only, "o"), _status_conditions(only.statuses, "o", running)):
            if condition:
                self.add(condition, *values)

    def _add_entry_filter(self, only: OperationFilter, running: str) -> None:
        ended = [status for status in only.statuses or () if status not in OPEN_STATUSES]
        under_way = [status for status in only.statuses or () if status in OPEN_STATUSES]
        ways: list[str] = []
        values: list[object] = []
        if ended or not under_way:
            for way in ("{}", PART.format("p.parent = o.id"), PART.format("p.bulk = o.bulk")):
                table = "o" if way == "{}" else "p"
                conditions = [_own_conditions(only, table), _status_conditions(ended, table, running)]
                if text := " AND ".join(filter(None, (condition for condition, _ in conditions))):
                    ways.append(way.format(text))
                    values += [value for _, given in conditions for value in given]
        if under_way:
            conditions = [_own_conditions(only, "p"), _status_conditions(under_way, "p", running)]
            text = " AND ".join(filter(None, (condition for condition, _ in conditions)))
            ways.append(f"o.id IN ({OPEN_PART.format(self.ordered_join)} {text})")
            values += [only.ns, *(value for _, given in conditions for value in given)]
        if ways:
            self.add(f"({' OR '.join(ways)})", *values)

    def __str__(self) -> str:
        return " AND ".join(self.parts) or "true"


# OFFSET: otherwise PostgreSQL may read all operations once, to look the parts up in a hash table.
PART = "EXISTS (SELECT 1 FROM operations p WHERE p.ns = o.ns AND {} AND {{}} LIMIT 1 OFFSET 0)"
OPEN_PART = (
    "SELECT coalesce(p.bulk, p.parent, p.id) FROM work w {} operations p ON p.ns = w.ns AND p.id = w.op"
    " WHERE w.ns = ? AND"
)


def _own_conditions(only: OperationFilter, table: str) -> tuple[str, list[object]]:
    """Return the conditions on the kind and the action of an operation, and their values."""
    given = {"kind": only.kind, "action": only.action}
    wanted = {column: value for column, value in given.items() if value is not None}
    return " AND ".join(f"{table}.{column} = ?" for column in wanted), list(wanted.values())


def _status_conditions(statuses: Collection[Status] | None, table: str, running: str) -> tuple[str, list[object]]:
    """Return the condition on the status that readers see, and its values."""
    ways = {
        Status.RUNNING: f"{table}.status = 'waiting' AND {running}",
        Status.WAITING: f"{table}.status = 'waiting' AND NOT coalesce({running}, FALSE)",
    }
    conditions = [ways.get(status, f"{table}.status = ?") for status in statuses or ()]
    values: list[object] = [status.value for status in statuses or () if status not in ways]
    return f"({' OR '.join(conditions)})" if conditions else "", values
