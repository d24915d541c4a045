"""Filters and pages of listings, and the WHERE clause of a filter."""

from msgspec import Struct, field


class Selector(Struct, frozen=True):
    """A filter of objects; None matches all values. Removed objects never match."""

    ns: str
    kind: str | None = None
    parent: str | None = None
    states: tuple[str, ...] | None = None
    labels: tuple[tuple[str, str], ...] = ()
    name_like: str | None = None  # a part of the id, case-insensitive


class Page(Struct, frozen=True):
    """A page of a listing in key order: at most `limit` rows with keys greater than `after`."""

    after: str | None = None
    limit: int = 100


class JournalFilter(Struct, frozen=True):
    """A filter of journal entries; None matches all values. `since` is inclusive, `until` exclusive."""

    ns: str | None = None
    object: str | None = None
    kind: str | None = None
    op: str | None = None
    actor: str | None = None
    since: float | None = None
    until: float | None = None


class WhereClause(Struct):
    """A WHERE clause and its values."""

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

    def add_journal_filter(self, only: JournalFilter, prefix: str = "", at: str = "at") -> None:
        """Add the conditions of a journal filter; `prefix` comes before the name of a column, `at` is the time's."""
        for column in ("ns", "object", "kind", "op", "actor"):
            self.add_given(f"{prefix}{column} = ?", getattr(only, column))
        self.add_given(f"{at} >= ?", only.since)
        self.add_given(f"{at} < ?", only.until)

    def __str__(self) -> str:
        return " AND ".join(self.parts) or "true"
